//! Durable file writes: a power cut neither undoes them nor leaves them half written. Only the owner can read them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::Path;

/// Files that Stepgate makes are readable and writable by their owner only.
pub const PRIVATE: u32 = 0o600;

/// Writes a file that must not exist yet, and makes its content durable. Its name becomes durable with
/// [`sync_names`] on its directory.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes a file atomically, replacing an existing one. On an error nothing is left over that takes space.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, |_| Ok(()))
}

/// Replaces the content of an existing file atomically. Its permissions and its owner stay, and a link to it is
/// followed.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = path.canonicalize()?;
    let before = path.metadata()?;
    put(&path, bytes, |partial| {
        let made = partial.metadata()?;
        if (made.uid(), made.gid()) != (before.uid(), before.gid()) {
            chown(partial, Some(before.uid()), Some(before.gid()))?;
        }
        fs::set_permissions(partial, before.permissions())
    })
}

/// Writes a file beside its place, prepares it, and renames it.
fn put(path: &Path, bytes: &[u8], prepare: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let partial = path.with_file_name(format!(".{}.partial", name.to_string_lossy()));
    // Left over from an interrupted write.
    let _ = fs::remove_file(&partial);
    let written = write_new(&partial, bytes).and_then(|()| prepare(&partial));
    let written = written.and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written?;
    sync_names(path.parent())
}

/// Creates a directory that only its owner can read, and its missing parents, durably: files inside survive a power cut
/// only if their directory does.
pub fn create_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(io::ErrorKind::NotFound.into()),
    };
    create_directory(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        // Another process won the race, and has made it durable.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => File::open(parent)?.sync_all(),
    }
}

/// Makes the names in a directory durable.
pub fn sync_names(directory: Option<&Path>) -> io::Result<()> {
    let here = Path::new(".");
    let directory = directory.filter(|it| !it.as_os_str().is_empty()).unwrap_or(here);
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests;
