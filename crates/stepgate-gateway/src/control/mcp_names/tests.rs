use super::*;

#[test]
fn a_name_is_made_of_what_the_model_apis_take() {
    let long = "a".repeat(60);
    let rows = [
        ("sonos__set_volume".to_owned(), "sonos__set_volume".to_owned()),
        ("files__read/all.txt".to_owned(), "files__read_all_txt".to_owned()),
        (format!("s__{long}b"), format!("s__{long}b")),
    ];
    for (name, expected) in rows {
        assert_eq!(fitted(&name), expected);
    }
}

#[test]
fn a_name_that_is_too_long_ends_with_a_digest_of_all_of_it() {
    let long = "a".repeat(70);
    let (one, other) = (fitted(&format!("s__{long}b")), fitted(&format!("s__{long}c")));
    assert_eq!(one.len(), NAME_BYTES_MAX);
    assert_eq!(other.len(), NAME_BYTES_MAX);
    assert_ne!(one, other);
    assert!(one.starts_with("s__aaaa"), "{one}");
}
