//! The cells of a row in SQLite.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, params_from_iter};

use super::error;
use crate::Result;
use crate::rows::{Cells, Row};
use crate::select::Select;
use crate::tables::Table;

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
        cell(self, column)?.as_i64_or_null().map_err(|_| "not a number".into())
    }

    fn bytes(&self, column: &str) -> Result<Option<&[u8]>, String> {
        cell(self, column)?.as_blob_or_null().map_err(|_| "not bytes".into())
    }
}

fn cell<'a>(row: &'a NamedRow<'_>, column: &str) -> Result<ValueRef<'a>, String> {
    match row.columns.position(column) {
        Some(index) => row.row.get_ref(index).map_err(|error| error.to_string()),
        None => Err("there is no such column".into()),
    }
}

/// Every row that a query finds.
pub(super) fn all<T>(connection: &Connection, select: Select<T>) -> Result<Vec<T>> {
    let Select { table, sql, values, read } = select;
    rows(connection, table, &sql, params_from_iter(values), usize::MAX, read)
}

/// The first row that a query finds.
pub(super) fn one<T>(connection: &Connection, select: Select<T>) -> Result<Option<T>> {
    first(connection, &select)
}

/// The same, of a query that may be asked again.
pub(super) fn first<T>(connection: &Connection, select: &Select<T>) -> Result<Option<T>> {
    let Select { table, sql, values, read } = select;
    Ok(rows(connection, *table, sql, params_from_iter(values), 1, read)?.pop())
}

/// The first rows that a query finds, at most so many.
pub(super) fn rows<T>(
    connection: &Connection,
    table: Table,
    sql: &str,
    values: impl Params,
    rows_max: usize,
    read: impl Fn(&Cells<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut statement =
        connection.prepare_cached(&sql.replace('$', "?")).map_err(error::while_open)?;
    let columns = Columns::of(&statement);
    let mut rows = statement.query(values).map_err(error::while_open)?;
    let mut found = Vec::new();
    while found.len() < rows_max
        && let Some(row) = rows.next().map_err(error::while_open)?
    {
        found.push(read(&Cells::of(&NamedRow { row, columns: &columns }, table))?);
    }
    Ok(found)
}

/// The end of an INSERT of a whole row.
pub(super) fn into_values(table: &Table, columns: &str) -> String {
    let places = vec!["?"; columns.split(", ").count()].join(", ");
    format!("INTO {} ({columns}) VALUES ({places})", table.name)
}
