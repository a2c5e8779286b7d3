//! The cells of a row, read back as what they were. What does not parse back was changed by someone
//! else: the error names the table, the row and the column, and `verify` reports it.

use std::fmt::Display;
use std::str::FromStr;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, Row};
use stepgate_core::digest::Digest;
use stepgate_core::journal::StateError;
use stepgate_core::ports::StoreError;
use stepgate_core::session::Link;

use super::error;

/// A table, with the column that names its rows to people.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
}

/// One row of a table.
pub(super) struct Cells<'a> {
    row: &'a Row<'a>,
    table: Table,
}

impl Cells<'_> {
    /// The refusal of a cell.
    pub(super) fn mismatch(&self, column: &str, why: impl Display) -> StoreError {
        let Table { name, key } = self.table;
        let key = match self.row.get_ref(key) {
            Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            Ok(ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_))
            | Err(_) => "?".to_owned(),
        };
        let detail = format!("{name} row {key}: column {column}: {why}");
        StateError::checksum(detail).into()
    }

    fn cell(&self, column: &str) -> Result<ValueRef<'_>, StoreError> {
        self.row.get_ref(column).map_err(|error| self.mismatch(column, error))
    }

    pub(super) fn maybe_text(&self, column: &str) -> Result<Option<&str>, StoreError> {
        match self.cell(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => {
                std::str::from_utf8(text).map(Some).map_err(|error| self.mismatch(column, error))
            }
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => {
                Err(self.mismatch(column, "not a text"))
            }
        }
    }

    pub(super) fn text(&self, column: &str) -> Result<&str, StoreError> {
        self.maybe_text(column)?.ok_or_else(|| self.mismatch(column, "is empty"))
    }

    pub(super) fn owned(&self, column: &str) -> Result<Option<String>, StoreError> {
        Ok(self.maybe_text(column)?.map(str::to_owned))
    }

    pub(super) fn maybe_number(&self, column: &str) -> Result<Option<u64>, StoreError> {
        match self.cell(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(number) => {
                u64::try_from(number).map(Some).map_err(|_| self.mismatch(column, "is negative"))
            }
            ValueRef::Text(_) | ValueRef::Real(_) | ValueRef::Blob(_) => {
                Err(self.mismatch(column, "not a number"))
            }
        }
    }

    pub(super) fn number(&self, column: &str) -> Result<u64, StoreError> {
        self.maybe_number(column)?.ok_or_else(|| self.mismatch(column, "is empty"))
    }

    pub(super) fn bytes(&self, column: &str) -> Result<&[u8], StoreError> {
        match self.cell(column)? {
            ValueRef::Blob(bytes) => Ok(bytes),
            ValueRef::Null | ValueRef::Text(_) | ValueRef::Integer(_) | ValueRef::Real(_) => {
                Err(self.mismatch(column, "not bytes"))
            }
        }
    }

    /// A text that is parsed: an id, a digest, an instant.
    pub(super) fn parsed<T>(&self, column: &str) -> Result<T, StoreError>
    where
        T: FromStr<Err: Display>,
    {
        let text = self.text(column)?;
        text.parse().map_err(|error| self.mismatch(column, error))
    }

    pub(super) fn maybe_parsed<T>(&self, column: &str) -> Result<Option<T>, StoreError>
    where
        T: FromStr<Err: Display>,
    {
        match self.maybe_text(column)? {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|error| self.mismatch(column, error)),
        }
    }

    /// A text that one of our enums spells.
    pub(super) fn spelled<T>(
        &self,
        column: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, StoreError> {
        let text = self.text(column)?;
        parse(text).ok_or_else(|| self.mismatch(column, format!("`{text}` is unknown")))
    }

    /// The link that stands in the row: all three of its columns, or none.
    pub(super) fn maybe_link(&self) -> Result<Option<Link>, StoreError> {
        let number = self.maybe_number("link_number")?;
        let prev: Option<Digest> = self.maybe_parsed("link_prev")?;
        let digest: Option<Digest> = self.maybe_parsed("link_digest")?;
        match (number, prev, digest) {
            (None, None, None) => Ok(None),
            (Some(number), Some(prev), Some(digest)) => Ok(Some(Link { number, prev, digest })),
            _ => Err(self.mismatch("link_number", "a link is whole or absent")),
        }
    }

    pub(super) fn link(&self) -> Result<Link, StoreError> {
        self.maybe_link()?.ok_or_else(|| self.mismatch("link_number", "is empty"))
    }
}

/// Every row that a query finds.
pub(super) fn all<T>(
    connection: &Connection,
    table: Table,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Cells<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let lift = |error: rusqlite::Error| error::while_open(&error);
    let mut statement = connection.prepare_cached(sql).map_err(lift)?;
    let mut rows = statement.query(params).map_err(lift)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(lift)? {
        found.push(read(&Cells { row, table })?);
    }
    Ok(found)
}

/// The first row that a query finds.
pub(super) fn one<T>(
    connection: &Connection,
    table: Table,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Cells<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let lift = |error: rusqlite::Error| error::while_open(&error);
    let mut statement = connection.prepare_cached(sql).map_err(lift)?;
    let mut rows = statement.query(params).map_err(lift)?;
    match rows.next().map_err(lift)? {
        Some(row) => read(&Cells { row, table }).map(Some),
        None => Ok(None),
    }
}
