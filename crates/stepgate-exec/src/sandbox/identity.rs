//! Which file it is, whatever it is called: how a second dispatch tells the file that was decided on from
//! one that was made since.
//!
//! A device and an inode are not enough: a file system gives the inode of a deleted file to the next one
//! that is made. What tells the two apart is when each was born, and where a file system does not say, when
//! it was changed last, which nobody can set. Where neither can be compared nothing is certain, and then
//! nothing is done on the strength of it.

use std::time::{Duration, Instant};

use rustix::fs::{Statx, StatxFlags, StatxTimestamp, makedev};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What is asked of the host about a file.
pub(super) const ASKED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// How long a look waits until whatever is made afterwards is certainly born later. The clock by which
/// files are born goes on every few milliseconds.
const LATER_WAIT_MAX: Duration = Duration::from_millis(50);

/// A file. Texts, because JSON numbers end at 2^53; times are seconds and nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub(super) device: String,
    pub(super) inode: String,
    /// When it was made. None where the file system does not say, and in what earlier builds recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) born: Option<String>,
    /// When its content, its name or its permissions were changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) changed: Option<String>,
    /// When its content was changed last, or what somebody set this to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) modified: Option<String>,
}

/// Whether a file is the one that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// It is.
    Same,
    /// It is not, or there is none.
    Other,
    /// Nobody can tell.
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

    /// The same, for a record: certain to differ from every file that is made after this call. What a
    /// clock that was set back makes uncertain is left out.
    pub(super) fn to_record(stat: &Statx) -> Self {
        let told = Self::of(stat);
        if is_in_the_past(birth(stat).unwrap_or(stat.stx_ctime)) {
            return told;
        }
        Self { born: None, changed: None, ..told }
    }

    /// Whether a file that stands somewhere now is this one, which was recorded.
    pub(super) fn likeness(&self, now: &Self) -> Likeness {
        let born = same(&self.born, &now.born);
        let unchanged = same(&self.changed, &now.changed);
        if self.device != now.device {
            // A device gets its number when it is mounted, and may have another one after a restart; or the
            // files were copied to another device. So the number proves nothing, and neither does another
            // inode. But no copy has the inode and, to the nanosecond, the birth of its original.
            return match self.inode == now.inode && born == Some(true) {
                true => Likeness::Same,
                false => Likeness::Unsure,
            };
        }
        match (self.inode == now.inode, born, unchanged) {
            (false, _, _) | (true, Some(false), _) => Likeness::Other,
            (true, Some(true), _) | (true, None, Some(true)) => Likeness::Same,
            // A new file with the inode, or this one after somebody renamed it or wrote to it.
            (true, None, Some(false) | None) => Likeness::Unsure,
        }
    }

    /// Whether a file is this one, and nothing was done to it since: to its content, its name or its
    /// permissions.
    pub(super) fn is_untouched(&self, now: &Self) -> bool {
        self.likeness(now) == Likeness::Same && same(&self.changed, &now.changed) == Some(true)
    }

    /// Whether a file is certainly this one, which was recorded.
    pub fn is_certainly(&self, now: &Self) -> bool {
        self.likeness(now) == Likeness::Same
    }

    /// Whether this can be told from a file that is made later, also after it was renamed.
    pub fn is_unmistakable(&self) -> bool {
        self.born.is_some()
    }

    /// Whether a file has this one's inode and its content is as old: it would have to be set so by hand
    /// for another file. Enough to say that something was done, never to do something.
    pub(super) fn looks_like(&self, now: &Self) -> bool {
        (&self.device, &self.inode) == (&now.device, &now.inode)
            && same(&self.modified, &now.modified) == Some(true)
    }

    /// What a copy of the file has not; none where its file system does not say when it was made.
    pub(super) fn place(&self) -> Option<String> {
        Some(format!("{} {}", self.inode, self.born.as_ref()?))
    }

    /// What stays the same while a file lives.
    pub(super) fn lasting(&self) -> (&str, &str, Option<&str>) {
        (&self.device, &self.inode, self.born.as_deref())
    }
}

/// None where one of them is not known.
fn same(one: &Option<String>, other: &Option<String>) -> Option<bool> {
    Some(one.as_ref()? == other.as_ref()?)
}

fn birth(stat: &Statx) -> Option<StatxTimestamp> {
    (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then_some(stat.stx_btime)
}

fn text(time: StatxTimestamp) -> String {
    format!("{}.{:09}", time.tv_sec, time.tv_nsec)
}

/// Waits until the clock by which files are born has passed this time. INVARIANT: whatever is made
/// afterwards is born later. False where the clock is behind for longer than that takes.
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
