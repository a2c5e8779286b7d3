//! How things look: clean tables, colour on a terminal, JSON that stays the same.

pub(crate) mod timeline;

use std::fmt::Display;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use anyhow::Context;
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
    say(serde_json::to_string(value)?)
}

/// A line of what was asked for, or several.
///
/// A reader that has seen enough, such as `head`, is no error, and neither does it change the answer:
/// the command goes on to its own exit code. A step's response is not written with this: whoever does
/// not get it must be told.
pub(crate) fn say(text: impl Display) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the output"),
    }
}

/// A line about the work, beside what was asked for.
pub(crate) fn note(text: impl Display) {
    // Whoever closed standard error does not want to know.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Longest cell of a table, but for the last of its row: one long name must not pad every row.
const CELL_CHARS_MAX: usize = 128;

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

    /// What an operator should look at.
    pub(crate) fn alarming(text: impl ToString) -> Self {
        Self { text: text.to_string(), style: ERROR }
    }
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(header: [&str; N]) -> Self {
        let header = header.map(|name| Cell { text: name.to_owned(), style: DIM });
        Self { rows: vec![header] }
    }

    pub(crate) fn add(&mut self, row: [Cell; N]) {
        let mut row = row;
        let padded = row.iter_mut().rev().skip(1);
        padded.for_each(|cell| cell.text = shortened(&cell.text, CELL_CHARS_MAX));
        self.rows.push(row);
    }
}

impl<const N: usize> Display for Table<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.text.chars().count().max(*width);
            }
        }
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::from(if number == 0 { "" } else { "\n" });
            for (Cell { text, style }, width) in row.iter().zip(widths) {
                let space = " ".repeat(width.saturating_sub(text.chars().count()) + 2);
                line.push_str(&format!("{style}{text}{style:#}{space}"));
            }
            f.write_str(line.trim_end_matches(' '))?;
        }
        Ok(())
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

impl Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { text, style } = self;
        write!(f, "{style}{text}{style:#}")
    }
}

/// Text that cannot play tricks on a terminal: no escape sequences, and nothing that is there and cannot
/// be seen.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect()
}

/// Printable, line by line: for texts that have lines of their own.
pub(crate) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// Whether a character leaves no mark of its own: controls, what turns the direction of reading, what
/// has no width, and what looks like nothing.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The beginning of a long text.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
