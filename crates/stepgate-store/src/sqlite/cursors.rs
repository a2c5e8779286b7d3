//! Cursors: how far readers of the events have come.

use rusqlite::{Connection, params};
use stepgate_core::ports::Cursor;

use super::error;
use crate::Result;
use crate::tables::integer;

/// What a cursor has reached; a new one begins at `first`.
pub(super) fn take(connection: &Connection, name: &str, first: u64) -> Result<u64> {
    let sql = "INSERT INTO cursors (name, reached) VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET reached = reached RETURNING reached";
    let values = params![name, integer(first)];
    let reached = connection.query_row(sql, values, |row| row.get::<_, i64>(0));
    Ok(u64::try_from(reached.map_err(error::while_open)?).unwrap_or(0))
}

/// Moves a cursor forward; whether there is one.
pub(super) fn step(connection: &Connection, cursor: &Cursor) -> Result<bool> {
    let sql = "UPDATE cursors SET reached = max(reached, ?2), error = ?3 WHERE name = ?1";
    let values = params![cursor.name, integer(cursor.reached), cursor.error];
    Ok(connection.execute(sql, values).map_err(error::while_open)? == 1)
}
