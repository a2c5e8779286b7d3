//! Where a backup is written: under a temporary name until it is complete and durable, so that an interrupted one never
//! looks like a backup.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with, syncfs};
use rustix::io::Errno;
use stepgate_core::digest::{Digest, Digesting};
use stepgate_gateway::durable;

use super::cannot_write;
use super::manifest::BackupFile;

/// How often to retry the lock if its holder removes the file at the same moment.
const LOCK_TRIES: u32 = 16;

/// A backup in progress. If it is dropped before the end, it is removed.
pub(crate) struct Target {
    path: PathBuf,
    partial: PathBuf,
    is_finished: bool,
    _lock: Lock,
}

impl Target {
    /// Begins a backup at a path that must not exist, outside of what is copied.
    pub(crate) fn begin(path: &Path, copied: &[PathBuf]) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)?;
        let shown = path.display();
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("`{shown}` cannot be a backup: name a directory that is not there yet");
        };
        refuse_what_is_there(&path)?;
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
        let named = |end: &str| {
            let mut hidden = OsString::from(".");
            hidden.push(name);
            hidden.push(end);
            parent.join(hidden)
        };
        let (partial, lock) = (named(".partial"), Lock::take(named(".lock"))?);
        // The previous holder of the lock may have made the backup.
        refuse_what_is_there(&path)?;
        remove_what_is_left(&partial)?;
        let made = DirBuilder::new().mode(0o700).create(&partial);
        made.map_err(|error| cannot_write(&partial, error))?;
        Ok(Self { path, partial, is_finished: false, _lock: lock })
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.partial.join(name)
    }

    pub(crate) fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.at(name);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| cannot_write(&path, error))?;
        Ok(path)
    }

    /// Writes a small file that only its owner can read; `mode` is what it gets when it is restored.
    pub(crate) fn write(&self, name: &str, bytes: &[u8], mode: u32) -> anyhow::Result<BackupFile> {
        let path = self.at(name);
        durable::write_new(&path, bytes).map_err(|error| cannot_write(&path, error))?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let sha256 = Digest::of_bytes(bytes);
        Ok(BackupFile { path: name.to_owned(), bytes: length, sha256, mode })
    }

    /// Reads a file of the backup, for its digest.
    pub(crate) fn digested(&self, name: &str, mode: u32) -> anyhow::Result<BackupFile> {
        let path = self.at(name);
        let (bytes, sha256) = File::open(&path)
            .and_then(|mut file| digest_of(&mut file, &mut io::sink()))
            .with_context(|| format!("cannot read `{}` back", path.display()))?;
        Ok(BackupFile { path: name.to_owned(), bytes, sha256, mode })
    }

    /// Makes the backup durable, and only then gives it its final name.
    pub(crate) fn finish(mut self) -> anyhow::Result<PathBuf> {
        let failed = |error: io::Error| cannot_write(&self.path, error);
        File::open(&self.partial).and_then(|it| Ok(syncfs(it)?)).map_err(failed)?;
        let renamed = renameat_with(CWD, &self.partial, CWD, &self.path, RenameFlags::NOREPLACE);
        match renamed {
            // Some file systems do not support NOREPLACE. A plain rename still fails if a directory appeared
            // meanwhile, unless that is empty.
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
            // The next backup of this name removes what is left.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

fn refuse_what_is_there(path: &Path) -> anyhow::Result<()> {
    if path.symlink_metadata().is_ok() {
        let shown = path.display();
        bail!("`{shown}` is there already: a backup replaces nothing; name another directory");
    }
    Ok(())
}

/// Removes what an interrupted backup of this name left.
fn remove_what_is_left(partial: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot_write(partial, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Held by the process that makes a backup of this name, until the backup is complete or removed. The file is next to
/// the backup: a lock inside it would have to be removed before the backup is complete.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn take(path: PathBuf) -> anyhow::Result<Self> {
        for _ in 0..LOCK_TRIES {
            let mut file = OpenOptions::new();
            let file = file.create(true).truncate(false).write(true).mode(0o600).open(&path);
            let file = file.map_err(|error| cannot_write(&path, error))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    bail!("another process makes this backup now; it holds `{}`", path.display())
                }
                Err(errno) => return Err(cannot_write(&path, errno.into())),
            }
            // INVARIANT: the locked file is the one at this path. A holder removes the file before it unlocks it.
            let held = file.metadata().map_err(|error| cannot_write(&path, error))?;
            let found = fs::symlink_metadata(&path);
            if found.is_ok_and(|it| (it.dev(), it.ino()) == (held.dev(), held.ino())) {
                return Ok(Self { path, _file: file });
            }
        }
        bail!("other processes make this backup now, one after the other")
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, the next backup of this name takes the lock over.
        let _ = fs::remove_file(&self.path);
    }
}

/// Copies, and returns the length and the digest.
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

#[cfg(test)]
mod tests;
