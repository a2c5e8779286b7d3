//! SQLite's write-ahead log, read as the file that it is: how many pages and commits are in it.

#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// What a log holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    /// Which log it is: another number after the pages were moved and the log began again.
    pub(super) checkpoint: u32,
    pub(super) bytes: u64,
    /// Frames that end a transaction. With `synchronous = FULL` each is synced once.
    pub(super) commits: u64,
}

impl Log {
    /// Of the database in this data directory.
    pub(super) fn of(data: &Path) -> anyhow::Result<Self> {
        match fs::read(data.join("stepgate.db-wal")) {
            Ok(bytes) => Self::parse(&bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).context("cannot read SQLite's log"),
        }
    }

    fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let Some((header, frames)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Ok(Self::default());
        };
        let page_bytes = usize::try_from(number(header, 8)?)?;
        ensure!(page_bytes > 0, "SQLite's log has pages of no size");
        let salt = header.get(16..24);
        let mut log = Self { checkpoint: number(header, 12)?, ..Self::default() };
        for frame in frames.chunks_exact(FRAME_HEADER_BYTES + page_bytes) {
            // What was written before the log began again has another salt.
            if frame.get(8..16) != salt {
                break;
            }
            log.bytes += frame.len() as u64;
            log.commits += u64::from(number(frame, 4)? != 0);
        }
        Ok(log)
    }

    /// What was added since then, while it was the same log.
    pub(super) fn since(self, before: Self) -> anyhow::Result<Self> {
        ensure!(
            self.checkpoint == before.checkpoint,
            "SQLite's log began again: measure fewer steps"
        );
        let Self { checkpoint, bytes, commits } = self;
        let since = |after: u64, before: u64| {
            after.checked_sub(before).context("SQLite's log is shorter than before")
        };
        Ok(Self {
            checkpoint,
            bytes: since(bytes, before.bytes)?,
            commits: since(commits, before.commits)?,
        })
    }
}

fn number(bytes: &[u8], at: usize) -> anyhow::Result<u32> {
    let four = bytes.get(at..at + 4).and_then(|four| <[u8; 4]>::try_from(four).ok());
    Ok(u32::from_be_bytes(four.context("SQLite's log is cut off")?))
}
