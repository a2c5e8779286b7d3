//! Output: tables, colour on a terminal, and stable JSON.

pub(crate) mod attention;
pub(crate) mod timeline;

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use serde::Serialize;
use stepgate_core::run::Status;

pub(crate) use stepgate_gateway::text::{printable, printable_lines, shortened};

/// Style of errors.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Style of success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Style of what waits.
pub(crate) const WAITING: Style = AnsiColor::Yellow.on_default().bold();
/// Style of what matters less.
pub(crate) const DIM: Style = Style::new().dimmed();

/// Set once standard output has no reader any more (broken pipe).
static READER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// Prints one JSON value on one line, byte for byte.
pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    plain(serde_json::to_string(value)?)
}

/// Prints one or more lines for a program, byte for byte.
///
/// INVARIANT: output for a program never passes a terminal filter. The filter drops control characters, and a digest
/// over the rest would not match.
pub(crate) fn plain(text: impl Display) -> anyhow::Result<()> {
    written(writeln_to(io::stdout().lock(), text))
}

/// Prints one or more lines for a person. Styles are removed if standard output is not a terminal.
pub(crate) fn say(text: impl Display) -> anyhow::Result<()> {
    written(writeln_to(anstream::stdout().lock(), text))
}

/// Prints a part of a line for a person.
pub(crate) fn say_piece(text: impl Display) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    written(write!(out, "{text}").and_then(|()| out.flush()))
}

fn writeln_to(mut out: impl Write, text: impl Display) -> io::Result<()> {
    writeln!(out, "{text}")?;
    out.flush()
}

/// A reader that closes the pipe early, such as `head`, is not an error and does not change the exit code. The response
/// of a step is not written with this function: a caller that does not get it must be told.
fn written(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            READER_IS_GONE.store(true, Ordering::Relaxed);
            Ok(())
        }
        written => written.context("cannot write the output"),
    }
}

/// Whether standard output still has a reader, as far as known. Commands that run forever stop when it has none.
pub(crate) fn has_reader() -> bool {
    !READER_IS_GONE.load(Ordering::Relaxed)
}

/// Prints a line about the progress of the work to standard error.
pub(crate) fn note(text: impl Display) {
    // If standard error is closed, the note is not wanted.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Longest cell of a table, except in the last column: one long name must not pad every row.
const CELL_CHARS_MAX: usize = 128;

/// A table without borders: columns as wide as their widest cell.
pub(crate) struct Table<const N: usize> {
    rows: Vec<[Cell; N]>,
}

/// A text with a style; the style is removed if the output is not a terminal. The text may come from a server or an
/// agent, so it is always made printable.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn plain(text: impl ToString) -> Self {
        Self { text: printable(&text.to_string()), style: Style::new() }
    }

    /// A value that an operator should check.
    pub(crate) fn alarming(text: impl ToString) -> Self {
        Self { text: printable(&text.to_string()), style: ERROR }
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

#[cfg(test)]
mod tests;
