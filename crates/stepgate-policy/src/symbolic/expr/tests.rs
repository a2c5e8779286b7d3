use super::*;

/// The expression in Cedar's language.
fn text(expr: Expr) -> String {
    let policy = expr.into_policy("THINK").unwrap().to_string();
    policy.split("when {").nth(1).unwrap().trim_end_matches("};").trim().to_owned()
}

#[test]
fn resource_is_replaced_where_it_is_the_variable_and_nowhere_else() {
    let rows = [
        ("resource == Path::\"/sandbox\"", "principal == Path::\"/sandbox\""),
        ("[resource, resource].contains(resource)", "[principal, principal].contains(principal)"),
        ("\"resource\" == context.resource", "\"resource\" == context.resource"),
        (
            "{Value: resource, Var: \"resource\"}.Value == resource",
            "{Value: principal, Var: \"resource\"}.Value == principal",
        ),
        (
            "if resource is Path then resource in Path::\"resource\" else true",
            "if principal is Path then principal in Path::\"resource\" else true",
        ),
    ];
    for (before, after) in rows {
        let replaced = Expr::parse(before).unwrap().about(&Expr::principal());
        assert_eq!(text(replaced), text(Expr::parse(after).unwrap()), "{before}");
    }
}

#[test]
fn a_long_list_keeps_its_order_and_nests_little() {
    let parts = (0..1000).map(|number| Expr::long(number).equals(Expr::long(number)));
    let Expr(joined) = Expr::all(parts);
    let mut numbers = Vec::new();
    let depth = walk(&joined, &mut numbers);
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    assert!(depth <= 11, "{depth}");
    assert_eq!(Expr::all([]), Expr::truth(true));
    assert_eq!(Expr::any([]), Expr::truth(false));
}

/// The numbers of a conjunction from left to right, and how deep it nests.
fn walk(part: &Value, numbers: &mut Vec<i64>) -> usize {
    match part.get("&&") {
        Some(and) => 1 + walk(&and["left"], numbers).max(walk(&and["right"], numbers)),
        None => {
            numbers.extend(part.pointer("/==/left/Value").and_then(Value::as_i64));
            0
        }
    }
}

#[test]
fn a_text_that_is_not_one_condition_is_refused() {
    for text in [
        "",
        "true }; permit (principal, action, resource) when { true",
        "true } unless { false",
        "context.",
        "?principal == principal",
    ] {
        assert!(Expr::parse(text).is_err(), "{text}");
    }
}
