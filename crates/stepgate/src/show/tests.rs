use super::{CELL_CHARS_MAX, Cell, Table, printable, printable_lines, shortened};

#[test]
fn printable_text_has_neither_controls_nor_characters_that_cannot_be_seen() {
    let tricks = "\u{1b}\u{7}\u{9b}\n\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
                  \u{2066}\u{2067}\u{2068}\u{2069}\u{ad}\u{200b}\u{200d}\u{2800}\u{3164}\u{feff}\u{e0041}";
    assert_eq!(printable(tricks), "\u{fffd}".repeat(tricks.chars().count()));
    let harmless = "déjà vu: \u{5d0}😀";
    assert_eq!(printable(harmless), harmless);
    assert_eq!(printable_lines("a\nb\u{1b}"), "a\nb\u{fffd}");
}

#[test]
fn a_table_is_as_wide_as_its_widest_cells() {
    let mut table = Table::new(["A", "LONG"]);
    table.add([Cell::plain("wider"), Cell::plain("é")]);
    let text = anstream::adapter::strip_str(&table.to_string()).to_string();
    assert_eq!(text, "A      LONG\nwider  é");
}

#[test]
fn a_long_cell_pads_no_row_beyond_the_limit() {
    let mut table = Table::new(["A", "B"]);
    let long = "n".repeat(1_000_000);
    table.add([Cell::plain(&long), Cell::plain(&long)]);
    table.add([Cell::plain("a"), Cell::plain("b")]);
    let text = anstream::adapter::strip_str(&table.to_string()).to_string();
    let lines: Vec<_> = text.lines().map(|line| line.chars().count()).collect();
    // The last cell pads nothing, so it is shown whole.
    assert_eq!(lines, [CELL_CHARS_MAX + 3, CELL_CHARS_MAX + 2 + long.len(), CELL_CHARS_MAX + 3]);
}

#[test]
fn a_long_text_is_cut_between_characters() {
    assert_eq!(shortened("ééé", 3), "ééé");
    assert_eq!(shortened("éééé", 3), "éé…");
}
