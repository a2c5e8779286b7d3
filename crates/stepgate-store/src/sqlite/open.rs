//! How connections are opened, and with what settings.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::error::{OpenError, while_opening};
use super::schema;
use crate::locks::LOCK_WAIT_DEFAULT;
use crate::tables::SchemaState;

/// The first SQLite without the defect that can damage a write-ahead log on reset.
const SQLITE_VERSION_MIN: (i32, &str) = (3_051_003, "3.51.3");

/// More than the number of statements, so that each is prepared once.
const STATEMENTS_MAX: usize = 64;

/// SQLite's page size for new files.
const PAGE_BYTES: i64 = 4096;

/// The limits of a [`super::SqliteStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Limit of the write queue; further callers wait for a place in it.
    pub queue_jobs_max: usize,
    /// Most writes in one commit.
    pub batch_jobs_max: usize,
    /// How many connections read at a time.
    pub readers_max: usize,
    /// How long a caller waits for a trace's lock.
    pub lock_wait: Duration,
    /// How long the writer waits for a lock of another process.
    pub busy_wait: Duration,
    /// Length of the write-ahead log, in pages, at which it should start over (`log.rs`).
    pub wal_pages: u32,
    /// Limit of the database's pages; none for no limit but the disk's.
    pub pages_max: Option<u32>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            queue_jobs_max: 4096,
            batch_jobs_max: 256,
            readers_max: 4,
            lock_wait: LOCK_WAIT_DEFAULT,
            busy_wait: Duration::from_secs(5),
            wal_pages: 4_000,
            pages_max: None,
        }
    }
}

/// Opens the only connection that writes, and creates or migrates the database as needed.
pub(super) fn writer(path: &Path, options: &SqliteOptions) -> Result<Connection, OpenError> {
    assert_version()?;
    let lift = |error: rusqlite::Error| while_opening(path, &error);
    // Proposals are confidential, so only the owner may read the file. SQLite gives the files beside it the
    // same mode, and reports itself why a file cannot be created.
    //
    // INVARIANT: this file is closed before SQLite opens it. When a process closes any descriptor of a file, it
    // loses all its POSIX locks on that file, and SQLite's are among them. The next process that looks at the
    // database would then take itself for the last one, and delete the write-ahead log of this one.
    drop(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let mut connection = connect(path, flags, options)?;
    let state = schema::state(&connection, path)?;
    configure_writer(&connection, options).map_err(lift)?;
    schema::migrate(&mut connection, path, state)?;
    refuse_read_only(&connection, path)?;
    Ok(connection)
}

fn configure_writer(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    // Before the journal mode: leaving rollback mode writes the first page.
    if let Some(pages_max) = options.pages_max {
        connection.pragma_update(None, "max_page_count", pages_max)?;
    }
    connection.pragma_update(None, "journal_mode", "wal")?;
    // Any level below FULL loses the last commits at a power failure.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", options.wal_pages)?;
    // If a long read kept the log from starting over, it is truncated to this size afterwards. More than the
    // usual length, so that the log is overwritten where it is: a file that grows costs more to sync.
    let log_bytes_max = 2 * i64::from(options.wal_pages) * PAGE_BYTES;
    connection.pragma_update(None, "journal_size_limit", log_bytes_max)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // A sealed payload is erased with the record of its run, so freed space is overwritten. ON, not FAST: a
    // long payload has pages of its own, and FAST does not overwrite those. Steps free no other page, so
    // nothing else pays for it.
    //
    // Promised: once the erasing commit is in the database, neither a query nor a page of the file contains
    // the payload, and the writer truncates the write-ahead log at once (`writer.rs`), or with the first
    // write after the last reader that needs it. Not promised: while the run is not over, file and log
    // contain the payload, and old blocks in a copy, a snapshot or the medium itself are beyond SQLite.
    connection.pragma_update(None, "secure_delete", "on")?;
    // Small, because SQLite walks the hash table of its cache at every commit. The operating system caches
    // the file too.
    connection.pragma_update(None, "cache_size", -8_192)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(())
}

/// Opens a connection that copies the write-ahead log beside the writer, and does nothing else.
pub(super) fn checkpointer(path: &Path, options: &SqliteOptions) -> Result<Connection, OpenError> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
    let set = connection.pragma_update(None, "synchronous", "full");
    set.map_err(|error| while_opening(path, &error))?;
    Ok(connection)
}

/// Opens a connection that does not trust what the schema of the file calls.
pub(super) fn connect(
    path: &Path,
    flags: OpenFlags,
    options: &SqliteOptions,
) -> Result<Connection, OpenError> {
    let lift = |error: rusqlite::Error| while_opening(path, &error);
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(lift)?;
    connection.busy_timeout(options.busy_wait).map_err(lift)?;
    connection.pragma_update(None, "trusted_schema", false).map_err(lift)?;
    Ok(connection)
}

/// SQLite opens a file without write permission for reading, and reports it only at the first write.
fn refuse_read_only(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let is_read_only =
        connection.is_readonly("main").map_err(|error| while_opening(path, &error))?;
    if is_read_only {
        return Err(OpenError::Permission {
            path: path.to_owned(),
            detail: "the file is read-only".into(),
        });
    }
    Ok(())
}

/// Opens a connection that reads beside the writer, or without one.
pub(super) fn reader(path: &Path, options: &SqliteOptions) -> Result<Connection, OpenError> {
    assert_version()?;
    if !path.exists() {
        return Err(OpenError::Missing { path: path.to_owned() });
    }
    let shared = connect_to_read(path.to_owned(), OpenFlags::empty(), options)
        .and_then(|connection| check_reader(connection, path));
    match shared {
        // A write-ahead log needs an index file beside it, which a reader without write permission cannot
        // create. If there is no log, the database file is complete.
        Err(OpenError::Permission { .. }) if !has_log(path) => {
            let uri = PathBuf::from(format!("file:{}?immutable=1", uri_path(path)));
            let connection = connect_to_read(uri, OpenFlags::SQLITE_OPEN_URI, options)?;
            check_reader(connection, path)
        }
        Ok(_) | Err(_) => shared,
    }
}

fn connect_to_read(
    path: PathBuf,
    further: OpenFlags,
    options: &SqliteOptions,
) -> Result<Connection, OpenError> {
    let lift = |error: rusqlite::Error| while_opening(&path, &error);
    let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY | further, options)?;
    connection.pragma_update(None, "cell_size_check", true).map_err(lift)?;
    // More than a page of `verify` reads: with SQLite's own 2 MB it reads most of the file several times.
    connection.pragma_update(None, "cache_size", -8_192).map_err(lift)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(connection)
}

fn check_reader(connection: Connection, path: &Path) -> Result<Connection, OpenError> {
    let supported = schema::supported_version();
    match schema::state(&connection, path)? {
        SchemaState::Store(found) if found == supported => Ok(connection),
        SchemaState::Store(found) => {
            Err(OpenError::OlderVersion { path: path.to_owned(), found, supported })
        }
        SchemaState::Empty => Err(OpenError::Missing { path: path.to_owned() }),
    }
}

fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// The path, escaped for a URI.
fn uri_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    let escape = |c: char| match c {
        '%' => "%25".to_owned(),
        '?' => "%3f".to_owned(),
        '#' => "%23".to_owned(),
        other => other.to_string(),
    };
    text.chars().map(escape).collect()
}

fn assert_version() -> Result<(), OpenError> {
    let (number, needed) = SQLITE_VERSION_MIN;
    if rusqlite::version_number() < number {
        return Err(OpenError::OldSqlite { found: rusqlite::version(), needed });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
