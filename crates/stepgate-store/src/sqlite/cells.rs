//! The cells of a row in SQLite.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params};
use stepgate_core::ports::StoreError;

use super::error;
use crate::rows::{Cells, Row, Table};

/// A row with the names of its columns. They are read once for each query: a look-up by name in SQLite for
/// every cell takes longer than reading the cell.
struct NamedRow<'a> {
    row: &'a rusqlite::Row<'a>,
    columns: &'a Columns,
}

/// The columns of a query, each with a mark of its name: most other names differ in it already.
struct Columns(Vec<([u8; 3], String)>);

impl Columns {
    fn of(statement: &rusqlite::Statement<'_>) -> Self {
        Self(statement.column_names().map(|name| (mark(name), name.to_owned())).collect())
    }

    fn position(&self, column: &str) -> Option<usize> {
        let wanted = mark(column);
        self.0.iter().position(|(mark, name)| *mark == wanted && name == column)
    }
}

/// Length, first and last byte.
fn mark(name: &str) -> [u8; 3] {
    let name = name.as_bytes();
    let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
    [length, name.first().copied().unwrap_or(0), name.last().copied().unwrap_or(0)]
}

impl Row for NamedRow<'_> {
    fn text(&self, column: &str) -> Result<Option<&str>, String> {
        match cell(self, column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => {
                std::str::from_utf8(text).map(Some).map_err(|error| error.to_string())
            }
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => {
                Err("not a text".into())
            }
        }
    }

    fn number(&self, column: &str) -> Result<Option<i64>, String> {
        match cell(self, column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(number) => Ok(Some(number)),
            ValueRef::Text(_) | ValueRef::Real(_) | ValueRef::Blob(_) => Err("not a number".into()),
        }
    }

    fn bytes(&self, column: &str) -> Result<&[u8], String> {
        match cell(self, column)? {
            ValueRef::Blob(bytes) => Ok(bytes),
            ValueRef::Null | ValueRef::Text(_) | ValueRef::Integer(_) | ValueRef::Real(_) => {
                Err("not bytes".into())
            }
        }
    }
}

fn cell<'a>(row: &'a NamedRow<'_>, column: &str) -> Result<ValueRef<'a>, String> {
    match row.columns.position(column) {
        Some(index) => row.row.get_ref(index).map_err(|error| error.to_string()),
        None => Err("there is no such column".into()),
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
    let columns = Columns::of(&statement);
    let mut rows = statement.query(params).map_err(lift)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(lift)? {
        found.push(read(&Cells::of(&NamedRow { row, columns: &columns }, table))?);
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
    let columns = Columns::of(&statement);
    let mut rows = statement.query(params).map_err(lift)?;
    match rows.next().map_err(lift)? {
        Some(row) => read(&Cells::of(&NamedRow { row, columns: &columns }, table)).map(Some),
        None => Ok(None),
    }
}
