//! Free space on the disk of the data directory. A part of it is reserved: when only that is left, agents are refused, so
//! that operators can still decide, look and back up.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use stepgate_core::lock;

/// How long an answer of the file system is used.
const GOOD_FOR: Duration = Duration::from_millis(500);

/// The disk of a data directory.
pub struct Disk {
    pub(crate) directory: PathBuf,
    reserved_bytes: u64,
    /// The last answer of the file system. None: it could not say.
    looked: Mutex<Option<(Instant, Option<u64>)>>,
}

impl Disk {
    /// The disk of this directory, with so many bytes reserved for operators.
    pub fn new(directory: &Path, reserved_bytes: u64) -> Self {
        Self { directory: directory.to_owned(), reserved_bytes, looked: Mutex::default() }
    }

    /// Free bytes, where the file system says how many.
    pub fn free_bytes(&self) -> Option<u64> {
        let mut looked = lock::locked(&self.looked);
        match *looked {
            Some((at, free)) if at.elapsed() < GOOD_FOR => free,
            Some(_) | None => {
                let free = free_bytes(&self.directory).ok();
                *looked = Some((Instant::now(), free));
                free
            }
        }
    }

    /// Whether only what is reserved for operators is left.
    pub fn is_low(&self) -> bool {
        self.free_bytes().is_some_and(|free| free < self.reserved_bytes)
    }

    /// Whether so many bytes fit into a directory, on this disk or another, beside what is reserved. The error says what
    /// is free there.
    pub(crate) fn refuse_without_room(&self, directory: &Path, bytes: u64) -> Result<(), String> {
        let Ok(free) = free_bytes(directory) else { return Ok(()) };
        if free >= self.reserved_bytes.saturating_add(bytes) {
            return Ok(());
        }
        let [free, reserved] = [free, self.reserved_bytes].map(|bytes| bytes / (1024 * 1024));
        Err(format!("{free} MiB are free there, of which {reserved} MiB are reserved"))
    }

    /// What is wrong, if it is low.
    pub(crate) fn trouble(&self) -> Option<String> {
        let free = self.free_bytes().filter(|free| *free < self.reserved_bytes)?;
        let [free, reserved] = [free, self.reserved_bytes].map(|bytes| bytes / (1024 * 1024));
        Some(format!("{free} MiB are free and {reserved} MiB are reserved: agents are refused"))
    }
}

/// Free space on the volume of a directory, even if the directory does not exist yet.
pub fn free_bytes(directory: &Path) -> io::Result<u64> {
    let existing = directory.ancestors().find(|path| path.exists());
    let volume = rustix::fs::statvfs(existing.unwrap_or_else(|| Path::new(".")))?;
    Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
}

#[cfg(test)]
mod tests;
