//! Who else may write where it is decided what an agent may do.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::bail;

/// Write permission of every user of the machine.
const OTHERS: u32 = 0o002;

/// Refuses policies that everybody can change, each of them and their directory.
pub fn refuse_writable_policies(directory: &Path) -> anyhow::Result<()> {
    refuse_writable(directory)?;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).try_for_each(|path| refuse_writable(&path))
}

/// Refuses what every user can write to. What is not there, or may not be looked at, is refused by who reads it.
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

/// The permissions of a file or directory, also through a link.
pub fn mode_of(path: &Path) -> Option<u32> {
    Some(path.metadata().ok()?.permissions().mode() & 0o7777)
}
