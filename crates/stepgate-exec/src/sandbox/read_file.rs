//! READ_FILE: the whole file as text.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use serde_json::json;
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::json::canonical;
use stepgate_core::path::SandboxPath;

use super::error::ActionError;
use super::resolve::{Dentry, LOOK, Root};

pub(super) fn read_file(root: &Root, path: &SandboxPath) -> Result<String, ActionError> {
    let place = root.place(path, LOOK, ExecutionFailure::FileNotFound)?;
    let (file, _) = place.open_file(OFlags::RDONLY)?;
    let bytes = read_up_to(file, root.limits.file_bytes_max)?;
    let content =
        String::from_utf8(bytes).map_err(|_| ActionError::Failed(ExecutionFailure::InvalidUtf8))?;
    Ok(canonical::text_of(&json!({ "content": content })))
}

/// Up to this size a file is read on the caller's thread. Switching to another thread and back takes longer
/// than the read, and the caller is not blocked longer than by an fsync.
const SMALL_BYTES_MAX: u64 = 64 * 1024;

/// Whether reading is short: the file is small, or does not exist.
pub(super) fn is_short(root: &Root, path: &SandboxPath) -> bool {
    root.place(path, LOOK, ExecutionFailure::FileNotFound)
        .and_then(|place| place.stat())
        .is_ok_and(|stat| stat.is_none_or(|stat| stat.stx_size <= SMALL_BYTES_MAX))
}

/// The digest of the file's content. None for a file that cannot be read or is over the size limit: then its
/// identity alone tells whether it was replaced.
pub(super) fn content_of(root: &Root, place: &Dentry<'_>) -> Result<Option<Digest>, ActionError> {
    let read = place
        .open_file(OFlags::RDONLY)
        .and_then(|(file, _)| read_up_to(file, root.limits.file_bytes_max));
    match read {
        Ok(bytes) => Ok(Some(Digest::of_bytes(&bytes))),
        Err(ActionError::Failed(_)) => Ok(None),
        Err(stop @ (ActionError::Refused(_) | ActionError::Unknown(_))) => Err(stop),
    }
}

/// The whole file, if it has at most this many bytes. The size that the host reports is not enough: the file
/// may grow meanwhile.
pub(super) fn read_up_to(file: OwnedFd, bytes_max: u64) -> Result<Vec<u8>, ActionError> {
    let too_large = ActionError::Failed(ExecutionFailure::FileTooLarge);
    let file = File::from(file);
    let length = file.metadata()?.len();
    if length > bytes_max {
        return Err(too_large);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0).saturating_add(1));
    let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(read).is_ok_and(|read| read <= bytes_max) { Ok(bytes) } else { Err(too_large) }
}
