//! The identity of a file, independent of its name: how a second dispatch tells the file that was decided on
//! from a file that was created since.
//!
//! A device and an inode are not enough: a file system gives the inode of a deleted file to the next new
//! one. The birth time tells the two apart, except within one tick of the clock for file times (some
//! milliseconds). WRITE_FILE therefore gives each file a modification time to the nanosecond, and a file that
//! is replaced in the tick of its birth is told by both. Where a file system does not report births, the change time
//! tells, which programs cannot set. Where nothing can be compared, nothing is certain, and no action relies
//! on it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{Statx, StatxFlags, StatxTimestamp, Timestamps, UTIME_OMIT, futimens, makedev};
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

/// The fields that are requested from `statx`.
pub(super) const ASKED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// How long recording an identity waits until every file that is created afterwards certainly has a later
/// birth time, where the modification time does not tell. The clock for file times advances every few
/// milliseconds.
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
    /// The modification time once more, where the birth time alone does not tell this file from one that is
    /// created in the same tick of the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stamped: Option<String>,
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
            stamped: None,
        }
    }

    /// The identity for a record: certain to differ from every file that is created after this call. Times
    /// that a clock set back makes uncertain are left out.
    pub(super) fn to_record(stat: &Statx) -> Self {
        let told = Self::of(stat);
        match wait_until_passed(begun(stat)) {
            true => told,
            false => Self { born: None, changed: None, ..told },
        }
    }

    /// The same for a file that is to be replaced, without waiting where its modification time tells. The recorded
    /// file is then not known again once a program has written to it, so this is not for one that is renamed or
    /// deleted.
    pub(super) fn to_replace(stat: &Statx) -> Self {
        if has_passed(begun(stat)) || !is_stamped(stat) {
            return Self::to_record(stat);
        }
        let told = Self::of(stat);
        Self { stamped: told.modified.clone(), ..told }
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
            let is_same = self.inode == now.inode && born == Some(true);
            return match is_same && (self.stamped.is_none() || self.stamped == now.modified) {
                true => Likeness::Same,
                false => Likeness::Unsure,
            };
        }
        match (self.inode == now.inode, born, unchanged) {
            (false, _, _) | (true, Some(false), _) => Likeness::Other,
            // A new file of the same tick, or this file after it was written to.
            (true, Some(true), _) if self.stamped.is_some() && self.stamped != now.modified => {
                Likeness::Unsure
            }
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

/// Gives a file that was just filled a modification time to the nanosecond. The file system's own is the time
/// of the last tick, which several files have in common.
pub(super) fn stamp(file: impl AsFd) -> rustix::io::Result<()> {
    let kept = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = clock_gettime(ClockId::Realtime);
    futimens(file, &Timestamps { last_access: kept, last_modification: now })
}

fn begun(stat: &Statx) -> StatxTimestamp {
    birth(stat).unwrap_or(stat.stx_ctime)
}

/// Whether a file that was born in the current tick has a later modification time. INVARIANT: no file that is
/// created afterwards has both times. A program set it; or a file system with times finer than a tick did, and then
/// every later file has a later birth time.
fn is_stamped(stat: &Statx) -> bool {
    birth(stat).is_some_and(|born| instant(born) < instant(stat.stx_mtime))
}

/// Whether the clock for file times has passed this time. INVARIANT: then every file that is created afterwards
/// has a later birth time.
fn has_passed(time: StatxTimestamp) -> bool {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0)) > instant(time)
}

/// Waits until it has. False where the clock is too far behind.
fn wait_until_passed(time: StatxTimestamp) -> bool {
    let begun = Instant::now();
    while !has_passed(time) {
        if begun.elapsed() > LATER_WAIT_MAX {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

fn instant(time: StatxTimestamp) -> (i64, u32) {
    (time.tv_sec, time.tv_nsec)
}

#[cfg(test)]
mod tests;
