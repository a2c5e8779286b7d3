//! The operator's windows of time, such as office hours. Policies ask which of them are open; they see no other
//! clock.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;

use crate::time::Timestamp;

/// The windows, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(BTreeMap<String, Window>);

/// A window: some hours of some days of the week, in a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The zone whose clock counts.
    pub zone: TimeZone,
    /// The days.
    pub days: Vec<Weekday>,
    /// The hours of each of the days.
    pub hours: Vec<Hours>,
}

/// From a time of day to a later one. The first is inside, the second is not. Hours that end at midnight have no
/// end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// The first moment.
    pub from: Time,
    /// The first moment that is not inside any more.
    pub until: Option<Time>,
}

impl Schedule {
    /// These windows.
    pub fn new(windows: BTreeMap<String, Window>) -> Self {
        Self(windows)
    }

    /// The names of the windows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The windows that are open at this moment.
    pub fn open_at(&self, now: Timestamp) -> BTreeSet<String> {
        let Ok(now) = jiff::Timestamp::from_millisecond(now.as_millisecond()) else {
            return BTreeSet::new();
        };
        let open = self.0.iter().filter(|(_, window)| window.is_open_at(now));
        open.map(|(name, _)| name.clone()).collect()
    }
}

impl Window {
    fn is_open_at(&self, now: jiff::Timestamp) -> bool {
        let local = self.zone.to_datetime(now);
        self.days.contains(&local.weekday())
            && self.hours.iter().any(|Hours { from, until }| {
                *from <= local.time() && until.is_none_or(|until| local.time() < until)
            })
    }
}

#[cfg(test)]
mod tests;
