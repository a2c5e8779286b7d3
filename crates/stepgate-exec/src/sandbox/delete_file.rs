//! DELETE_FILE: one regular file.
//!
//! A second dispatch deletes the file that was decided on and no other:
//!
//! | at the path stands | it |
//! |---|---|
//! | the recorded file, untouched or changed since | deletes it: it was not deleted |
//! | nothing, or another file with any inode | is done: the recorded one is gone, and this one was not decided on |
//! | a file that may be the recorded one | leaves it, and a person decides what became of the call |

use rustix::fs::AtFlags;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::path::SandboxPath;

use super::crash::CrashPoint;
use super::error::ActionError;
use super::identity::Likeness;
use super::recorded::{IN_DOUBT, Recorded};
use super::resolve::{CHANGE, Dentry, Root};

/// Deletes the file. `recorded` is the file that was there before a first dispatch that may have acted.
pub(super) fn delete_file(
    root: &Root,
    path: &SandboxPath,
    recorded: Option<Recorded>,
) -> Result<(), ActionError> {
    let place = root.place(path, CHANGE, ExecutionFailure::FileNotFound);
    let Some(recorded) = recorded else { return delete(root, &place?) };
    match (recorded.at(&place)?, place) {
        (Likeness::Same, place) => delete(root, &place?),
        (Likeness::Other, Ok(place)) => place.sync(),
        // The directory is gone too.
        (Likeness::Other, Err(_)) => Ok(()),
        (Likeness::Unsure, _) => Err(ActionError::Unknown(IN_DOUBT.into())),
    }
}

fn delete(root: &Root, place: &Dentry<'_>) -> Result<(), ActionError> {
    place.expect_file()?;
    rustix::fs::unlinkat(&place.directory, place.name, AtFlags::empty())
        .map_err(ActionError::acting_on_file)?;
    root.crash_point(CrashPoint::DeleteUnlinked)?;
    place.sync()?;
    root.crash_point(CrashPoint::DeleteDirectorySynced)
}
