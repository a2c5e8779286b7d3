//! WRITE_FILE: a temporary file in the same directory, made durable, takes the file's place at once.
//! A reader sees the old content or the new one, and so does recovery.
//!
//! The new file keeps the permissions of the one it replaces, and a file that may not be written
//! is not replaced, though the host would allow it.

use std::fs::File;
use std::io::Write;

use rustix::fs::{AtFlags, Mode, OFlags};
use stepgate_core::digest::Digest;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::path::{SandboxPath, TEMPORARY_PREFIX};
use stepgate_core::ports::Dispatch;
use uuid::Uuid;

use super::crash::CrashPoint;
use super::read_file::read_up_to;
use super::resolve::{Place, Root, Seen};
use super::stop::Stop;

pub(super) fn write_file(
    root: &Root,
    path: &SandboxPath,
    content: &str,
    before: Option<Option<Digest>>,
    dispatch: Dispatch,
) -> Result<(), Stop> {
    let place = root.place_to_change(path, ExecutionFailure::PathNotFound)?;
    let mode = match place.look()? {
        Seen::Nothing => None,
        Seen::Directory => return Err(Stop::Failed(ExecutionFailure::NotAFile)),
        Seen::File(_) => {
            let is_done = match dispatch {
                Dispatch::First => false,
                Dispatch::Again => {
                    holds(&place, content)? || is_replaced(root, &place, before)?
                }
            };
            if is_done {
                return place.sync();
            }
            Some(mode_of_writable(&place)?)
        }
    };
    if !u64::try_from(content.len()).is_ok_and(|bytes| bytes <= root.limits.file_bytes_max) {
        return Err(Stop::Failed(ExecutionFailure::FileTooLarge));
    }
    replace(root, &place, content, mode)?;
    root.crash_point(CrashPoint::WriteRenamed)?;
    place.sync()?;
    root.crash_point(CrashPoint::WriteDirectorySynced)
}

/// Whether the file has this content already: the first dispatch got as far as the rename. It is
/// made durable here, since a crash may have come before.
fn holds(place: &Place<'_>, content: &str) -> Result<bool, Stop> {
    let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
    let read = place
        .open_file(OFlags::RDONLY)
        .and_then(|(file, _)| Ok((file.try_clone()?, read_up_to(file, length)?)));
    match read {
        Ok((file, bytes)) if bytes == content.as_bytes() => {
            rustix::fs::fsync(&file)?;
            Ok(true)
        }
        Ok(_) | Err(Stop::Failed(_)) => Ok(false),
        Err(stop @ (Stop::Refused(_) | Stop::Unknown(_))) => Err(stop),
    }
}

/// Whether somebody else wrote the file since the look before the first dispatch: another node, while
/// nobody went on with this call. Then this write is done, and that one came after it; made again, it
/// would undo what others were told is done. `before` is the digest that was recorded, none where there
/// was no file.
fn is_replaced(
    root: &Root,
    place: &Place<'_>,
    before: Option<Option<Digest>>,
) -> Result<bool, Stop> {
    let Some(before) = before else { return Ok(false) };
    let read = place
        .open_file(OFlags::RDONLY)
        .and_then(|(file, _)| read_up_to(file, root.limits.file_bytes_max));
    match read {
        Ok(bytes) => Ok(before != Some(Digest::of_bytes(&bytes))),
        Err(Stop::Failed(_)) => Ok(false),
        Err(stop @ (Stop::Refused(_) | Stop::Unknown(_))) => Err(stop),
    }
}

/// The permissions of the file that will be replaced, if it may be written: the host is asked by
/// opening it, and nothing is written that way.
fn mode_of_writable(place: &Place<'_>) -> Result<Mode, Stop> {
    let (_, stat) = place.open_file(OFlags::WRONLY)?;
    Ok(Mode::from_raw_mode(stat.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO))
}

fn replace(root: &Root, place: &Place<'_>, content: &str, mode: Option<Mode>) -> Result<(), Stop> {
    let temporary = format!("{TEMPORARY_PREFIX}{}", Uuid::now_v7().simple());
    let replaced = fill(root, place, &temporary, content, mode).and_then(|()| {
        rustix::fs::renameat(&place.directory, &temporary, &place.directory, place.name)
            .map_err(Stop::from)
    });
    match &replaced {
        // After a crash nobody cleans up here; recovery sweeps.
        Ok(()) | Err(Stop::Unknown(_)) => {}
        Err(Stop::Failed(_) | Stop::Refused(_)) => {
            // What cannot be removed now is removed by the next sweep, and is never listed.
            let _ = rustix::fs::unlinkat(&place.directory, &temporary, AtFlags::empty());
        }
    }
    replaced
}

fn fill(
    root: &Root,
    place: &Place<'_>,
    temporary: &str,
    content: &str,
    mode: Option<Mode>,
) -> Result<(), Stop> {
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
    root.crash_point(CrashPoint::WriteTemporaryFilled)?;
    rustix::fs::fsync(&file)?;
    root.crash_point(CrashPoint::WriteTemporarySynced)
}
