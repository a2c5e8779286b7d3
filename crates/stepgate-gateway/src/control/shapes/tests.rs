use super::*;

#[test]
fn what_policies_name_of_a_server_that_is_away_can_be_named() {
    let text = r#"permit (principal, action == Action::"away.get", resource);
        permit (principal, action in [Action::"away.a/b.c", Action::"far.away.get"], resource)
        when { resource in Server::"away" }; // "away.run_command", "away.", "away.no end"#;
    let found: Vec<String> = named(text, "away").iter().map(ToolName::to_string).collect();
    assert_eq!(found, ["away.get", "away.a/b.c"]);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.cedar"), text).unwrap();
    let shapes = off(BTreeSet::new(), &["away".to_owned()], directory.path());
    let known: Vec<String> = shapes.iter().map(|shape| shape.name.to_string()).collect();
    assert_eq!(known, ["away.a/b.c", "away.get", "away.unknown"]);
    assert!(shapes.iter().all(|shape| !shape.is_accepted));
    assert_eq!(off(BTreeSet::new(), &[], directory.path()), []);
}
