use super::*;

const SOURCE: &str = r#"
fn smaller(a: u8, b: u8) -> bool { !(a > b) && a != b }
fn named(text: &str) -> Option<u8> {
    match text {
        "one" => Some(1),
        long if long.len() > 9 => None,
        _ => Some(0),
    }
}
const fn fixed() -> u8 { 1 + 1 }
#[cfg(test)]
mod tests { fn of_a_test() -> bool { true } }
"#;

#[test]
fn without_a_change_the_file_is_as_it_was() {
    let found = find(SOURCE.to_owned(), 1).unwrap();
    assert_eq!(found.write(&|_| false), SOURCE);
}

#[test]
fn every_place_is_found_once_and_nothing_constant_or_of_a_test() {
    let found = find(SOURCE.to_owned(), 7).unwrap();
    let told: Vec<(usize, &str)> =
        found.changes.iter().map(|change| (change.line, change.what.as_str())).collect();
    let expected = [
        (2, "smaller returns true"),
        (2, "smaller returns false"),
        (2, "`&&` becomes `||`"),
        (2, "`!` is left out"),
        (2, "`>` becomes `>=`"),
        (2, "`>` becomes `<=`"),
        (2, "`!=` becomes `==`"),
        (3, "named returns None"),
        (3, "named returns Some(0)"),
        (3, "named returns Some(1)"),
        (5, "the arm `\"one\"` is left out"),
        (6, "a guard always holds"),
        (6, "a guard never holds"),
        (6, "`>` becomes `>=`"),
        (6, "`>` becomes `<=`"),
    ];
    assert_eq!(told, expected);
    assert_eq!(found.numbers(), 7..7 + expected.len());
}

#[test]
fn a_file_with_every_change_is_rust_and_an_error_leads_to_its_change() {
    let found = find(SOURCE.to_owned(), 1).unwrap();
    let text = found.write(&|_| true);
    syn::parse_file(&text).unwrap();
    for id in found.numbers() {
        let at = text.find(&format!("/*<{id}*/")).unwrap() + format!("/*<{id}*/").len();
        assert_eq!(blamed(&text, at), [id], "{text}");
    }
    assert_eq!(blamed(&text, text.find("const fn").unwrap()), Vec::<usize>::new());
}
