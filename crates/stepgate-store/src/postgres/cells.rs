//! The cells of a row in PostgreSQL, and the queries that find rows.

use std::borrow::Cow;

use crate::Result;
use crate::rows::{Cells, Row};
use crate::tables::Table;

impl Row for tokio_postgres::Row {
    fn text(&self, column: &str) -> Result<Option<&str>, String> {
        self.try_get(column).map_err(|error| error.to_string())
    }

    fn number(&self, column: &str) -> Result<Option<i64>, String> {
        self.try_get(column).map_err(|error| error.to_string())
    }

    fn bytes(&self, column: &str) -> Result<Option<&[u8]>, String> {
        self.try_get(column).map_err(|error| error.to_string())
    }

    fn free_text(&self, column: &str) -> Result<Option<String>, String> {
        self.text(column)?.map(plain).transpose()
    }
}

pub(super) fn all<T>(
    rows: &[tokio_postgres::Row],
    table: Table,
    read: impl Fn(&Cells<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    rows.iter().map(|row| read(&Cells::of(row, table))).collect()
}

pub(super) fn one<T>(
    rows: &[tokio_postgres::Row],
    table: Table,
    read: impl Fn(&Cells<'_>) -> Result<T>,
) -> Result<Option<T>> {
    rows.first().map(|row| read(&Cells::of(row, table))).transpose()
}

/// Escapes a text from outside Stepgate, because PostgreSQL cannot store a NUL in a text. Names of actions
/// and notes of people contain neither NUL nor backslash, so they are stored unchanged.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    match text.contains(['\0', '\\']) {
        true => text.replace('\\', "\\\\").replace('\0', "\\0").into(),
        false => text.into(),
    }
}

/// Reverses [`escaped`].
pub(super) fn plain(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let meant = match character {
            '\\' => match characters.next() {
                Some('\\') => '\\',
                Some('0') => '\0',
                Some(_) | None => return Err("a backslash that escapes nothing".into()),
            },
            other => other,
        };
        plain.push(meant);
    }
    Ok(plain)
}

#[cfg(test)]
mod tests;
