use super::*;

#[test]
fn a_policy_has_a_deepest_nesting() {
    let nested = |depth: usize| format!("{}{}", "(".repeat(depth), ")".repeat(depth));
    let ifs = |depth: usize| "if a then b else ".repeat(depth);
    let too_deep =
        |at: usize| Some((at, format!("nested deeper than {NESTING_MAX}; split the policy")));
    let rows = [
        (nested(NESTING_MAX), None),
        (nested(NESTING_MAX + 1), too_deep(NESTING_MAX)),
        (ifs(NESTING_MAX), None),
        (ifs(NESTING_MAX + 1), too_deep(NESTING_MAX * 17)),
        (format!("({})", ifs(NESTING_MAX)), too_deep((NESTING_MAX - 1) * 17 + 1)),
        (format!("a{}", ".a".repeat(NESTING_MAX)), None),
        (format!("a{}", ".a".repeat(NESTING_MAX + 1)), too_deep(NESTING_MAX * 2 + 1)),
        (format!("1{}", " + 1".repeat(NESTING_MAX + 1)), too_deep(NESTING_MAX * 4 + 2)),
        (format!("a{}", "[\"\"]".repeat(NESTING_MAX)), too_deep((NESTING_MAX - 1) * 4 + 1)),
        ("context.args.volume <= 3 && ".repeat(99), None),
        ("a == b.c || ".repeat(99), None),
        // The next policy starts from zero; comments and strings do not count.
        (format!("{};{}", ifs(NESTING_MAX), ifs(NESTING_MAX)), None),
        (format!("// {}", nested(99)), None),
        (format!("\"\\\"{}\"", nested(99)), None),
        (format!("// \r{}", nested(NESTING_MAX + 1)), too_deep(NESTING_MAX + 4)),
        (format!("\"\\\\\"{}", nested(NESTING_MAX + 1)), too_deep(NESTING_MAX + 4)),
        ("iffy if_ _if".repeat(NESTING_MAX), None),
        (")]}".repeat(9), None),
        ("\"".to_owned(), None),
    ];
    for (text, expected) in rows {
        assert_eq!(excess(&text), expected, "{text}");
    }
}

#[test]
fn a_policy_has_a_largest_size() {
    let operators = |count: usize| "a &&".repeat(count);
    assert_eq!(excess(&operators(OPERATORS_MAX)), None);
    assert_eq!(
        excess(&operators(OPERATORS_MAX + 1)).map(|(at, _)| at),
        Some(OPERATORS_MAX * 4 + 2)
    );
    let bytes = |count: usize| format!("{} a;", "ä".repeat(count / 2));
    let comment = format!("// {}\n", "/".repeat(2 * POLICY_BYTES_MAX));
    assert_eq!(excess(&bytes(POLICY_BYTES_MAX - 2).repeat(3)), None);
    assert_eq!(excess(&comment.repeat(2)), None);
    assert_eq!(excess(&format!("{comment}{}", bytes(POLICY_BYTES_MAX - 2))), None);
    assert!(excess(&bytes(POLICY_BYTES_MAX)).is_some());
}
