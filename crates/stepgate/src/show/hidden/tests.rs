use super::hidden;

#[test]
fn what_cannot_be_seen_has_its_number() {
    let unseen = [
        0x00..=0x1f,
        0x7f..=0xa0,
        0xad..=0xad,
        0x34f..=0x34f,
        0x61c..=0x61c,
        0x115f..=0x1160,
        0x1680..=0x1680,
        0x17b4..=0x17b5,
        0x180b..=0x180f,
        0x2000..=0x200f,
        0x2028..=0x202f,
        0x205f..=0x206f,
        0x2800..=0x2800,
        0x3000..=0x3000,
        0x3164..=0x3164,
        0xfdd0..=0xfdef,
        0xfe00..=0xfe0f,
        0xfeff..=0xfeff,
        0xffa0..=0xffa0,
        0xfff0..=0xfffb,
        0xfffe..=0xffff,
        0x13430..=0x1343f,
        0x1bca0..=0x1bca3,
        0x1d159..=0x1d159,
        0x1d173..=0x1d17a,
        0xe0000..=0xe0fff,
    ];
    for number in unseen.into_iter().flatten() {
        let c = char::from_u32(number).unwrap();
        assert_eq!(hidden(c), Some(format!("U+{number:04X}")));
    }
}

#[test]
fn what_can_be_seen_stays_as_it_is() {
    let seen = " ~aé\u{5d0}漢😀\u{fffd}\u{2026}\u{ac00}\u{fe10}\u{1d158}";
    assert_eq!(seen.chars().find_map(hidden), None);
}
