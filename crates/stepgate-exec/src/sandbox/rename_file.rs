//! RENAME_FILE: moves one regular file to another path. Nothing is ever replaced.
//!
//! A second dispatch renames the file that was decided on and no other:
//!
//! | the recorded file stands at | it |
//! |---|---|
//! | the source | was not renamed: renames it, or fails as the first would |
//! | the destination | is done |
//! | neither, or it cannot be determined | does nothing, and a person decides what became of the call |
//!
//! In the last case another program moved or removed the file: either before the call could rename it, which
//! is a failure, or after the call had renamed it, which is a success. Both leave the same names behind, so
//! recovery must not choose.

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::path::SandboxPath;

use super::crash::CrashPoint;
use super::error::ActionError;
use super::identity::Likeness;
use super::recorded::{IN_DOUBT, Recorded};
use super::resolve::{CHANGE, Dentry, Root, Seen};

/// Renames the file. `recorded` is the source file before a first dispatch that may have acted.
pub(super) fn rename_file(
    root: &Root,
    source: &SandboxPath,
    destination: &SandboxPath,
    recorded: Option<Recorded>,
) -> Result<(), ActionError> {
    let from = root.place(source, CHANGE, ExecutionFailure::FileNotFound);
    let to = root.place(destination, CHANGE, ExecutionFailure::PathNotFound);
    let Some(recorded) = recorded else { return move_file(root, from, to) };
    if recorded == Recorded::Gone {
        // The restored sandbox never had the file, so no rename happened there. Its fate in the original
        // sandbox is lost, like everything after the backup.
        return Err(ActionError::Failed(ExecutionFailure::FileNotFound));
    }
    let at_source = recorded.at(&from)?;
    if at_source == Likeness::Same {
        return move_file(root, from, to);
    }
    let is_done = match recorded.at(&to)? {
        // Every file that actions touch has one name, so it no longer has the other one.
        Likeness::Same => true,
        // On a file system without birth times no more can be proven about a renamed file.
        Likeness::Unsure => at_source == Likeness::Other && recorded.seems_to_be_at(&to),
        Likeness::Other => false,
    };
    if !is_done {
        return Err(ActionError::Unknown(IN_DOUBT.into()));
    }
    to?.sync()?;
    // If the source's directory is gone, there is nothing left to sync.
    from.map_or(Ok(()), |from| from.sync())
}

fn move_file(
    root: &Root,
    from: Result<Dentry<'_>, ActionError>,
    to: Result<Dentry<'_>, ActionError>,
) -> Result<(), ActionError> {
    let from = from?;
    from.expect_file()?;
    let to = to?;
    match to.look()? {
        Seen::Nothing => {}
        Seen::File(_) | Seen::Directory => {
            return Err(ActionError::Failed(ExecutionFailure::AlreadyExists));
        }
    }
    rename(&from, &to, rename_unless_taken)?;
    root.crash_point(CrashPoint::RenameRenamed)?;
    // The destination first: a power failure between the two then leaves two names, never none.
    to.sync()?;
    root.crash_point(CrashPoint::RenameDestinationSynced)?;
    from.sync()?;
    root.crash_point(CrashPoint::RenameSourceSynced)
}

/// Renames with the given system call, or in two steps where the file system does not support it.
fn rename(
    from: &Dentry<'_>,
    to: &Dentry<'_>,
    unless_taken: impl FnOnce(&Dentry<'_>, &Dentry<'_>) -> Result<(), Errno>,
) -> Result<(), ActionError> {
    match unless_taken(from, to) {
        // Some file systems do not support the flag, such as NFS and many in user space.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => rename_onto_own_file(from, to),
        renamed => renamed.map_err(ActionError::acting_on_file),
    }
}

fn rename_unless_taken(from: &Dentry<'_>, to: &Dentry<'_>) -> Result<(), Errno> {
    let (old, new) = (&from.directory, &to.directory);
    rustix::fs::renameat_with(old, from.name, new, to.name, RenameFlags::NOREPLACE)
}

/// The same in two steps. The first creates an empty file, only if the destination is free; the second
/// replaces that file. A crash between the two leaves the empty file: then the source was not renamed, and
/// the destination exists.
fn rename_onto_own_file(from: &Dentry<'_>, to: &Dentry<'_>) -> Result<(), ActionError> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(rustix::fs::openat(&to.directory, to.name, flags, Mode::RUSR | Mode::WUSR)?);
    let renamed = rustix::fs::renameat(&from.directory, from.name, &to.directory, to.name);
    if renamed.is_err() {
        // If the removal fails, an empty file stays at the destination; no content is lost.
        let _ = rustix::fs::unlinkat(&to.directory, to.name, AtFlags::empty());
    }
    renamed.map_err(ActionError::acting_on_file)
}

#[cfg(test)]
mod tests;
