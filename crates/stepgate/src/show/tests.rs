use super::{CELL_CHARS_MAX, Cell, Table};

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
    // The last column pads nothing, so it is shown whole.
    assert_eq!(lines, [CELL_CHARS_MAX + 3, CELL_CHARS_MAX + 2 + long.len(), CELL_CHARS_MAX + 3]);
}

#[test]
fn no_cell_of_a_table_can_play_tricks_on_a_terminal() {
    let mut table = Table::new(["TOOL", "STATE"]);
    table.add([Cell::plain("a\u{1b}[2Jb"), Cell::alarming("c\u{202e}d\ne\u{9b}K")]);
    let shown = anstream::adapter::strip_str(&table.to_string()).to_string();
    assert_eq!(shown, "TOOL           STATE\na<U+001B>[2Jb  c<U+202E>d<U+000A>e<U+009B>K");
    assert!(!format!("{}", Cell::plain("\u{1b}[2J")).contains('\u{1b}'));
}
