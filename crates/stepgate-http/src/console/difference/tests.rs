use super::*;

fn marks(difference: &Difference) -> Vec<&'static str> {
    match difference {
        Difference::Lines(lines) => lines.iter().map(|line| line.mark).collect(),
        Difference::None | Difference::TooLong | Difference::Unknown => Vec::new(),
    }
}

#[test]
fn changed_lines_are_shown_with_the_lines_around_them() {
    let before: String = (0..20).map(|number| format!("{number}\n")).collect();
    let after = before.replace("\n9\n", "\nnine\n").replace("\n0\n", "\nzero\n");
    let compared = Difference::between(&before, &after);
    assert_eq!(marks(&compared), [" ", " ", " ", "−", "+", " ", " ", " "]);
    assert_eq!(Difference::between("a", "a"), Difference::None);
}

#[test]
fn what_came_stands_beside_what_went() {
    let sides = |before: &str, after: &str| {
        let Difference::Lines(lines) = Difference::between(before, after) else { panic!() };
        let mark = |line: Option<&Line>| line.map_or("", |line| line.mark);
        let rows = side_by_side(&lines);
        rows.iter().map(|row| (mark(row.before), mark(row.after))).collect::<Vec<_>>()
    };
    assert_eq!(sides("a\nb\nz\n", "1\n2\nz\n"), [("−", "+"), ("−", "+"), (" ", " ")]);
    assert_eq!(sides("a\nz\n", "1\n2\nz\n"), [("−", "+"), ("", "+"), (" ", " ")]);
    assert_eq!(sides("a\nb\nz\n", "z\n"), [("−", ""), ("−", ""), (" ", " ")]);
    assert_eq!(sides("z\nb\n", "z\nc\nd\n"), [(" ", " "), ("−", "+"), ("", "+")]);
}

#[test]
fn texts_that_are_too_long_are_not_compared() {
    let long = "a\n".repeat(BYTES_MAX);
    assert_eq!(Difference::between("", &long), Difference::TooLong);
    let many_lines = "a\n".repeat(LINES_MAX + 1);
    assert_eq!(Difference::between("", &many_lines), Difference::TooLong);
}
