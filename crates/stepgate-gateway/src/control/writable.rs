//! Refuses policies and settings that other users of the machine can write.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::bail;

/// Permission bit: every user of the machine may write.
const OTHERS: u32 = 0o002;

/// Refuses policies that every user can change: the directory and each file in it.
pub fn refuse_writable_policies(directory: &Path) -> anyhow::Result<()> {
    refuse_writable(directory)?;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).try_for_each(|path| refuse_writable(&path))
}

/// Refuses a path that every user can write to. A path that is missing or cannot be inspected passes: the code that
/// reads it fails.
pub fn refuse_writable(path: &Path) -> anyhow::Result<()> {
    match mode_of(path) {
        Some(mode) if mode & OTHERS != 0 => bail!(
            "everybody can write to `{0}` (mode {mode:o}), and so decide what is permitted: \
             `chmod go-w {0}`",
            path.display()
        ),
        Some(_) | None => Ok(()),
    }
}

/// The permission bits of a file or directory, following links.
pub fn mode_of(path: &Path) -> Option<u32> {
    Some(path.metadata().ok()?.permissions().mode() & 0o7777)
}
