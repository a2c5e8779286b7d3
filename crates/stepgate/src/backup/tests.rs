use super::contents;

#[test]
fn one_of_a_thing_is_told_as_one() {
    assert_eq!(contents(1, Some(1), 1), "1 run, 1 journal entry, 1 session");
    assert_eq!(contents(0, Some(2), 3), "0 runs, 2 journal entries, 3 sessions");
    assert_eq!(contents(2, None, 1), "2 runs, 1 session");
}
