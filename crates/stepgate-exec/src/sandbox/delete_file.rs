//! DELETE_FILE: one regular file.

use rustix::fs::AtFlags;
use rustix::io::Errno;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::path::SandboxPath;

use super::crash::CrashPoint;
use super::resolve::{Identity, Root, Seen};
use super::stop::Stop;

/// Deletes it. `recorded` is the file that stood there before a first dispatch that may have acted:
/// if it is gone, that is done. A new file under the same name was not part of the decision and
/// stays.
pub(super) fn delete_file(
    root: &Root,
    path: &SandboxPath,
    recorded: Option<Identity>,
) -> Result<(), Stop> {
    let place = match root.place_to_change(path, ExecutionFailure::FileNotFound) {
        Ok(place) => place,
        Err(stop) if recorded.is_some() && stop.is_absence() => return Ok(()),
        Err(stop) => return Err(stop),
    };
    let seen = place.look()?;
    if recorded.is_some_and(|recorded| seen != Seen::File(recorded)) {
        return place.sync();
    }
    match seen {
        Seen::Nothing => return Err(Stop::Failed(ExecutionFailure::FileNotFound)),
        Seen::Directory => return Err(Stop::Failed(ExecutionFailure::NotAFile)),
        Seen::File(_) => {}
    }
    rustix::fs::unlinkat(&place.directory, place.name, AtFlags::empty()).map_err(|errno| {
        match errno {
            Errno::NOENT => Stop::Failed(ExecutionFailure::FileNotFound),
            other => Stop::from(other),
        }
    })?;
    root.crash_point(CrashPoint::DeleteUnlinked)?;
    place.sync()?;
    root.crash_point(CrashPoint::DeleteDirectorySynced)
}
