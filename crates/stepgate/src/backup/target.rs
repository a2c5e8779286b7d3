//! Where a backup is made: under another name until it is whole and durable, so that one which was
//! interrupted never looks like a backup.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with, syncfs};
use rustix::io::Errno;
use stepgate_core::digest::{Digest, Digesting};

use super::cannot_write;
use super::manifest::BackupFile;

/// Held by whoever makes the backup.
const LOCK: &str = "lock";

/// A backup in the making. Dropped, it leaves nothing.
pub(crate) struct Target {
    path: PathBuf,
    partial: PathBuf,
    is_finished: bool,
    _lock: File,
}

impl Target {
    /// Begins a backup at a path where nothing is yet, outside of what is copied.
    pub(crate) fn begin(path: &Path, copied: &[PathBuf]) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)?;
        let shown = path.display();
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("`{shown}` cannot be a backup: name a directory that is not there yet");
        };
        if path.symlink_metadata().is_ok() {
            bail!("`{shown}` is there already: a backup replaces nothing; name another directory");
        }
        let parent = fs::canonicalize(parent).with_context(|| {
            format!("there is no directory `{}` to put a backup into", parent.display())
        })?;
        let is_inside = |copied: &PathBuf| {
            fs::canonicalize(copied).is_ok_and(|copied| parent.starts_with(copied))
        };
        if let Some(copied) = copied.iter().find(|copied| is_inside(copied)) {
            bail!(
                "`{shown}` is inside `{}`, which is copied; name another directory",
                copied.display()
            );
        }
        let partial = parent.join(format!(".{}.partial", name.to_string_lossy()));
        let lock = take(&partial)?;
        Ok(Self { path, partial, is_finished: false, _lock: lock })
    }

    /// Where a part of the backup goes.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.partial.join(name)
    }

    /// The directory in which it is made.
    pub(crate) fn partial(&self) -> &Path {
        &self.partial
    }

    /// Makes a directory of the backup.
    pub(crate) fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.at(name);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| cannot_write(&path, error))?;
        Ok(path)
    }

    /// Writes a small file.
    pub(crate) fn write(&self, name: &str, bytes: &[u8], mode: u32) -> anyhow::Result<BackupFile> {
        let path = self.at(name);
        fs::write(&path, bytes).map_err(|error| cannot_write(&path, error))?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let sha256 = Digest::of_bytes(bytes);
        Ok(BackupFile { path: name.to_owned(), bytes: length, sha256, mode })
    }

    /// Reads a file that was made here, for its digest.
    pub(crate) fn digested(&self, name: &str, mode: u32) -> anyhow::Result<BackupFile> {
        let path = self.at(name);
        let (bytes, sha256) = File::open(&path)
            .and_then(|mut file| digest_of(&mut file, &mut io::sink()))
            .with_context(|| format!("cannot read `{}` back", path.display()))?;
        Ok(BackupFile { path: name.to_owned(), bytes, sha256, mode })
    }

    /// Makes it durable, and only then gives it its name.
    pub(crate) fn finish(mut self) -> anyhow::Result<PathBuf> {
        let failed = |error: io::Error| cannot_write(&self.path, error);
        File::open(&self.partial).and_then(|it| Ok(syncfs(it)?)).map_err(failed)?;
        fs::remove_file(self.at(LOCK)).map_err(failed)?;
        let renamed = renameat_with(CWD, &self.partial, CWD, &self.path, RenameFlags::NOREPLACE);
        match renamed {
            // Some file systems cannot promise it. A directory that came meanwhile still refuses, unless
            // it is empty.
            Err(Errno::INVAL | Errno::NOSYS) => {
                fs::rename(&self.partial, &self.path).map_err(failed)?
            }
            renamed => renamed.map_err(|errno| failed(errno.into()))?,
        }
        self.is_finished = true;
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
        Ok(self.path.clone())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_finished {
            // What stays is taken away by the next backup of this name.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// Takes the directory, with what an interrupted backup left in it removed.
fn take(partial: &Path) -> anyhow::Result<File> {
    match DirBuilder::new().mode(0o700).create(partial) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(cannot_write(partial, error));
        }
        Ok(()) | Err(_) => {}
    }
    let mut lock = OpenOptions::new();
    let lock = lock.create(true).truncate(false).write(true).mode(0o600).open(partial.join(LOCK));
    let lock = lock.map_err(|error| cannot_write(partial, error))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("another process makes this backup now, in `{}`", partial.display());
    }
    for entry in fs::read_dir(partial)? {
        let entry = entry?;
        let removed = match entry.file_type()?.is_dir() {
            _ if entry.file_name() == LOCK => Ok(()),
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
        removed.map_err(|error| cannot_write(&entry.path(), error))?;
    }
    Ok(lock)
}

/// Copies, and says how much it was and its digest.
pub(super) fn digest_of(
    from: &mut impl io::Read,
    to: &mut impl io::Write,
) -> io::Result<(u64, Digest)> {
    let (mut bytes, mut digesting) = (0, Digesting::default());
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let count = from.read(&mut buffer)?;
        let part = buffer.get(..count).unwrap_or_default();
        if part.is_empty() {
            return Ok((bytes, digesting.finish()));
        }
        digesting.update(part);
        to.write_all(part)?;
        bytes += u64::try_from(count).unwrap_or(0);
    }
}
