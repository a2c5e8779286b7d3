//! CREATE_DIRECTORY: creates the directory and its missing parents. An existing directory is a success, so a
//! second dispatch is the same as the first.

use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::io::Errno;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::path::SandboxPath;

use super::crash::CrashPoint;
use super::error::ActionError;
use super::resolve::{Dentry, Root};

pub(super) fn create_directory(root: &Root, path: &SandboxPath) -> Result<(), ActionError> {
    let mut directory = root.open_directory("").map_err(resolving)?;
    let mut names = path.beneath().split('/').peekable();
    while let Some(name) = names.next() {
        let place = Dentry { directory, name };
        directory = match place.open_directory() {
            Ok(next) => {
                // Another call, or one before a crash, may have created it, and it may not be durable yet.
                place.sync()?;
                next
            }
            Err(Errno::NOENT) => make(root, &place)?,
            Err(Errno::NOTDIR) if names.peek().is_none() => {
                place.look()?;
                return Err(ActionError::Failed(ExecutionFailure::AlreadyExists));
            }
            Err(errno) => return Err(resolving(errno)),
        };
    }
    Ok(())
}

fn make(root: &Root, place: &Dentry<'_>) -> Result<OwnedFd, ActionError> {
    match rustix::fs::mkdirat(&place.directory, place.name, Mode::from_raw_mode(0o777)) {
        // Another call created it first.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    root.crash_point(CrashPoint::CreateMade)?;
    place.sync()?;
    root.crash_point(CrashPoint::CreateParentSynced)?;
    place.open_directory().map_err(resolving)
}

fn resolving(errno: Errno) -> ActionError {
    ActionError::resolving(errno, ExecutionFailure::PathNotFound)
}
