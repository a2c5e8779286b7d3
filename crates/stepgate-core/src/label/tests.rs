use super::*;

#[test]
fn a_label_is_a_word_in_lower_case() {
    for text in ["untrusted", "a", "from-web_2", &"a".repeat(32)] {
        assert_eq!(Label::parse(text).unwrap().as_str(), text);
    }
    for text in ["", "Untrusted", "2nd", "-a", "a b", "ä", "a\n", &"a".repeat(33)] {
        assert!(Label::parse(text).is_err(), "{text:?}");
    }
    for text in Label::COMMON {
        Label::parse(text).unwrap();
    }
}

#[test]
fn every_change_of_every_label_of_everything_has_an_id_of_its_own() {
    let session = |text: &str| Carrier::Session(text.parse().unwrap());
    let path = |executor_id: &str, path: &str| {
        Carrier::Path(PathInSandbox { executor_id: executor_id.into(), path: path.into() })
    };
    let carriers = [
        session("01893b6e-7a00-7000-8000-000000000001"),
        session("01893b6e-7a00-7000-8000-000000000002"),
        path("a", "/sandbox/x"),
        path("b", "/sandbox/x"),
        path("a", "/sandbox/y"),
        Carrier::Memory("x".into()),
    ];
    let mut ids = BTreeSet::new();
    for carrier in &carriers {
        for label in ["untrusted", "secret"].map(|text| Label::parse(text).unwrap()) {
            for number in 1..4 {
                let id = carrier.change_id(&label, number);
                assert_eq!(id, carrier.change_id(&label, number));
                assert_eq!(id.to_string().parse(), Ok(id), "the form of every other id");
                ids.insert(id);
            }
        }
    }
    assert_eq!(ids.len(), carriers.len() * 2 * 3);
}

#[test]
fn a_label_is_there_after_an_odd_number_of_changes() {
    let in_force: Vec<u64> = (0..6).filter(|changes| is_in_force(*changes)).collect();
    assert_eq!(in_force, [1, 3, 5]);
}
