use super::{Cell, Table, printable, printable_lines, shortened};

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
fn a_long_text_is_cut_between_characters() {
    assert_eq!(shortened("ééé", 3), "ééé");
    assert_eq!(shortened("éééé", 3), "éé…");
}

#[test]
fn no_cell_of_a_table_can_play_tricks_on_a_terminal() {
    let mut table = Table::new(["TOOL", "STATE"]);
    table.add([Cell::plain("a\u{1b}[2Jb"), Cell::alarming("c\u{202e}d\ne\u{9b}K")]);
    let shown = anstream::adapter::strip_str(&table.to_string()).to_string();
    assert_eq!(shown, "TOOL    STATE\na\u{fffd}[2Jb  c\u{fffd}d\u{fffd}e\u{fffd}K");
    assert!(!format!("{}", Cell::plain("\u{1b}[2J")).contains('\u{1b}'));
}
