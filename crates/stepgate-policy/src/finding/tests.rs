use super::*;

#[test]
fn a_place_counts_lines_and_characters_from_one() {
    let text = "ab\ncäd\n";
    let places: Vec<(usize, usize)> = [0, 1, 2, 3, 4, 5, 6, 7, 8, 99]
        .map(|offset| FilePosition::of_offset(text, offset))
        .map(|place| (place.line, place.column))
        .to_vec();
    let expected =
        [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 2), (2, 3), (2, 4), (3, 1), (3, 1)].to_vec();
    assert_eq!(places, expected);
}

#[test]
fn a_finding_reads_like_a_compiler_s() {
    let place = FilePosition { line: 12, column: 5 };
    let finding = Finding::at(Severity::Error, "policies/10-core.cedar", Some(place), "no");
    assert_eq!(finding.to_string(), "policies/10-core.cedar:12:5: no");
    let finding = Finding::of_file(Severity::Error, "policies", "no");
    assert_eq!(finding.to_string(), "policies: no");
}
