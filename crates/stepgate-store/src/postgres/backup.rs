//! Copies a store into a SQLite file while nodes use it, and fills a database from such a file.
//!
//! Each is one transaction. A backup reads one snapshot and blocks no node. A restored database becomes
//! visible as a whole, and verified, when the transaction commits: before that no other process sees any of
//! it, and nodes that start meanwhile wait.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use deadpool_postgres::Object;
use futures_util::TryStreamExt;
use stepgate_core::ports::Store;
use tokio::sync::Mutex;
use tokio_postgres::Row;

use super::PostgresStore;
use super::cells::plain;
use super::columns::{arrays, by_column};
use super::error::{OpenError, while_opening};
use super::open::{self, Address, Lines, PostgresOptions};
use super::readers::Source;
use super::schema;
use crate::backup::{BackupError, RowCounts};
use crate::sqlite::backup::{Emptying, Filling};
use crate::tables::{Cell, Column, Kind, SchemaState, TABLES, Table};

impl From<OpenError> for BackupError {
    fn from(error: OpenError) -> Self {
        Self::Open(Box::new(error))
    }
}

/// An unfinished run that does not wait for a person gets an owner that no node ever was. So it looks like a
/// run of a dead node, and the first node that recovers takes it over.
const OWNER: &str = "CASE WHEN status IN ('started', 'approved') THEN 0 END";

impl PostgresStore {
    /// Copies a store, which nodes may use, into a new SQLite file, durably. `progress` gets the number of
    /// rows done.
    pub async fn back_up(
        url: &str,
        options: PostgresOptions,
        to: &Path,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<RowCounts, BackupError> {
        let address = Address::of(url, &options)?;
        let pool = address.pool(&options);
        let connection = open::first(&pool, &address.shown, true).await?;
        let lift = |error: tokio_postgres::Error| while_opening(&address.shown, &error);
        let begin = format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {PATIENT}");
        connection.batch_execute(&begin).await.map_err(lift)?;
        let mut filling = Filling::begin(to)?;
        let mut done = 0;
        for table in &TABLES {
            let sql = table.select() + " ORDER BY position";
            let no_values: [&str; 0] = [];
            let rows = connection.query_raw(&sql, no_values).await.map_err(lift)?;
            let mut rows = pin!(rows);
            loop {
                let next = tokio::time::timeout(options.answer_wait, rows.try_next()).await;
                let next = next.map_err(|_| BackupError::Silent {
                    shown: address.shown.clone(),
                    seconds: options.answer_wait.as_secs(),
                })?;
                let Some(row) = next.map_err(lift)? else { break };
                filling.add(table, &cells(table, &row)?)?;
                done += 1;
                progress(done);
            }
        }
        connection.batch_execute("COMMIT").await.map_err(lift)?;
        Ok(filling.end()?)
    }

    /// Fills an empty database from the file of a backup. No other process sees any of it before it is
    /// finished; if it is dropped, it leaves nothing. `progress` gets the rows done and the total.
    pub async fn restore(
        url: &str,
        options: PostgresOptions,
        from: &Path,
        mut progress: impl FnMut(u64, u64) + Send,
    ) -> Result<Restoring, BackupError> {
        let emptying = Emptying::begin(from)?;
        let all = emptying.rows()?;
        let address = Address::of(url, &options)?;
        let pool = address.pool(&options);
        let connection = open::connected(&pool, &address.shown, false).await?;
        let lines = Lines::new(&address, &options);
        let lift = |error: tokio_postgres::Error| while_opening(&address.shown, &error);
        connection.batch_execute(&format!("BEGIN; {PATIENT}")).await.map_err(lift)?;
        match schema::lay_out(&connection, &address.shown).await? {
            SchemaState::Empty => {}
            SchemaState::Store(_) => return Err(BackupError::NotEmpty { shown: address.shown }),
        }
        let mut done = 0;
        for table in &TABLES {
            let sql = insert(table);
            let mut after = i64::MIN;
            loop {
                let page = emptying.page(table, after)?;
                let Some([Cell::Number(last), ..]) = page.last().map(Vec::as_slice) else { break };
                after = *last;
                let values = by_column(&table.typed(table.columns), page);
                let values: Vec<_> = values.iter().map(|value| value.as_ref() as _).collect();
                let statement = connection.prepare_cached(&sql).await.map_err(lift)?;
                done += connection.execute(&statement, &values).await.map_err(lift)?;
                progress(done, all);
            }
        }
        connection.batch_execute(&counters()).await.map_err(lift)?;
        let connection = Arc::new(Mutex::new(connection));
        let source = Source::OneMoment(Arc::clone(&connection));
        let store = Self::over(source, lines, None, &options);
        Ok(Restoring { store, connection, shown: address.shown })
    }
}

/// A filled database that no other process sees yet.
#[derive(Debug)]
pub struct Restoring {
    store: PostgresStore,
    connection: Arc<Mutex<Object>>,
    shown: String,
}

impl Restoring {
    /// Its content, for verification.
    pub fn store(&self) -> &dyn Store {
        &self.store
    }

    /// Commits it, so that nodes can open it.
    pub async fn finish(self) -> Result<(), BackupError> {
        let committed = self.connection.lock().await.batch_execute("COMMIT").await;
        Ok(committed.map_err(|error| while_opening(&self.shown, &error))?)
    }
}

/// No timeouts: a copy may take long.
const PATIENT: &str = "SET LOCAL idle_in_transaction_session_timeout = 0;
                       SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0";

/// A row in SQLite's form.
pub(super) fn cells(table: &Table, row: &Row) -> Result<Vec<Cell<'static>>, BackupError> {
    let cell = |(index, (column, kind)): (usize, Column<'static>)| {
        let wrong = |why: String| BackupError::Row { table: table.name, column, why };
        let told = |error: tokio_postgres::Error| wrong(error.to_string());
        let text = || row.try_get::<_, Option<&str>>(index).map_err(told);
        let cell = match kind {
            Kind::Number => row.try_get::<_, Option<i64>>(index).map_err(told)?.map(Cell::Number),
            Kind::Text => text()?.map(|text| Cell::Text(text.to_owned().into())),
            Kind::FreeText => {
                let text = text()?.map(plain).transpose().map_err(wrong)?;
                text.map(|text| Cell::Text(text.into()))
            }
            Kind::Bytes => {
                let bytes = row.try_get::<_, Option<Vec<u8>>>(index).map_err(told)?;
                bytes.map(|bytes| Cell::Bytes(bytes.into()))
            }
        };
        Ok(cell.unwrap_or(Cell::Nothing))
    };
    table.typed(table.columns).into_iter().enumerate().map(cell).collect()
}

/// Adds rows, given as one array for each column.
fn insert(table: &Table) -> String {
    let (further, values) = match table.name {
        "tool_runs" => (", owner, epoch", format!(", {OWNER}, 0")),
        _ => ("", String::new()),
    };
    let (names, arrays) = (table.columns, arrays(&table.typed(table.columns)));
    format!(
        "INSERT INTO {} ({names}{further}) OVERRIDING SYSTEM VALUE
         SELECT {names}{values} FROM unnest({arrays}) AS carried ({names})",
        table.name
    )
}

/// Sets the counters. Positions continue after the last one. Incarnations start at the present Unix time in
/// seconds: no node of an earlier restore can have had these numbers, because fewer than one node a second
/// registered.
fn counters() -> String {
    let mut sql = String::from(
        "UPDATE event_counter SET last = (SELECT coalesce(max(position), 0) FROM events);
         SELECT setval(pg_get_serial_sequence('nodes', 'incarnation'),
                       extract(epoch FROM clock_timestamp())::bigint);",
    );
    for Table { name, .. } in TABLES.iter().filter(|table| table.name != "events") {
        sql.push_str(&format!(
            "SELECT setval(pg_get_serial_sequence('{name}', 'position'), max(position)) FROM {name};"
        ));
    }
    let names: Vec<_> = TABLES.iter().map(|table| table.name).collect();
    format!("{sql} ANALYZE {}", names.join(", "))
}
