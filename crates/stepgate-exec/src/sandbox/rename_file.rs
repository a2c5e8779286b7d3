//! RENAME_FILE: one regular file gets another path. Nothing is ever replaced.

use rustix::fs::RenameFlags;
use rustix::io::Errno;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::path::SandboxPath;

use super::crash::CrashPoint;
use super::resolve::{Identity, Place, Root, Seen};
use super::stop::Stop;

/// Renames it. `recorded` is the source file before a first dispatch that may have acted: if that
/// file stands at the destination now and no longer at the source, that is done.
pub(super) fn rename_file(
    root: &Root,
    source: &SandboxPath,
    destination: &SandboxPath,
    recorded: Option<Identity>,
) -> Result<(), Stop> {
    let from = root.place_to_change(source, ExecutionFailure::FileNotFound);
    let to = root.place_to_change(destination, ExecutionFailure::PathNotFound);
    if let (Some(recorded), Ok(to)) = (recorded, &to)
        && is_done(&from, to, recorded)?
    {
        to.sync()?;
        return from.map_or(Ok(()), |from| from.sync());
    }
    let from = from?;
    match from.look()? {
        Seen::Nothing => return Err(Stop::Failed(ExecutionFailure::FileNotFound)),
        Seen::Directory => return Err(Stop::Failed(ExecutionFailure::NotAFile)),
        Seen::File(_) => {}
    }
    let to = to?;
    match to.look()? {
        Seen::Nothing => {}
        Seen::File(_) | Seen::Directory => {
            return Err(Stop::Failed(ExecutionFailure::AlreadyExists));
        }
    }
    rename(&from, &to)?;
    root.crash_point(CrashPoint::RenameRenamed)?;
    // The destination first: a power cut between the two then leaves two names, never none.
    to.sync()?;
    root.crash_point(CrashPoint::RenameDestinationSynced)?;
    from.sync()?;
    root.crash_point(CrashPoint::RenameSourceSynced)
}

fn is_done(
    from: &Result<Place<'_>, Stop>,
    to: &Place<'_>,
    recorded: Identity,
) -> Result<bool, Stop> {
    let recorded = Seen::File(recorded);
    if to.look()? != recorded {
        return Ok(false);
    }
    Ok(match from {
        Ok(from) => from.look()? != recorded,
        Err(stop) => stop.is_absence(),
    })
}

fn rename(from: &Place<'_>, to: &Place<'_>) -> Result<(), Stop> {
    rustix::fs::renameat_with(
        &from.directory,
        from.name,
        &to.directory,
        to.name,
        RenameFlags::NOREPLACE,
    )
    .map_err(|errno| match errno {
        Errno::NOENT => Stop::Failed(ExecutionFailure::FileNotFound),
        other => Stop::from(other),
    })
}

#[cfg(test)]
mod tests;
