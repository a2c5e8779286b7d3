use rusqlite::ffi;
use stepgate_core::ports::StoreError;

use super::{while_committing, while_open};

fn sqlite(extended_code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(extended_code), None)
}

#[test]
fn a_commit_that_the_disk_failed_is_in_doubt() {
    for code in [
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_IOERR_WRITE,
        ffi::SQLITE_IOERR,
        ffi::SQLITE_CORRUPT,
        ffi::SQLITE_READONLY,
        ffi::SQLITE_ERROR,
    ] {
        let error = while_committing(sqlite(code));
        assert!(matches!(error, StoreError::Broken(_)), "{code}: {error}");
    }
}

#[test]
fn a_commit_that_never_began_can_be_tried_again() {
    for code in [ffi::SQLITE_FULL, ffi::SQLITE_BUSY, ffi::SQLITE_LOCKED] {
        let error = while_committing(sqlite(code));
        assert!(matches!(error, StoreError::Unavailable(_)), "{code}: {error}");
    }
}

#[test]
fn a_row_that_the_database_refuses_is_no_fault_of_the_disk() {
    let error = while_open(sqlite(ffi::SQLITE_CONSTRAINT_TRIGGER));
    assert!(matches!(error, StoreError::State(_)), "{error}");
}
