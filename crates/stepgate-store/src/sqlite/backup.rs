//! Copies a store into another file while it is in use, and fills or reads files row by row.
//!
//! The copy reads beside the writer, in one transaction, so it shows one snapshot and blocks no writer.
//! Until it is done the write-ahead log cannot be reset: it grows by what is written meanwhile.

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, params_from_iter};

use super::SqliteStore;
use super::cells::into_values;
use super::error::{OpenError, while_opening};
use super::open::{self, SqliteOptions};
use super::schema;
use crate::backup::{BackupError, RowCounts};
use crate::tables::{Cell, SchemaState, TABLES, Table};

impl From<OpenError> for BackupError {
    fn from(error: OpenError) -> Self {
        Self::Open(Box::new(error))
    }
}

/// Pages between two progress reports.
const PAGES_A_STEP: i32 = 256;

/// Limit of the rows, and approximate limit of the bytes, that are read at a time.
const PAGE_ROWS_MAX: usize = 512;
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

impl SqliteStore {
    /// Copies a store, which another process may hold, into a new file, durably. `progress` gets the pages
    /// done and the total.
    pub fn back_up(
        path: &Path,
        to: &Path,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<RowCounts, BackupError> {
        let source = open::reader(path, &SqliteOptions::default())?;
        // The snapshot is taken by the first read. Without this transaction the copy would start again
        // whenever another process writes between two of its steps.
        source
            .execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;")
            .map_err(|error| while_opening(path, &error))?;
        copy_pages(&source, to, &mut progress).map_err(|error| while_opening(to, &error))?;
        drop(source);
        let copy = open::connect(to, OpenFlags::SQLITE_OPEN_READ_WRITE, &SqliteOptions::default())?;
        Ok(close(copy, to)?)
    }

    /// Migrates the file of a backup to the version that this build reads.
    pub fn bring_up_to_date(path: &Path) -> Result<(), OpenError> {
        let options = SqliteOptions::default();
        let connection = open::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, &options)?;
        if schema::state(&connection, path)? == SchemaState::Store(schema::supported_version()) {
            return Ok(());
        }
        drop(connection);
        let updated = open::writer(path, &options)?;
        close(updated, path).map(drop)
    }

    /// The version that this build reads and writes.
    pub fn schema_version() -> i64 {
        schema::supported_version()
    }
}

fn copy_pages(
    source: &Connection,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> rusqlite::Result<()> {
    let mut copy = Connection::open_with_flags(to, CREATE)?;
    let backup = Backup::new(source, &mut copy)?;
    loop {
        match backup.step(PAGES_A_STEP)? {
            StepResult::Done => return Ok(()),
            StepResult::More => {
                let rusqlite::backup::Progress { remaining, pagecount } = backup.progress();
                let pages = |count: i32| u64::try_from(count).unwrap_or(0);
                progress(pages(pagecount - remaining), pages(pagecount));
            }
            // No other process uses the copy, and a reader keeps its snapshot; a busy database is retried,
            // as by any reader.
            StepResult::Busy | StepResult::Locked => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            // The enum is non-exhaustive.
            _ => {}
        }
    }
}

const CREATE: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_CREATE)
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Counts the rows and leaves a single file without a write-ahead log, durably.
fn close(connection: Connection, path: &Path) -> Result<RowCounts, OpenError> {
    let lift = |error: rusqlite::Error| while_opening(path, &error);
    connection.pragma_update(None, "journal_mode", "delete").map_err(lift)?;
    let counts = counts(&connection).map_err(lift)?;
    connection.close().map_err(|(_, error)| lift(error))?;
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| OpenError::Io { path: path.to_owned(), detail: error.to_string() })?;
    Ok(counts)
}

fn counts(connection: &Connection) -> rusqlite::Result<RowCounts> {
    let mut counts = RowCounts::new();
    for table in &TABLES {
        let sql = format!("SELECT count(*) FROM {}", table.name);
        let count: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
        counts.insert(table.name.to_owned(), u64::try_from(count).unwrap_or(0));
    }
    Ok(counts)
}

/// A new file that is filled row by row.
pub(crate) struct Filling {
    connection: Connection,
    path: PathBuf,
}

impl Filling {
    /// Creates an empty store. Nothing is durable, and the file is not usable, before [`Filling::end`].
    pub(crate) fn begin(path: &Path) -> Result<Self, OpenError> {
        let lift = |error: rusqlite::Error| while_opening(path, &error);
        let mut connection = open::connect(path, CREATE, &SqliteOptions::default())?;
        connection.pragma_update(None, "journal_mode", "off").map_err(lift)?;
        connection.pragma_update(None, "synchronous", "off").map_err(lift)?;
        schema::migrate(&mut connection, path, SchemaState::Empty)?;
        connection.execute_batch("BEGIN").map_err(lift)?;
        Ok(Self { connection, path: path.to_owned() })
    }

    /// Adds a row unchanged.
    pub(crate) fn add(&mut self, table: &Table, row: &[Cell<'_>]) -> Result<(), OpenError> {
        let sql = format!("INSERT {}", into_values(table, table.columns));
        let added = self
            .connection
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.execute(params_from_iter(row)));
        added.map(drop).map_err(|error| while_opening(&self.path, &error))
    }

    /// Makes it durable.
    pub(crate) fn end(self) -> Result<RowCounts, OpenError> {
        let committed = self.connection.execute_batch("COMMIT");
        committed.map_err(|error| while_opening(&self.path, &error))?;
        close(self.connection, &self.path)
    }
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Nothing => ValueRef::Null,
            Self::Number(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// A file that is read row by row.
pub(crate) struct Emptying {
    connection: Connection,
    path: PathBuf,
}

impl Emptying {
    pub(crate) fn begin(path: &Path) -> Result<Self, OpenError> {
        let connection = open::reader(path, &SqliteOptions::default())?;
        Ok(Self { connection, path: path.to_owned() })
    }

    /// The total number of rows.
    pub(crate) fn rows(&self) -> Result<u64, OpenError> {
        let counts = counts(&self.connection).map_err(|error| while_opening(&self.path, &error))?;
        Ok(counts.values().sum())
    }

    /// Rows after this position, in order. An empty page is the end.
    pub(crate) fn page(
        &self,
        table: &Table,
        after: i64,
    ) -> Result<Vec<Vec<Cell<'static>>>, BackupError> {
        let lift = |error: rusqlite::Error| while_opening(&self.path, &error);
        let sql = format!(
            "SELECT {} FROM {} WHERE position > ? ORDER BY position LIMIT {PAGE_ROWS_MAX}",
            table.columns, table.name
        );
        let mut statement = self.connection.prepare_cached(&sql).map_err(lift)?;
        let mut rows = statement.query([after]).map_err(lift)?;
        let (mut page, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next().map_err(lift)? {
            let cells = cells(table, row)?;
            bytes += cells.iter().map(Cell::bytes).sum::<usize>();
            page.push(cells);
            if bytes >= PAGE_BYTES_MAX {
                break;
            }
        }
        Ok(page)
    }
}

pub(super) fn cells(
    table: &Table,
    row: &rusqlite::Row<'_>,
) -> Result<Vec<Cell<'static>>, BackupError> {
    let cell = |(index, column): (usize, &'static str)| {
        let wrong = |why: String| BackupError::Row { table: table.name, column, why };
        match row.get_ref(index).map_err(|error| wrong(error.to_string()))? {
            ValueRef::Null => Ok(Cell::Nothing),
            ValueRef::Integer(number) => Ok(Cell::Number(number)),
            ValueRef::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => Ok(Cell::Text(text.to_owned().into())),
                Err(error) => Err(wrong(error.to_string())),
            },
            ValueRef::Blob(bytes) => Ok(Cell::Bytes(bytes.to_owned().into())),
            ValueRef::Real(_) => Err(wrong("a fraction".into())),
        }
    };
    table.columns.split(", ").enumerate().map(cell).collect()
}
