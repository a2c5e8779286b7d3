//! The versions of the schema, and how a database gets to the newest.
//!
//! As with SQLite, a migration is a numbered file that is never edited once it is released. Missing migrations are
//! applied in one transaction; between two of them rows are moved, in many. Nodes that start at the same time wait
//! for each other on a lock.

use tokio_postgres::Client;

use super::error::{OpenError, while_opening};
use super::moving;
use crate::tables::SchemaState;

/// The tables alone, without the triggers that refuse changes.
pub(super) const TABLES_SQL: &str = include_str!("migrations/V0001__tables.sql");

/// Every migration, in order: the n-th leads to version n.
pub(super) const MIGRATIONS: [&str; 14] = [
    TABLES_SQL,
    include_str!("migrations/V0002__refusals.sql"),
    include_str!("migrations/V0003__nodes.sql"),
    include_str!("migrations/V0004__step_indexes.sql"),
    include_str!("migrations/V0005__marks.sql"),
    include_str!("migrations/V0006__lists.sql"),
    include_str!("migrations/V0007__cursors.sql"),
    include_str!("migrations/V0008__differences.sql"),
    include_str!("migrations/V0009__budgets.sql"),
    include_str!("migrations/V0010__chunks.sql"),
    include_str!("migrations/V0011__chunks_alone.sql"),
    include_str!("migrations/V0012__archives.sql"),
    include_str!("migrations/V0013__erasable.sql"),
    include_str!("migrations/V0014__keys.sql"),
];

/// The version at which rows are moved into chunks, before the next migration.
const MOVING: usize = 10;
const MOVING_VERSION: i64 = 10;

/// "SGAT": the advisory lock for reading and changing a schema.
const LOCK: i64 = 0x5347_4154;

/// Tables that, without a version table, belong to another program.
const TABLES: [&str; 4] = ["tool_runs", "chunks", "journal", "sessions"];

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

/// Migrates a database to the newest version. Other nodes may do the same at the same time: they wait for the lock.
pub(super) async fn migrate(client: &mut Client, shown: &str) -> Result<(), OpenError> {
    if state(client, shown).await? == SchemaState::Store(supported_version()) {
        return Ok(());
    }
    let lift = |error: tokio_postgres::Error| while_opening(shown, &error);
    // A migration of a large store may take long, and all other nodes wait for it, so there are no timeouts.
    let lock =
        format!("SET lock_timeout = 0; SET statement_timeout = 0; SELECT pg_advisory_lock({LOCK})");
    client.batch_execute(&lock).await.map_err(lift)?;
    let migrated = migrate_alone(client, shown).await;
    let unlock =
        format!("SELECT pg_advisory_unlock({LOCK}); RESET lock_timeout; RESET statement_timeout");
    let unlocked = client.batch_execute(&unlock).await.map_err(lift);
    migrated.and(unlocked)
}

async fn migrate_alone(client: &mut Client, shown: &str) -> Result<(), OpenError> {
    let lift = |error: tokio_postgres::Error| while_opening(shown, &error);
    match state(client, shown).await? {
        SchemaState::Empty => {}
        SchemaState::Store(version) if version > MOVING_VERSION => {}
        before @ SchemaState::Store(_) => {
            let transaction = client.transaction().await.map_err(lift)?;
            let missing = before.missing(MIGRATIONS.get(..MOVING).unwrap_or_default());
            apply(transaction.client(), missing, MOVING_VERSION).await.map_err(lift)?;
            transaction.commit().await.map_err(lift)?;
            moving::move_rows(client, shown).await?;
        }
    }
    let transaction = client.transaction().await.map_err(lift)?;
    lay_out(transaction.client(), shown).await?;
    transaction.commit().await.map_err(lift)
}

/// Applies the missing migrations inside the caller's transaction, and returns the state before.
pub(super) async fn lay_out(client: &Client, shown: &str) -> Result<SchemaState, OpenError> {
    let lift = |error: tokio_postgres::Error| while_opening(shown, &error);
    // Another node may be migrating, and that may take long, so there is no lock timeout.
    let lock = format!("SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock({LOCK})");
    client.batch_execute(&lock).await.map_err(lift)?;
    // Another node may have migrated first: the state is read again under the lock.
    let before = state(client, shown).await?;
    apply(client, before.missing(&MIGRATIONS), supported_version()).await.map_err(lift)?;
    Ok(before)
}

/// Applies migrations and notes the version, inside the caller's transaction.
async fn apply(
    client: &Client,
    missing: &[&str],
    version: i64,
) -> Result<(), tokio_postgres::Error> {
    for migration in missing {
        client.batch_execute(migration).await?;
    }
    let note = format!(
        "INSERT INTO stepgate_store (version) VALUES ({version})
         ON CONFLICT (only_row) DO UPDATE SET version = {version}"
    );
    client.batch_execute(&note).await
}
