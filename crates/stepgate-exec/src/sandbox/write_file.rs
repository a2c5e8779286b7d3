//! WRITE_FILE: writes a temporary file in the same directory, syncs it, and renames it over the file. A
//! reader sees the old content or the new one, and so does recovery.
//!
//! The new file keeps the permissions of the file that it replaces. A file without write permission is not
//! replaced, although the host would allow it.

use std::fs::File;
use std::io::Write;

use rustix::fs::{AtFlags, Mode, OFlags};
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::path::{SandboxPath, TEMPORARY_PREFIX};
use uuid::Uuid;

use super::crash::CrashPoint;
use super::error::ActionError;
use super::identity::{self, Likeness};
use super::pre_state::Before;
use super::read_file::{content_of, read_up_to};
use super::recorded::{IN_DOUBT, Recorded};
use super::resolve::{CHANGE, Dentry, Root, Seen};

/// What a second dispatch compares with.
pub(super) struct First {
    /// What was there before the first dispatch.
    pub(super) before: Before,
    /// Which file that was, if it was one; none where it was not recorded.
    pub(super) recorded: Option<Recorded>,
    /// Whether the sandbox was restored since: everything after the backup is lost.
    pub(super) was_put_back: bool,
}

/// Writes the file. `first` describes a first dispatch that may have acted.
pub(super) fn write_file(
    root: &Root,
    path: &SandboxPath,
    content: &str,
    first: Option<First>,
) -> Result<(), ActionError> {
    let place = root.place(path, CHANGE, ExecutionFailure::PathNotFound);
    if let Some(first) = first
        && is_done(root, &place, content, &first)?
    {
        return place?.sync();
    }
    let place = place?;
    let mode = match place.look()? {
        Seen::Nothing => None,
        Seen::Directory => return Err(ActionError::Failed(ExecutionFailure::NotAFile)),
        Seen::File(_) => Some(mode_of_writable(&place)?),
    };
    if !u64::try_from(content.len()).is_ok_and(|bytes| bytes <= root.limits.file_bytes_max) {
        return Err(ActionError::Failed(ExecutionFailure::FileTooLarge));
    }
    replace(root, &place, content, mode)?;
    root.crash_point(CrashPoint::WriteRenamed)?;
    place.sync()?;
    root.crash_point(CrashPoint::WriteDirectorySynced)
}

/// Whether the write is done, as far as the present state tells; an error in doubt. False means that the
/// earlier content is still there, so that replacing it loses no other writer's work.
///
/// If the content is neither the earlier one nor this one, another writer wrote it while this call was
/// interrupted. Then this write counts as done, and the other one came after it. Writing again would undo a
/// change that was already reported as done.
fn is_done(
    root: &Root,
    place: &Result<Dentry<'_>, ActionError>,
    content: &str,
    first: &First,
) -> Result<bool, ActionError> {
    let in_doubt = || Err(ActionError::Unknown(IN_DOUBT.into()));
    let seen = match place.as_ref().map(Dentry::look) {
        Ok(Ok(seen)) => seen,
        Err(stop) if stop.is_absence() => Seen::Nothing,
        // The dispatch will report why the write cannot be done.
        Ok(Err(_)) | Err(_) if first.before == Before::Unknown => return Ok(false),
        Ok(Err(_)) | Err(_) => return in_doubt(),
    };
    match (seen, first.before) {
        (Seen::Nothing, Before::Nothing | Before::Unknown) => Ok(false),
        (Seen::Nothing, _) if first.was_put_back => Ok(false),
        // The file existed before. Whether it was removed before the write or after it cannot be determined.
        // Writing could bring back a file whose removal was already reported.
        (Seen::Nothing, Before::Content(_) | Before::Something) => in_doubt(),
        (Seen::Directory, Before::Something | Before::Unknown) => Ok(false),
        (Seen::Directory, Before::Nothing | Before::Content(_)) => in_doubt(),
        (Seen::File(_), before) => {
            let Ok(there) = place else { return in_doubt() };
            if holds(there, content)? {
                return Ok(true);
            }
            let is_as_before = match (before, content_of(root, there)?) {
                (Before::Nothing, _) => return Ok(true),
                (Before::Content(before), Some(now)) if now != before => return Ok(true),
                (Before::Content(_), Some(_)) => true,
                (Before::Content(_) | Before::Something | Before::Unknown, _) => false,
            };
            // A file with the same content may be another file, written after this call's write: only the
            // identity tells. Where no identity was recorded, the content must be enough.
            match &first.recorded {
                Some(recorded) if recorded.at(place)? == Likeness::Same => Ok(false),
                None if is_as_before => Ok(false),
                Some(_) | None => in_doubt(),
            }
        }
    }
}

/// Whether the file has this content already: the first dispatch got as far as the rename. It is synced
/// here, because a crash may have come before the sync.
fn holds(place: &Dentry<'_>, content: &str) -> Result<bool, ActionError> {
    let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
    let read = place
        .open_file(OFlags::RDONLY)
        .and_then(|(file, _)| Ok((file.try_clone()?, read_up_to(file, length)?)));
    match read {
        Ok((file, bytes)) if bytes == content.as_bytes() => {
            rustix::fs::fsync(&file)?;
            Ok(true)
        }
        Ok(_) | Err(ActionError::Failed(_)) => Ok(false),
        Err(stop @ (ActionError::Refused(_) | ActionError::Unknown(_))) => Err(stop),
    }
}

/// The permissions of the file that will be replaced, if it may be written: it is opened for writing to
/// check that, and nothing is written.
fn mode_of_writable(place: &Dentry<'_>) -> Result<Mode, ActionError> {
    let (_, stat) = place.open_file(OFlags::WRONLY)?;
    Ok(Mode::from_raw_mode(stat.stx_mode.into()) & (Mode::RWXU | Mode::RWXG | Mode::RWXO))
}

fn replace(
    root: &Root,
    place: &Dentry<'_>,
    content: &str,
    mode: Option<Mode>,
) -> Result<(), ActionError> {
    let temporary = format!("{TEMPORARY_PREFIX}{}", Uuid::new_v4().simple());
    let replaced = fill(root, place, &temporary, content, mode).and_then(|()| {
        rustix::fs::renameat(&place.directory, &temporary, &place.directory, place.name)
            .map_err(ActionError::from)
    });
    match &replaced {
        // After a crash nothing is cleaned up here; the sweep at recovery does that.
        Ok(()) | Err(ActionError::Unknown(_)) => {}
        Err(ActionError::Failed(_) | ActionError::Refused(_)) => {
            // If the removal fails, the next sweep removes the file; it is never listed.
            let _ = rustix::fs::unlinkat(&place.directory, &temporary, AtFlags::empty());
        }
    }
    replaced
}

fn fill(
    root: &Root,
    place: &Dentry<'_>,
    temporary: &str,
    content: &str,
    mode: Option<Mode>,
) -> Result<(), ActionError> {
    let mut file = File::from(rustix::fs::openat(
        &place.directory,
        temporary,
        OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o666),
    )?);
    root.crash_point(CrashPoint::WriteTemporaryCreated)?;
    if let Some(mode) = mode {
        rustix::fs::fchmod(&file, mode)?;
    }
    file.write_all(content.as_bytes())?;
    // Where the file system refuses, the next change of this file waits for the clock.
    let _ = identity::stamp(&file);
    root.crash_point(CrashPoint::WriteTemporaryFilled)?;
    rustix::fs::fsync(&file)?;
    root.crash_point(CrashPoint::WriteTemporarySynced)
}
