//! A table without borders that fits the terminal.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal};

use anstyle::Style;
use serde_json::Value;
use stepgate_core::run::Status;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{DIM, ERROR, GOOD, WAITING, printable};

/// Most columns of the screen for a cell, except in the last column: one long name must not pad every row.
const CELL_WIDTH_MAX: usize = 128;
/// A column is not made narrower than this.
const COLUMN_WIDTH_MIN: usize = 6;
const GAP: usize = 2;

/// Columns are as wide as their widest cell. On a terminal the widest ones are cut until a row fits; the first column
/// is never cut, because it has the id that a person copies.
pub(crate) struct Table<const N: usize> {
    rows: Vec<[Cell; N]>,
    width_max: Option<usize>,
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

    /// A text member of a gateway's row.
    pub(crate) fn member(row: &Value, name: &str) -> Self {
        Self::plain(row.get(name).and_then(Value::as_str).unwrap_or("-"))
    }

    /// A value that an operator should check.
    pub(crate) fn alarming(text: impl ToString) -> Self {
        Self { text: printable(&text.to_string()), style: ERROR }
    }
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(header: [&str; N]) -> Self {
        let header = header.map(|name| Cell { text: name.to_owned(), style: DIM });
        Self { rows: vec![header], width_max: terminal_width() }
    }

    pub(crate) fn of(header: [&str; N], rows: impl IntoIterator<Item = [Cell; N]>) -> Self {
        let mut table = Self::new(header);
        rows.into_iter().for_each(|row| table.add(row));
        table
    }

    /// The same table, cut nowhere: for digests, of which a part proves nothing.
    pub(crate) fn uncut(self) -> Self {
        Self { width_max: None, ..self }
    }

    /// The same table for a screen of this width.
    #[cfg(test)]
    pub(super) fn within(self, width_max: usize) -> Self {
        Self { width_max: Some(width_max), ..self }
    }

    pub(crate) fn add(&mut self, row: [Cell; N]) {
        let mut row = row;
        let padded = row.iter_mut().rev().skip(1);
        padded.for_each(|cell| cell.text = cut(&cell.text, CELL_WIDTH_MAX));
        self.rows.push(row);
    }

    fn widths(&self) -> [usize; N] {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.text.width().max(*width);
            }
        }
        let Some(width_max) = self.width_max else { return widths };
        let room = width_max.saturating_sub(GAP * N.saturating_sub(1));
        loop {
            let excess = widths.iter().sum::<usize>().saturating_sub(room);
            let mut columns: Vec<&mut usize> = widths.iter_mut().skip(1).collect();
            columns.sort_unstable();
            let Some(widest) = columns.pop().filter(|width| **width > COLUMN_WIDTH_MIN) else {
                return widths;
            };
            if excess == 0 {
                return widths;
            }
            // Down to the next widest, so that equal columns are cut alike.
            let next = columns.pop().map_or(COLUMN_WIDTH_MIN, |width| *width);
            let step = widest.saturating_sub(next.max(COLUMN_WIDTH_MIN)).max(1);
            *widest -= step.min(excess);
        }
    }
}

impl<const N: usize> Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::from(if number == 0 { "" } else { "\n" });
            for (column, (Cell { text, style }, width)) in row.iter().zip(widths).enumerate() {
                let text = if column == 0 { text.clone() } else { cut(text, width) };
                let space = " ".repeat(width.saturating_sub(text.width()) + GAP);
                line.push_str(&format!("{style}{text}{style:#}{space}"));
            }
            f.write_str(line.trim_end_matches(' '))?;
        }
        Ok(())
    }
}

pub(crate) fn status(status: Status) -> Cell {
    let style = match status {
        Status::Ok => GOOD,
        Status::Error | Status::Timeout | Status::Denied => ERROR,
        Status::Started | Status::ApprovalRequired | Status::Approved => WAITING,
    };
    Cell { text: status.as_str().to_owned(), style }
}

impl Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, style } = self;
        write!(f, "{style}{text}{style:#}")
    }
}

/// The text, cut to this many columns of the screen with an ellipsis at the end.
pub(crate) fn cut(text: &str, width_max: usize) -> String {
    if text.width() <= width_max {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut left = width_max.saturating_sub(1);
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if width > left {
            break;
        }
        left -= width;
        shown.push(c);
    }
    shown.push('…');
    shown
}

/// The width of the terminal on standard output, or as `COLUMNS` says; none if the output goes elsewhere.
fn terminal_width() -> Option<usize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let actual = || Some(usize::from(rustix::termios::tcgetwinsize(&out).ok()?.ws_col));
    named.or_else(actual).filter(|width| *width > 0)
}
