//! Many seeds on all cores.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::locked;
use crate::run::{Options, Outcome, simulate};

/// What many seeds came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many seeds were simulated.
    pub seeds: u64,
    /// How many events they had.
    pub events: u64,
    /// How many runs they had.
    pub runs: u64,
    /// The seeds in which something was violated, smallest first.
    pub failed: Vec<Outcome>,
}

/// Simulates `seeds` seeds from `from` on, on all cores, and stops at so many failures. `progress` is told
/// after every seed.
pub fn sweep(
    from: u64,
    seeds: u64,
    failures_max: usize,
    options: Options,
    progress: impl Fn() + Sync,
) -> Swept {
    let next = AtomicU64::new(from);
    let enough = AtomicBool::new(false);
    let swept = Mutex::new(Swept::default());
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from.saturating_add(seeds) {
                        return;
                    }
                    let outcome = simulate(seed, options);
                    let mut swept = locked(&swept);
                    swept.add(outcome);
                    enough.store(swept.failed.len() >= failures_max, Ordering::Relaxed);
                    drop(swept);
                    progress();
                }
            });
        }
    });
    let mut swept = std::mem::take(&mut *locked(&swept));
    swept.failed.sort_by_key(|outcome| outcome.seed);
    swept
}

impl Swept {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        self.runs += outcome.runs;
        if outcome.violation.is_some() {
            self.failed.push(outcome);
        }
    }
}
