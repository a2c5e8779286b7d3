//! How SQLite's errors are mapped for callers of the store.

use std::path::{Path, PathBuf};

use rusqlite::ffi;
use stepgate_core::journal::StateCode;
use stepgate_core::ports::StoreError;

use crate::plan::refusal;

/// Why a store could not be opened. Each message gives the remedy.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum OpenError {
    /// The file is not a SQLite database, or its first page is damaged.
    #[error("`{}` is not a SQLite database; name another file, or restore this one from a backup", .path.display())]
    NotADatabase { path: PathBuf },
    /// The file is a database with inconsistent pages.
    #[error("`{}` is damaged ({detail}); keep the file, restore a backup and verify it", .path.display())]
    Damaged { path: PathBuf, detail: String },
    /// The file was written by a newer Stepgate.
    #[error("`{}` has schema version {found}, and this Stepgate knows {supported}; use the newer Stepgate that wrote it", .path.display())]
    NewerVersion { path: PathBuf, found: i64, supported: i64 },
    /// The file needs a migration, but it was opened for reading only.
    #[error("`{}` has schema version {found}, older than {supported}; run a command that writes once, and it is brought up to date", .path.display())]
    OlderVersion { path: PathBuf, found: i64, supported: i64 },
    /// The file is another program's database.
    #[error("`{}` is the database of another program (application id {found}); name another file", .path.display())]
    Foreign { path: PathBuf, found: i64 },
    /// There is no store to read.
    #[error("there is no store at `{}`; name the data directory that holds one, or let `serve` make it", .path.display())]
    Missing { path: PathBuf },
    /// The file or its directory cannot be written.
    #[error("`{}` cannot be written ({detail}); check the owner, the permissions and whether the file system is read-only", .path.display())]
    Permission { path: PathBuf, detail: String },
    /// The disk is full.
    #[error("the disk that holds `{}` is full; free some space and start again", .path.display())]
    DiskFull { path: PathBuf },
    /// Another process holds it.
    #[error("`{}` is locked by another process; stop that process, or ask it instead", .path.display())]
    Busy { path: PathBuf },
    /// The linked SQLite can damage a write-ahead log.
    #[error("SQLite {found} is too old; {needed} or newer is needed")]
    OldSqlite { found: &'static str, needed: &'static str },
    /// Anything else that SQLite or the system reports.
    #[error("`{}` cannot be opened: {detail}", .path.display())]
    Io { path: PathBuf, detail: String },
}

/// The meaning of an error while a store is opened.
pub(super) fn while_opening(path: &Path, error: &rusqlite::Error) -> OpenError {
    let (path, detail) = (path.to_owned(), error.to_string());
    match primary_code(error) {
        Some(ffi::SQLITE_NOTADB) => OpenError::NotADatabase { path },
        Some(ffi::SQLITE_CORRUPT) => OpenError::Damaged { path, detail },
        Some(ffi::SQLITE_FULL) => OpenError::DiskFull { path },
        Some(ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED) => OpenError::Busy { path },
        Some(ffi::SQLITE_READONLY | ffi::SQLITE_PERM | ffi::SQLITE_CANTOPEN) => {
            OpenError::Permission { path, detail }
        }
        Some(_) | None => OpenError::Io { path, detail },
    }
}

/// The meaning of an error for a caller of the store. Nothing was written.
pub(super) fn while_open(error: rusqlite::Error) -> StoreError {
    match primary_code(&error) {
        Some(ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB) => StoreError::Broken(format!(
            "the database file is damaged ({error}); stop, keep the file, restore a backup and \
             verify it"
        )),
        Some(ffi::SQLITE_IOERR) => StoreError::Broken(format!(
            "the disk failed ({error}); check the disk, then restart to recover"
        )),
        Some(ffi::SQLITE_FULL) => {
            StoreError::Unavailable("disk full; free some space and try again".into())
        }
        Some(ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED) => {
            StoreError::Unavailable("the database is locked by another process".into())
        }
        Some(ffi::SQLITE_CONSTRAINT) => {
            refusal(StateCode::InvalidTransition, format!("the database refused a row: {error}"))
        }
        Some(_) | None => StoreError::Unavailable(error.to_string()),
    }
}

/// The meaning of an error of COMMIT. Unless SQLite has certainly not begun to make the batch durable, the
/// batch is in doubt, and only a restart can tell.
pub(super) fn while_committing(error: rusqlite::Error) -> StoreError {
    match primary_code(&error) {
        Some(ffi::SQLITE_FULL | ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED) => while_open(error),
        Some(_) | None => StoreError::Broken(format!(
            "the last commit is in doubt ({error}); check the disk, then restart to recover"
        )),
    }
}

/// The error's primary result code, where SQLite gave one.
fn primary_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code & 0xff)
}

#[cfg(test)]
mod tests;
