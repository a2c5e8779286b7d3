use super::*;

#[test]
fn an_allowance_is_a_range_or_a_beginning() {
    let condition = |text: &str| text.parse::<Allowance>().map(|it| (it.name, it.condition));
    let beginning = |text: &str| Condition::StartsWith(text.to_owned());
    for (text, name, expected) in [
        ("amount=-5..50", "amount", Condition::Between(-5, 50)),
        ("path=/a/*", "path", beginning("/a/")),
        ("memo=1..x*", "memo", beginning("1..x")),
        ("a=b=c*", "a", beginning("b=c")),
    ] {
        assert_eq!(condition(text).unwrap(), (name.to_owned(), expected), "{text}");
    }
    for text in ["amount", "amount=5", "amount=..5", "amount=1.5..2", "path=/a", ""] {
        assert!(condition(text).is_err(), "{text}");
    }
}
