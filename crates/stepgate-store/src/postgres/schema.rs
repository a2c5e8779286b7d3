//! The versions of the schema, and how a database gets to the newest.
//!
//! As with SQLite, a migration is a numbered file that is never edited once it is released, and all missing
//! migrations are applied in one transaction. Nodes that start at the same time wait for each other on a
//! lock that ends with that transaction.

use tokio_postgres::Client;

use super::error::{OpenError, while_opening};
use crate::tables::SchemaState;

/// The tables alone, without the triggers that refuse changes.
pub(super) const TABLES_SQL: &str = include_str!("migrations/V0001__tables.sql");

/// Every migration, in order: the n-th leads to version n.
pub(super) const MIGRATIONS: [&str; 7] = [
    TABLES_SQL,
    include_str!("migrations/V0002__refusals.sql"),
    include_str!("migrations/V0003__nodes.sql"),
    include_str!("migrations/V0004__step_indexes.sql"),
    include_str!("migrations/V0005__marks.sql"),
    include_str!("migrations/V0006__lists.sql"),
    include_str!("migrations/V0007__cursors.sql"),
];

/// "SGAT": the advisory lock for reading and changing a schema.
const LOCK: i64 = 0x5347_4154;

/// Tables that, without a version table, belong to another program.
const TABLES: [&str; 3] = ["tool_runs", "journal", "sessions"];

/// The version that this build reads and writes.
pub(super) fn supported_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Reads without changing anything: another program's tables stay as they are.
pub(super) async fn state(client: &Client, shown: &str) -> Result<SchemaState, OpenError> {
    let lift = |error: tokio_postgres::Error| while_opening(shown, &error);
    let sql = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()";
    let tables: Vec<String> =
        client.query_typed(sql, &[]).await.map_err(lift)?.iter().map(|row| row.get(0)).collect();
    if !tables.iter().any(|table| table == "stepgate_store") {
        return match tables.into_iter().find(|table| TABLES.contains(&table.as_str())) {
            Some(table) => Err(OpenError::Foreign { shown: shown.to_owned(), table }),
            None => Ok(SchemaState::Empty),
        };
    }
    let sql = "SELECT max(version) FROM stepgate_store";
    let version = client.query_typed_one(sql, &[]).await.map_err(lift)?;
    let version: Option<i64> = version.get(0);
    match version {
        None => Ok(SchemaState::Empty),
        Some(found) if found > supported_version() => {
            let supported = supported_version();
            Err(OpenError::NewerVersion { shown: shown.to_owned(), found, supported })
        }
        Some(version) => Ok(SchemaState::Store(version)),
    }
}

/// Migrates a database to the newest version. Other nodes may do the same at the same time.
pub(super) async fn migrate(client: &mut Client, shown: &str) -> Result<(), OpenError> {
    if state(client, shown).await? == SchemaState::Store(supported_version()) {
        return Ok(());
    }
    let lift = |error: tokio_postgres::Error| while_opening(shown, &error);
    let transaction = client.transaction().await.map_err(lift)?;
    lay_out(transaction.client(), shown).await?;
    transaction.commit().await.map_err(lift)
}

/// Applies the missing migrations inside the caller's transaction, and returns the state before.
pub(super) async fn lay_out(client: &Client, shown: &str) -> Result<SchemaState, OpenError> {
    let lift = |error: tokio_postgres::Error| while_opening(shown, &error);
    // A migration of a large store may take long, and all other nodes wait for it, so there is no lock
    // timeout.
    let lock = format!("SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock({LOCK})");
    client.batch_execute(&lock).await.map_err(lift)?;
    // Another node may have migrated first: the state is read again under the lock.
    let before = state(client, shown).await?;
    for migration in before.missing(&MIGRATIONS) {
        client.batch_execute(migration).await.map_err(lift)?;
    }
    let version = supported_version();
    let note = format!(
        "INSERT INTO stepgate_store (version) VALUES ({version})
         ON CONFLICT (only_row) DO UPDATE SET version = {version}"
    );
    client.batch_execute(&note).await.map_err(lift)?;
    Ok(before)
}
