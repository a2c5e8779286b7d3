//! Cursors: how far readers of the events have come.

use rusqlite::{Connection, params};
use stepgate_core::ports::{Cursor, StoreError};

use super::cells::all;
use super::error;
use crate::rows::{CURSORS, cursor_from};

/// What a cursor has reached; a new one begins at `first`.
pub(super) fn take(connection: &Connection, name: &str, first: u64) -> Result<u64, StoreError> {
    let sql = "INSERT INTO cursors (name, reached) VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET reached = reached RETURNING reached";
    let reached =
        connection.query_row(sql, params![name, number(first)], |row| row.get::<_, i64>(0));
    let reached = reached.map_err(|error| error::while_open(&error))?;
    Ok(u64::try_from(reached).unwrap_or(0))
}

/// Moves a cursor forward; whether there is one.
pub(super) fn step(connection: &Connection, cursor: &Cursor) -> Result<bool, StoreError> {
    let sql = "UPDATE cursors SET reached = max(reached, ?2), error = ?3 WHERE name = ?1";
    let values = params![cursor.name, number(cursor.reached), cursor.error];
    let moved = connection.execute(sql, values).map_err(|error| error::while_open(&error))?;
    Ok(moved == 1)
}

/// Every cursor.
pub(super) fn all_of(connection: &Connection) -> Result<Vec<Cursor>, StoreError> {
    all(connection, CURSORS, "SELECT * FROM cursors ORDER BY name", [], cursor_from)
}

fn number(reached: u64) -> i64 {
    i64::try_from(reached).unwrap_or(i64::MAX)
}
