use super::*;

fn person(name: &str) -> PrincipalId {
    PrincipalId::parse(name).unwrap()
}

fn people(names: &[&str]) -> BTreeSet<PrincipalId> {
    names.iter().map(|name| person(name)).collect()
}

fn required(approvers: &[&str], quorum: u32) -> Required {
    Required { approvers: approvers.iter().map(|name| (*name).to_owned()).collect(), quorum }
}

fn groups() -> Groups {
    Groups::new(BTreeMap::from([
        ("finance".to_owned(), people(&["ann", "bob"])),
        // A group that has the name of a person replaces that person.
        ("eve".to_owned(), people(&["ann"])),
    ]))
}

#[test]
fn only_the_named_people_and_the_members_of_the_named_groups_decide() {
    let rules = [required(&["finance", "carl"], 1)];
    for (name, may) in [("ann", true), ("bob", true), ("carl", true), ("dora", false)] {
        assert_eq!(may_decide(&rules, &groups(), &person(name)), may, "{name}");
    }
    assert!(may_decide(&[], &groups(), &person("dora")));
    assert!(!may_decide(&[required(&["eve"], 1)], &groups(), &person("eve")));
}

#[test]
fn a_quorum_counts_different_people_who_may_decide() {
    let rules = [required(&["finance"], 2)];
    let cases: [(&[&str], bool); 4] = [
        (&["ann"], false),
        (&["ann", "dora"], false),
        (&["ann", "bob"], true),
        (&["ann", "bob", "dora"], true),
    ];
    for (names, enough) in cases {
        assert_eq!(are_enough(&rules, &groups(), &people(names)), enough, "{names:?}");
    }
}

#[test]
fn every_policy_must_have_enough() {
    let rules = [required(&["finance"], 1), required(&[], 3)];
    assert!(!are_enough(&rules, &groups(), &people(&["ann", "bob"])));
    assert!(!are_enough(&rules, &groups(), &people(&["carl", "dora", "emil"])));
    assert!(are_enough(&rules, &groups(), &people(&["ann", "carl", "dora"])));
    assert!(!are_enough(&[], &groups(), &people(&[])));
}
