//! Everything of one simulation that its parts share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use stepgate_core::ports::World;
use stepgate_core::time::Timestamp;
use uuid::Uuid;

use crate::chance::Chance;
use crate::database::Database;
use crate::files::Files;
use crate::ledger::Ledger;
use crate::locked;
use crate::node::Nodes;
use crate::policy::Policies;
use crate::sabotage::Sabotage;
use crate::schedule::{Group, Instant, Schedule};
use crate::servers::Servers;
use crate::trace::Trace;
use crate::weather::{Fate, MS, Weather};

/// When every simulation begins.
const EPOCH_MS: i64 = 1_800_000_000_000;

/// One simulation.
pub(crate) struct Sim {
    pub(crate) weather: Weather,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) schedule: Schedule,
    pub(crate) chance: Mutex<Chance>,
    pub(crate) trace: Mutex<Trace>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) database: Mutex<Database>,
    pub(crate) files: Files,
    pub(crate) servers: Servers,
    pub(crate) policies: Policies,
    pub(crate) nodes: Nodes,
}

impl Sim {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, is_shown: bool) -> Arc<Self> {
        let mut chance = Chance::of(seed);
        let weather = Weather::of(&mut chance);
        Self::in_weather(weather, chance, sabotage, is_shown)
    }

    /// A simulation without faults.
    pub(crate) fn calm(sabotage: Option<Sabotage>) -> Arc<Self> {
        let mut chance = Chance::of(0);
        let mut weather = Weather::of(&mut chance);
        weather.calm_from = 0;
        Self::in_weather(weather, chance, sabotage, false)
    }

    fn in_weather(
        weather: Weather,
        mut chance: Chance,
        sabotage: Option<Sabotage>,
        is_shown: bool,
    ) -> Arc<Self> {
        let nodes = Nodes::new(weather.nodes, &mut chance);
        Arc::new(Self {
            sabotage,
            schedule: Schedule::default(),
            trace: Mutex::new(Trace::new(is_shown)),
            ledger: Mutex::new(Ledger::new()),
            database: Mutex::new(Database::new(sabotage)),
            files: Files::default(),
            servers: Servers::new(sabotage),
            policies: Policies::new(weather.nodes, chance.next()),
            nodes,
            chance: Mutex::new(chance),
            weather,
        })
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

    /// Whether a guard is missing.
    pub(crate) fn is_sabotaged(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// Notes what happened. The text is made only where somebody reads it; `about` tells the same in a
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
        locked(&self.ledger).violated(what);
    }

    /// Begins a task.
    pub(crate) fn spawn(&self, group: Group, job: impl Future<Output = ()> + Send + 'static) {
        self.schedule.spawn(group, job);
    }

    fn wall_ms(&self) -> i64 {
        EPOCH_MS + i64::try_from(self.now() / MS).unwrap_or(0)
    }

    fn fresh_uuid(&self) -> Uuid {
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

/// The world as one node sees it: its clock is not quite the others'.
pub(crate) struct NodeWorld {
    pub(crate) sim: Arc<Sim>,
    pub(crate) skew_ms: i64,
}

#[async_trait]
impl World for NodeWorld {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.sim.wall_ms() + self.skew_ms)
    }

    fn fresh_uuid(&self) -> Uuid {
        self.sim.fresh_uuid()
    }

    async fn pause(&self, duration: Duration) {
        let time = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.sim.sleep(time).await;
    }
}

/// A run, a key or a text as a number, for the trace's digest.
pub(crate) fn number_of(id: Uuid) -> u64 {
    let (high, low) = id.as_u64_pair();
    high ^ low
}
