//! The versions of the schema, and how a database gets to the newest.
//!
//! A migration is a numbered file that is never edited once it is released. Missing migrations are applied in
//! one transaction, so a database is always at exactly one version. Between two of them rows are moved, in many
//! transactions: a process that is killed meanwhile leaves a database at the first of the two, and the next one
//! goes on from there.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error::{OpenError, while_open, while_opening};
use super::moving;
use crate::tables::{SchemaState, schema_differences};

use crate::Result;

/// "SGAT": marks a SQLite file as a Stepgate store.
pub(super) const APPLICATION_ID: i64 = 0x5347_4154;

/// Every migration, in order: the n-th leads to version n.
const MIGRATIONS: [&str; 13] = [
    include_str!("migrations/V0001__tables.sql"),
    include_str!("migrations/V0002__refusals.sql"),
    include_str!("migrations/V0003__sealed.sql"),
    include_str!("migrations/V0004__nodes.sql"),
    include_str!("migrations/V0005__lists.sql"),
    include_str!("migrations/V0006__cursors.sql"),
    include_str!("migrations/V0007__differences.sql"),
    include_str!("migrations/V0008__budgets.sql"),
    include_str!("migrations/V0009__chunks.sql"),
    include_str!("migrations/V0010__chunks_alone.sql"),
    include_str!("migrations/V0011__archives.sql"),
    include_str!("migrations/V0012__erasable.sql"),
    include_str!("migrations/V0013__keys.sql"),
];

/// The version at which rows are moved into chunks, before the next migration.
const MOVING: usize = 9;
const MOVING_VERSION: i64 = 9;

/// The version that this build reads and writes.
pub(super) fn supported_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Reads without changing anything: another program's file stays as it is.
pub(super) fn state(connection: &Connection, path: &Path) -> Result<SchemaState, OpenError> {
    let lift = |error: rusqlite::Error| while_opening(path, &error);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application_id = number("PRAGMA application_id").map_err(lift)?;
    let version = number("PRAGMA user_version").map_err(lift)?;
    let tables = number("SELECT count(*) FROM sqlite_schema").map_err(lift)?;
    let path = path.to_owned();
    match (application_id, version, tables) {
        (0, 0, 0) => Ok(SchemaState::Empty),
        (APPLICATION_ID, found, _) if found > supported_version() => {
            let supported = supported_version();
            Err(OpenError::NewerVersion { path, found, supported })
        }
        (APPLICATION_ID, version, _) if version > 0 => Ok(SchemaState::Store(version)),
        (found, _, _) => Err(OpenError::Foreign { path, found }),
    }
}

/// Migrates a database to the newest version.
pub(super) fn migrate(
    connection: &mut Connection,
    path: &Path,
    from: SchemaState,
) -> Result<(), OpenError> {
    let lift = |error: rusqlite::Error| while_opening(path, &error);
    match from {
        SchemaState::Empty => {}
        SchemaState::Store(version) if version > MOVING_VERSION => {}
        SchemaState::Store(_) => {
            let before = MIGRATIONS.get(..MOVING).unwrap_or_default();
            apply(connection, from.missing(before), MOVING_VERSION).map_err(lift)?;
            moving::move_rows(connection, path)?;
        }
    }
    let from = match from {
        SchemaState::Empty => SchemaState::Empty,
        SchemaState::Store(version) => SchemaState::Store(version.max(MOVING_VERSION)),
    };
    apply(connection, from.missing(&MIGRATIONS), supported_version()).map_err(lift)
}

/// Applies migrations in one transaction.
fn apply(connection: &mut Connection, missing: &[&str], version: i64) -> rusqlite::Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in missing {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()
}

/// The differences between the schema and the migrations: a trigger that refuses changes, or a unique index,
/// is missing or different. Without it the file can have been changed in ways that it would have refused.
pub(super) fn differences(connection: &Connection) -> Result<Vec<String>> {
    let mut fresh = Connection::open_in_memory().map_err(while_open)?;
    apply(&mut fresh, &MIGRATIONS, supported_version()).map_err(while_open)?;
    let (expected, found) =
        (parts(&fresh).map_err(while_open)?, parts(connection).map_err(while_open)?);
    Ok(schema_differences("the ", "was changed", &expected, &found))
}

/// All parts of a schema, by kind and name: the table and the SQL text.
type Parts = BTreeMap<String, (String, Option<String>)>;

fn parts(connection: &Connection) -> rusqlite::Result<Parts> {
    // SQLite's own statistics tables have this prefix, and are ignored.
    let sql = "SELECT type || ' ' || name, tbl_name, sql FROM sqlite_schema
         WHERE name NOT LIKE 'sqlite_stat%'";
    let mut select = connection.prepare(sql)?;
    let parts = select.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    parts.collect()
}

#[cfg(test)]
mod tests;
