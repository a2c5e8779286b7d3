use std::str::FromStr;

use super::*;

fn reads(condition: &str) -> Vec<String> {
    let text = format!("permit (principal, action, resource) when {{ {condition} }};");
    let reads = Reads::of(&Policy::from_str(&text).unwrap());
    reads.paths().map(|path| path.join("/")).collect()
}

#[test]
fn a_policy_reads_the_arguments_that_its_conditions_name() {
    let rows: &[(&str, &[&str])] = &[
        ("true", &[]),
        ("context.mode == \"core\" && context.unseen.contains(\"x\")", &[]),
        ("principal == principal && resource in Server::\"s\"", &[]),
        ("context.args.x > 1", &["x"]),
        ("context[\"args\"][\"x y\"] > 1", &["x y"]),
        ("context.args has x && context.args.x > 1", &["x"]),
        ("context.args has x.y.z", &["x/y/z"]),
        ("context has args.x", &["x"]),
        ("context.args.x has y", &["x/y"]),
        ("context.args.x.y.contains(\"z\")", &["x/y"]),
        ("\"a\" == context.args.x || [context.args.y].contains(1)", &["x", "y"]),
        ("!(if context.args has a then context.args.b like \"c*\" else false)", &["a", "b"]),
        ("{ \"k\": context.args.x } == { \"k\": 1 }", &["x"]),
        ("decimal(context.args.x).lessThan(decimal(\"1.0\"))", &["x"]),
        // The arguments cannot be told apart here: everything counts as read.
        ("context.args == { \"x\": 1 }", &[""]),
        ("context == { \"args\": 1 }", &[""]),
        ("context has args", &[""]),
        ("(if true then context else context).args.x == 1", &[""]),
        ("(if true then context.args else context.args).x == 1", &[""]),
        ("{ \".\": context }[\".\"] == context", &[""]),
        ("{ \"has\": context.args }[\"has\"].x == 1", &[""]),
        // Reading a part of an argument counts as reading the argument.
        ("(if true then context.args.x else context.args.y).z == 1", &["x", "y"]),
    ];
    for (condition, expected) in rows {
        assert_eq!(reads(condition), *expected, "{condition}");
    }
}

#[test]
fn conditions_of_both_kinds_are_read() {
    let text =
        "forbid (principal, action, resource) when { context.args.a } unless { context.args.b };";
    let reads = Reads::of(&Policy::from_str(text).unwrap());
    assert_eq!(reads.paths().flatten().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_path_touches_what_is_around_it_and_what_is_in_it() {
    let path = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
    let reads = Reads(BTreeSet::from([path("a/b")]));
    for (touched, expected) in
        [("a", true), ("a/b", true), ("a/b/c", true), ("a/c", false), ("b", false)]
    {
        assert_eq!(reads.touches(&path(touched)), expected, "{touched}");
    }
    assert!(Reads(BTreeSet::from([vec![]])).touches(&path("a")));
    assert!(!Reads::default().touches(&path("a")));
}
