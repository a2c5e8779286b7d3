//! Archives: runs that are over leave the store for a file that verifies alone.
//!
//! What the store keeps of such a run is small: its links, so that no chain gets a gap, and the binding of its key, so
//! that the key never acts again. An event of the system session names the file and has the digests of both.

pub mod file;
pub mod select;

pub use crate::archived::{
    ArchivedCharge, ArchivedEvents, ArchivedLink, ArchivedRun, FILE_END, NamedArchive,
    RunsArchived, file_name,
};
