//! The identity of a file, independent of its name: how a second dispatch tells the file that was decided on
//! from a file that was created since.
//!
//! A device and an inode are not enough: a file system gives the inode of a deleted file to the next new
//! one. The birth time tells the two apart. Where a file system does not report it, the change time does,
//! which programs cannot set. Where neither can be compared, nothing is certain, and no action relies on it.

use std::time::{Duration, Instant};

use rustix::fs::{Statx, StatxFlags, StatxTimestamp, makedev};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The fields that are requested from `statx`.
pub(super) const ASKED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// How long recording an identity waits until every file that is created afterwards certainly has a later
/// birth time. The clock for file times advances every few milliseconds.
const LATER_WAIT_MAX: Duration = Duration::from_millis(50);

/// A file's identity. The fields are texts, because JSON numbers end at 2^53; times are seconds and
/// nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub(super) device: String,
    pub(super) inode: String,
    /// When it was created. None where the file system does not report it, and in records of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) born: Option<String>,
    /// The change time: when its content, its name or its permissions last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) changed: Option<String>,
    /// The modification time: when its content last changed, or a value that a program set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) modified: Option<String>,
}

/// Whether a file is the one that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    Same,
    /// It is not, or there is none.
    Other,
    Unsure,
}

impl Identity {
    pub(super) fn of(stat: &Statx) -> Self {
        Self {
            device: makedev(stat.stx_dev_major, stat.stx_dev_minor).to_string(),
            inode: stat.stx_ino.to_string(),
            born: birth(stat).map(text),
            changed: Some(text(stat.stx_ctime)),
            modified: Some(text(stat.stx_mtime)),
        }
    }

    /// The identity for a record: certain to differ from every file that is created after this call. Times
    /// that a clock set back makes uncertain are left out.
    pub(super) fn to_record(stat: &Statx) -> Self {
        let told = Self::of(stat);
        if is_in_the_past(birth(stat).unwrap_or(stat.stx_ctime)) {
            return told;
        }
        Self { born: None, changed: None, ..told }
    }

    /// Whether a file that exists now is this recorded one.
    pub(super) fn likeness(&self, now: &Self) -> Likeness {
        let born = same(&self.born, &now.born);
        let unchanged = same(&self.changed, &now.changed);
        if self.device != now.device {
            // A device gets its number when it is mounted, and the number may change after a restart; or the
            // files were copied to another device. So a different device number proves nothing, and neither
            // does a different inode. But no copy has both the inode and, to the nanosecond, the birth time
            // of its original.
            return match self.inode == now.inode && born == Some(true) {
                true => Likeness::Same,
                false => Likeness::Unsure,
            };
        }
        match (self.inode == now.inode, born, unchanged) {
            (false, _, _) | (true, Some(false), _) => Likeness::Other,
            (true, Some(true), _) | (true, None, Some(true)) => Likeness::Same,
            // A new file with the same inode, or this file after it was renamed or written to.
            (true, None, Some(false) | None) => Likeness::Unsure,
        }
    }

    /// Whether a file is this one, and neither its content, its name nor its permissions have changed since.
    pub(super) fn is_untouched(&self, now: &Self) -> bool {
        self.likeness(now) == Likeness::Same && same(&self.changed, &now.changed) == Some(true)
    }

    /// Whether a file is certainly this recorded one.
    pub fn is_certainly(&self, now: &Self) -> bool {
        self.likeness(now) == Likeness::Same
    }

    /// Whether this file can be told from a file that is created later, also after a rename.
    pub fn is_unmistakable(&self) -> bool {
        self.born.is_some()
    }

    /// Whether a file has this one's inode and modification time; for another file a program would have to
    /// set the time. This is enough to conclude that a call was done, but never to act.
    pub(super) fn looks_like(&self, now: &Self) -> bool {
        (&self.device, &self.inode) == (&now.device, &now.inode)
            && same(&self.modified, &now.modified) == Some(true)
    }

    /// A value that a copy of the file does not have; none where its file system does not report birth
    /// times.
    pub(super) fn place(&self) -> Option<String> {
        Some(format!("{} {}", self.inode, self.born.as_ref()?))
    }

    /// The fields that stay the same while a file exists.
    pub(super) fn lasting(&self) -> (&str, &str, Option<&str>) {
        (&self.device, &self.inode, self.born.as_deref())
    }
}

/// None where one of them is unknown.
fn same(one: &Option<String>, other: &Option<String>) -> Option<bool> {
    Some(one.as_ref()? == other.as_ref()?)
}

fn birth(stat: &Statx) -> Option<StatxTimestamp> {
    (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then_some(stat.stx_btime)
}

fn text(time: StatxTimestamp) -> String {
    format!("{}.{:09}", time.tv_sec, time.tv_nsec)
}

/// Waits until the clock for file times has passed this time. INVARIANT: every file that is created
/// afterwards has a later birth time. False where the clock is too far behind.
fn is_in_the_past(time: StatxTimestamp) -> bool {
    let begun = Instant::now();
    loop {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
        if (now.tv_sec, nanoseconds) > (time.tv_sec, time.tv_nsec) {
            return true;
        }
        if begun.elapsed() > LATER_WAIT_MAX {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests;
