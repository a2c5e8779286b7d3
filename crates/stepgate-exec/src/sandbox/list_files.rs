//! LIST_FILES: the names in a directory, in the order of their bytes.
//!
//! A link or a special file is listed as neither file nor directory: its name is taken, but no action can
//! use it. A name that is not UTF-8 is left out, because no proposal can name it. Stepgate's temporary files
//! are left out too.

use std::os::fd::OwnedFd;

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use serde_json::json;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::json::canonical;
use stepgate_core::path::{SandboxPath, TEMPORARY_PREFIX};

use super::error::ActionError;
use super::resolve::{LOOK, Root, kind_of};

pub(super) fn list_files(root: &Root, path: &SandboxPath) -> Result<String, ActionError> {
    let directory = match root.open_directory(path.beneath()) {
        Ok(directory) => directory,
        Err(errno) => return Err(why_not(root, path, errno)),
    };
    let mut entries = entries(directory, root.limits.entries_max)?;
    entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let files: Vec<_> = entries
        .into_iter()
        .map(|(name, kind)| {
            json!({
                "isDirectory": kind == FileType::Directory,
                "isFile": kind == FileType::RegularFile,
                "name": name,
            })
        })
        .collect();
    Ok(canonical::text_of(&json!({ "files": files })))
}

/// If the path is not a directory, a rule may refuse it as well.
fn why_not(root: &Root, path: &SandboxPath, errno: Errno) -> ActionError {
    let stop = ActionError::resolving(errno, ExecutionFailure::PathNotFound);
    if errno != Errno::NOTDIR {
        return stop;
    }
    let place = root.place(path, LOOK, ExecutionFailure::PathNotFound);
    match place.and_then(|place| place.look()) {
        Err(refused @ ActionError::Refused(_)) => refused,
        Ok(_) | Err(ActionError::Failed(_) | ActionError::Unknown(_)) => stop,
    }
}

fn entries(directory: OwnedFd, entries_max: usize) -> Result<Vec<(String, FileType)>, ActionError> {
    let mut entries = Vec::new();
    let mut seen = 0_usize;
    let mut reader = Dir::new(directory)?;
    while let Some(entry) = reader.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." || name.starts_with(TEMPORARY_PREFIX.as_bytes()) {
            continue;
        }
        seen += 1;
        if seen > entries_max {
            return Err(ActionError::Failed(ExecutionFailure::TooManyEntries));
        }
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        match kind_of(&reader, &entry) {
            Ok(kind) => entries.push((name.to_owned(), kind)),
            // Removed since the directory was read.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(entries)
}
