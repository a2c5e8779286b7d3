use super::{CELL_CHARS_MAX, Cell, Table, printable, printable_lines, shortened};

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

#[test]
fn no_cell_of_a_table_can_play_tricks_on_a_terminal() {
    let mut table = Table::new(["TOOL", "STATE"]);
    table.add([Cell::plain("a\u{1b}[2Jb"), Cell::alarming("c\u{202e}d\ne\u{9b}K")]);
    let shown = anstream::adapter::strip_str(&table.to_string()).to_string();
    assert_eq!(shown, "TOOL           STATE\na<U+001B>[2Jb  c<U+202E>d<U+000A>e<U+009B>K");
    assert!(!format!("{}", Cell::plain("\u{1b}[2J")).contains('\u{1b}'));
}
