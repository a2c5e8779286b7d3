//! What every part of a simulation shares: the clock and its tasks, chance, the weather, and the trace of what
//! happened.

use std::sync::Mutex;

use uuid::Uuid;

use crate::chance::Chance;
use crate::locked;
use crate::sabotage::Sabotage;
use crate::schedule::{Group, Instant, Schedule};
use crate::trace::Trace;
use crate::weather::{Fate, MS, ToolFate, Weather};

/// When every simulation begins.
const EPOCH_MS: i64 = 1_800_000_000_000;

/// The surroundings of one simulation.
pub(crate) struct Environment {
    pub(crate) weather: Weather,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) schedule: Schedule,
    pub(crate) chance: Mutex<Chance>,
    pub(crate) trace: Mutex<Trace>,
    violation: Mutex<Option<String>>,
}

impl Environment {
    pub(crate) fn new(
        weather: Weather,
        chance: Chance,
        sabotage: Option<Sabotage>,
        is_shown: bool,
    ) -> Self {
        Self {
            weather,
            sabotage,
            schedule: Schedule::default(),
            chance: Mutex::new(chance),
            trace: Mutex::new(Trace::new(is_shown)),
            violation: Mutex::default(),
        }
    }

    /// The present.
    pub(crate) fn now(&self) -> Instant {
        self.schedule.now()
    }

    /// Lets so much time pass.
    pub(crate) async fn sleep(&self, time: Instant) {
        self.schedule.until(self.now() + time).await;
    }

    /// Waits for something, but not for longer.
    pub(crate) async fn within<T>(
        &self,
        time: Instant,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        self.schedule.within(self.now() + time, work).await
    }

    /// A number below this one.
    pub(crate) fn below(&self, end: u64) -> u64 {
        locked(&self.chance).below(end)
    }

    /// A number from `start` up to and without `end`.
    pub(crate) fn between(&self, start: u64, end: u64) -> u64 {
        locked(&self.chance).between(start, end)
    }

    /// Whether something happens that happens so often in a thousand.
    pub(crate) fn happens(&self, in_thousand: u64) -> bool {
        locked(&self.chance).happens(in_thousand)
    }

    /// Whether faults still happen.
    pub(crate) fn is_stormy(&self) -> bool {
        self.now() < self.weather.calm_from
    }

    /// What becomes of a call to the store.
    pub(crate) fn fate(&self) -> Fate {
        match self.is_stormy() {
            true => self.weather.fate(&mut locked(&self.chance)),
            false => Fate::Calm,
        }
    }

    /// What becomes of a call to a tool.
    pub(crate) fn tool_fate(&self) -> ToolFate {
        match self.is_stormy() {
            true => self.weather.tool_fate(&mut locked(&self.chance)),
            false => ToolFate::Calm,
        }
    }

    /// Whether a guard is missing.
    pub(crate) fn is_sabotaged(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// Notes what happened. The text is made only where the lines are kept; `about` tells the same in a
    /// number, for the digest.
    pub(crate) fn note(
        &self,
        what: &'static str,
        place: u64,
        about: u64,
        text: impl FnOnce() -> String,
    ) {
        let now = self.now();
        locked(&self.trace).note(now, what, place, about, text);
    }

    /// Notes what must not be. The first one ends the simulation.
    pub(crate) fn violated(&self, what: String) {
        self.note("VIOLATION", 0, 0, || what.clone());
        locked(&self.violation).get_or_insert(what);
    }

    /// The first thing that must not be and is.
    pub(crate) fn violation(&self) -> Option<String> {
        locked(&self.violation).clone()
    }

    /// Begins a task.
    pub(crate) fn spawn(&self, group: Group, job: impl Future<Output = ()> + Send + 'static) {
        self.schedule.spawn(group, job);
    }

    /// The time of day, in milliseconds.
    pub(crate) fn wall_ms(&self) -> i64 {
        EPOCH_MS + i64::try_from(self.now() / MS).unwrap_or(0)
    }

    /// An id that no other is like.
    pub(crate) fn fresh_uuid(&self) -> Uuid {
        let (first, second) = {
            let mut chance = locked(&self.chance);
            (chance.next(), chance.next())
        };
        let mut random = [0; 10];
        let bytes = first.to_le_bytes().into_iter().chain(second.to_le_bytes());
        random.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        let ms = u64::try_from(self.wall_ms()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid()
    }
}
