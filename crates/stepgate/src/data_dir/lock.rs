//! The lock of a data directory.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::way_out;

/// The lock file, which contains the pid of the holder.
pub(super) const LOCK: &str = "lock";
/// Attempts to lock: a reader that checks for a holder may hold a shared lock for a moment.
const TRIES: u32 = 5;
const TRY_PAUSE: Duration = Duration::from_millis(10);

/// The lock, held until it is dropped. It locks the directory itself, because a lock file can be removed, and another
/// process would then lock a new file of that name. It also locks the file, because some file systems cannot lock
/// directories.
pub(crate) struct Lock {
    _directory: File,
    _file: File,
}

impl Lock {
    /// Takes the lock. If another process holds it, the error says which.
    pub(crate) fn take(root: &Path) -> anyhow::Result<Self> {
        let path = root.join(LOCK);
        let cannot = |error: std::io::Error| {
            let what = format!("cannot open `{}`: {}", path.display(), way_out(&error));
            anyhow::Error::new(error).context(what)
        };
        let directory = File::open(root).map_err(cannot)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(cannot)?;
        let mut tries = 0;
        while is_held(&directory, FlockOperation::NonBlockingLockExclusive)
            || is_held(&file, FlockOperation::NonBlockingLockExclusive)
        {
            tries += 1;
            if tries == TRIES {
                let holder = holder(root).unwrap_or_else(|| "another process".to_owned());
                let way_out = match is_bridge(&holder) {
                    true => "it is a `stepgate mcp`, so close its client, or end it with SIGTERM",
                    false => "wait for it to end",
                };
                bail!(
                    "`{}` is in use by {holder}: {way_out}, or name another directory with --data",
                    root.display(),
                );
            }
            std::thread::sleep(TRY_PAUSE);
        }
        // INVARIANT: only the lock counts. The pid in the file only tells other processes whom to wait for, so a
        // full disk does not stop the process here.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = write!(file, "{}", std::process::id());
        Ok(Self { _directory: directory, _file: file })
    }
}

pub(super) fn holder(root: &Path) -> Option<String> {
    let shared = FlockOperation::NonBlockingLockShared;
    let directory = File::open(root).ok()?;
    let file = File::open(root.join(LOCK));
    let is_free = |file: &File| !is_held(file, shared);
    if is_free(&directory) && file.as_ref().map_or(true, is_free) {
        return None;
    }
    let mut pid = String::new();
    let _ = file.and_then(|mut file| file.read_to_string(&mut pid));
    let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    Some(if is_number { format!("process {pid}") } else { "another process".to_owned() })
}

/// Whether the holder is a `stepgate mcp`, which may run for as long as its client does. False if that cannot be
/// determined.
fn is_bridge(holder: &str) -> bool {
    let Some(pid) = holder.strip_prefix("process ") else { return false };
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|argument| argument == b"mcp")
}

/// Whether another process holds the lock. False if the file system does not support locks.
fn is_held(file: &File, operation: FlockOperation) -> bool {
    flock(file, operation) == Err(Errno::WOULDBLOCK)
}
