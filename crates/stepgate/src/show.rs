//! How things look: clean tables, colour on a terminal, JSON that stays the same.

pub(crate) mod timeline;

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use stepgate_core::run::Status;

/// What went wrong.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
/// What holds.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What waits.
pub(crate) const WAITING: Style = AnsiColor::Yellow.on_default().bold();
/// What matters less.
pub(crate) const DIM: Style = Style::new().dimmed();

/// One JSON value on one line.
pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// A table without lines: columns as wide as their widest cell.
pub(crate) struct Table<const N: usize> {
    rows: Vec<[Cell; N]>,
}

/// A text in its style; the style is stripped where nobody sees it.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn plain(text: impl ToString) -> Self {
        Self { text: text.to_string(), style: Style::new() }
    }
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(header: [&str; N]) -> Self {
        let header = header.map(|name| Cell { text: name.to_owned(), style: DIM });
        Self { rows: vec![header] }
    }

    pub(crate) fn add(&mut self, row: [Cell; N]) {
        self.rows.push(row);
    }

    pub(crate) fn print(&self) {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.text.chars().count().max(*width);
            }
        }
        for row in &self.rows {
            let mut line = String::new();
            for (Cell { text, style }, width) in row.iter().zip(widths) {
                let space = " ".repeat(width.saturating_sub(text.chars().count()) + 2);
                line.push_str(&format!("{style}{text}{style:#}{space}"));
            }
            anstream::println!("{}", line.trim_end());
        }
    }
}

/// A status in its colour.
pub(crate) fn status(status: Status) -> Cell {
    let style = match status {
        Status::Ok => GOOD,
        Status::Error | Status::Timeout | Status::Denied => ERROR,
        Status::Started | Status::ApprovalRequired | Status::Approved => WAITING,
    };
    Cell { text: status.as_str().to_owned(), style }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { text, style } = self;
        write!(f, "{style}{text}{style:#}")
    }
}

/// Text that cannot play tricks on a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The beginning of a long text.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}
