//! Times for people: how long ago, or the instant in UTC.

use stepgate_core::time::Timestamp;

/// How times are shown by one command. Its present does not move, so that a list has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    now: Timestamp,
    is_utc: bool,
}

impl Times {
    pub(crate) fn at(now: Timestamp, is_utc: bool) -> Self {
        Self { now, is_utc }
    }

    /// The same at another present, for a command that goes on.
    pub(crate) fn moved_to(self, now: Timestamp) -> Self {
        Self { now, ..self }
    }

    /// A time that is over, such as `3 min ago`.
    pub(crate) fn past(self, at: Timestamp) -> String {
        match self.is_utc {
            true => at.to_string(),
            false => format!("{} ago", span(self.now.since_ms(at))),
        }
    }

    /// A time to come, such as `in 3 min`; where it is over, how long ago that was.
    pub(crate) fn to_come(self, at: Timestamp) -> String {
        match (self.is_utc, at.since_ms(self.now)) {
            (true, _) => at.to_string(),
            (false, 0) => self.past(at),
            (false, ms) => format!("in {}", span(ms)),
        }
    }
}

pub(crate) fn span(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let seconds = ms / 1000;
    let (unit_s, unit) =
        UNITS.into_iter().find(|(unit_s, _)| seconds >= *unit_s).unwrap_or((1, "s"));
    format!("{} {unit}", seconds / unit_s)
}

#[cfg(test)]
mod tests;
