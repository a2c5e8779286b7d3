use super::table::{Cell, Table};

const CELL_WIDTH_MAX: usize = 128;

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
    assert_eq!(lines, [CELL_WIDTH_MAX + 3, CELL_WIDTH_MAX + 2 + long.len(), CELL_WIDTH_MAX + 3]);
}

#[test]
fn no_cell_of_a_table_can_play_tricks_on_a_terminal() {
    let mut table = Table::new(["TOOL", "STATE"]);
    table.add([Cell::plain("a\u{1b}[2Jb"), Cell::alarming("c\u{202e}d\ne\u{9b}K")]);
    let shown = anstream::adapter::strip_str(&table.to_string()).to_string();
    assert_eq!(shown, "TOOL           STATE\na<U+001B>[2Jb  c<U+202E>d<U+000A>e<U+009B>K");
    assert!(!format!("{}", Cell::plain("\u{1b}[2J")).contains('\u{1b}'));
}

/// The lines of a table on a screen of this width, and how wide each is.
fn on_screen<const N: usize>(table: Table<N>, width: usize) -> Vec<(String, usize)> {
    let text = anstream::adapter::strip_str(&table.within(width).to_string()).to_string();
    let line = |line: &str| (line.to_owned(), unicode_width::UnicodeWidthStr::width(line));
    text.lines().map(line).collect()
}

#[test]
fn a_table_fits_the_screen_and_its_first_column_is_never_cut() {
    let table = || {
        let mut table = Table::new(["ID", "TOOL", "WHAT"]);
        let id = "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10";
        table.add([Cell::plain(id), Cell::plain("short"), Cell::plain("w".repeat(500))]);
        table.add([Cell::plain(id), Cell::plain("t".repeat(90)), Cell::plain("漢字".repeat(50))]);
        table
    };
    for width in [60, 80, 119, 120, 300] {
        let lines = on_screen(table(), width);
        assert!(lines.iter().all(|(_, shown)| *shown <= width), "{width}: {lines:#?}");
        assert!(lines.iter().any(|(_, shown)| *shown >= width - 1), "{width}: room is used");
        assert!(lines[1].0.starts_with("0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10  short "));
        assert!(lines[1].0.ends_with('…') && lines[2].0.ends_with('…'), "{lines:#?}");
    }
    // Where even the narrowest columns are too many, the id stands all the same.
    assert!(on_screen(table(), 10)[1].0.starts_with("0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10"));
}

#[test]
fn wide_characters_are_counted_by_the_columns_that_they_take() {
    let mut table = Table::new(["A", "B"]);
    table.add([Cell::plain("漢字"), Cell::plain("x")]);
    table.add([Cell::plain("e\u{301}"), Cell::plain("y")]);
    let lines = on_screen(table, 80);
    assert_eq!(lines[1].0, "漢字  x");
    assert_eq!(lines[2].0, "e\u{301}     y");
}
