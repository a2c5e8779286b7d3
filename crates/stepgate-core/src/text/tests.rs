use super::{hidden, printable, printable_lines, shortened};

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

#[test]
fn printable_text_has_neither_controls_nor_characters_that_cannot_be_seen() {
    let tricks = "\u{1b}\u{7}\u{9b}\n\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
                  \u{2066}\u{2067}\u{2068}\u{2069}\u{ad}\u{200b}\u{200d}\u{2800}\u{3164}\u{feff}\u{e0041}";
    let numbers = tricks.chars().map(|c| format!("<U+{:04X}>", u32::from(c)));
    assert_eq!(printable(tricks), numbers.collect::<String>());
    assert_eq!(printable("\u{2764}\u{fe0f}\u{a0}\u{e0100}"), "\u{2764}<U+FE0F><U+00A0><U+E0100>");
    let harmless = "déjà vu: \u{5d0}😀";
    assert_eq!(printable(harmless), harmless);
    assert_eq!(printable_lines("a\nb\u{1b}"), "a\nb<U+001B>");
}

#[test]
fn a_long_text_is_cut_between_characters() {
    assert_eq!(shortened("ééé", 3), "ééé");
    assert_eq!(shortened("éééé", 3), "éé…");
}
