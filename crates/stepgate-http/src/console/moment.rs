//! Times on a page: exact for machines, short for people, and how long ago.

use stepgate_core::time::Timestamp;

/// A time for machines and for people.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) machine: String,
    pub(super) people: String,
}

impl Moment {
    pub(super) fn of(at: Timestamp) -> Self {
        let machine = at.to_string();
        let (day, time) = machine.split_once('T').unwrap_or((&machine, ""));
        let people = format!("{day} {} UTC", time.get(..8).unwrap_or_default());
        Self { people, machine }
    }
}

pub(super) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if ms == 0 => "under 1 ms".to_owned(),
        (0, 0, 0) if seconds == 0 => format!("{ms} ms"),
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// The shortest time that is told exactly. A page whose times changed every second would be drawn again every second.
const MINUTE_MS: u64 = 60_000;

/// The time until a moment, or `over`.
pub(super) fn left(until: Timestamp, now: Timestamp) -> String {
    match until.since_ms(now) {
        0 => "over".to_owned(),
        ms if ms < MINUTE_MS => "less than a minute left".to_owned(),
        ms => format!("{} left", duration(ms)),
    }
}

pub(super) fn ago(at: Timestamp, now: Timestamp) -> String {
    match now.since_ms(at) {
        ms if ms < MINUTE_MS => "just now".to_owned(),
        ms => format!("{} ago", duration(ms)),
    }
}

#[cfg(test)]
mod tests;
