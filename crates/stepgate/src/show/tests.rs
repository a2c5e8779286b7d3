use super::{Cell, Table, printable, printable_lines, shortened};

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
fn a_table_is_as_wide_as_its_widest_cells() {
    let mut table = Table::new(["A", "LONG"]);
    table.add([Cell::plain("wider"), Cell::plain("é")]);
    let text = anstream::adapter::strip_str(&table.to_string()).to_string();
    assert_eq!(text, "A      LONG\nwider  é");
}

#[test]
fn a_long_text_is_cut_between_characters() {
    assert_eq!(shortened("ééé", 3), "ééé");
    assert_eq!(shortened("éééé", 3), "éé…");
}
