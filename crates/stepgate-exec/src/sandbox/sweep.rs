//! Removes what a crash leaves behind: temporary files that were never renamed into place.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType};
use rustix::io::Errno;
use stepgate_core::path::{COMPONENTS_MAX, PATH_BYTES_MAX, TEMPORARY_PREFIX};

use super::SandboxError;
use super::mark;
use super::resolve::{Root, joined, kind_of};
use super::shared;

/// In a directory that several processes write, a younger file is not treated as left behind.
pub(super) const SHARED_AGE_MIN: Duration = Duration::from_secs(60 * 60);

/// Removes them from every directory that a path can name. Links are not followed, and an entry with such a
/// name that is not a regular file is left alone.
///
/// Files younger than `age_min` are left: another process may be writing them.
pub(super) fn sweep(root: &Root, age_min: Duration) -> Result<u64, SandboxError> {
    let failed = |errno: Errno| SandboxError::Sweep(errno.into());
    let mut removed = 0;
    let mut waiting = vec![(String::new(), 0)];
    while let Some((beneath, depth)) = waiting.pop() {
        let directory = match root.open_directory(&beneath) {
            Ok(directory) => directory,
            // Removed, replaced or not readable: no call of ours can have written there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
            Err(errno) => return Err(failed(errno)),
        };
        let (count, directories) = sweep_directory(directory, age_min).map_err(failed)?;
        removed += count;
        if depth < COMPONENTS_MAX {
            let paths = directories.iter().map(|name| joined(&beneath, name));
            waiting.extend(
                paths.filter(|path| path.len() <= PATH_BYTES_MAX).map(|path| (path, depth + 1)),
            );
        }
    }
    Ok(removed)
}

/// Sweeps one directory: how many files were removed, and the directories in it.
fn sweep_directory(directory: OwnedFd, age_min: Duration) -> Result<(u64, Vec<String>), Errno> {
    let mut reader = Dir::new(directory)?;
    let mut temporary = Vec::new();
    let mut directories = Vec::new();
    while let Some(entry) = reader.read() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name == "." || name == ".." {
            continue;
        }
        let kind = match kind_of(&reader, &entry) {
            Err(Errno::NOENT) => continue,
            kind => kind?,
        };
        let is_ours = name.starts_with(TEMPORARY_PREFIX);
        if is_ours && kind == FileType::RegularFile {
            let is_kept = shared::is_lock(name) || name == mark::NAME;
            if !is_kept && is_older(&reader, name, age_min)? {
                temporary.push(name.to_owned());
            }
        } else if !is_ours && kind == FileType::Directory {
            directories.push(name.to_owned());
        }
    }
    let mut removed = 0;
    for name in temporary {
        match rustix::fs::unlinkat(reader.fd()?, &name, AtFlags::empty()) {
            Ok(()) => removed += 1,
            // Removed already, or in a directory that this process may not change: none of our writes can
            // have left it.
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::ROFS) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok((removed, directories))
}

/// Whether a file was last written at least this long ago. False for a file that no longer exists.
fn is_older(reader: &Dir, name: &str, age_min: Duration) -> Result<bool, Errno> {
    if age_min.is_zero() {
        return Ok(true);
    }
    let stat = match rustix::fs::statat(reader.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        stat => stat?,
    };
    let written = UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    Ok(SystemTime::now().duration_since(written).is_ok_and(|age| age >= age_min))
}
