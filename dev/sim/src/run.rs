//! Start here: one seed, from its first event to its last.

use std::sync::Arc;

use crate::locked;
use crate::people;
use crate::sabotage::Sabotage;
use crate::schedule::{Driver, Turn, by_chance};
use crate::weather::CALM_MAX;
use crate::world::Sim;

/// More turns than any simulation that comes to an end.
const TURNS_MAX: u64 = 2_000_000;

/// How a seed is simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The guard that is missing.
    pub sabotage: Option<Sabotage>,
    /// Whether every event is kept as a line.
    pub is_traced: bool,
}

/// What a seed came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// How many events there were.
    pub events: u64,
    /// The digest of all events, in their order.
    pub digest: u64,
    /// How much simulated time passed, in milliseconds.
    pub simulated_ms: u64,
    /// How many runs there were in the end.
    pub runs: u64,
    /// What must not be and was; none where everything held.
    pub violation: Option<String>,
    /// Every event, where they were asked for.
    pub lines: Vec<String>,
}

/// Simulates one seed. The same seed and options give the same outcome, whenever and wherever.
pub fn simulate(seed: u64, options: Options) -> Outcome {
    let sim = Sim::new(seed, options.sabotage, options.is_traced);
    let mut driver = Driver::new(&sim.schedule);
    for node in 0..sim.nodes.count() {
        sim.start(node);
    }
    people::begin(&sim);
    drive(&sim, &mut driver);
    if locked(&sim.ledger).violation().is_none() {
        sim.check_the_end();
    }
    driver.clear();
    sim.nodes.clear();
    let (runs, violation) = {
        let ledger = locked(&sim.ledger);
        (ledger.runs(), ledger.violation().cloned())
    };
    let mut trace = locked(&sim.trace);
    Outcome {
        seed,
        events: trace.events(),
        digest: trace.digest(),
        simulated_ms: sim.now() / 1000,
        runs,
        violation,
        lines: trace.take_lines(),
    }
}

/// Until everything has come to rest, or something is wrong.
fn drive(sim: &Arc<Sim>, driver: &mut Driver<'_>) {
    let mut chance = by_chance(&sim.chance);
    for _ in 0..TURNS_MAX {
        let turn = driver.turn(&mut chance);
        if locked(&sim.ledger).violation().is_some() {
            return;
        }
        match turn {
            Turn::Polled => {}
            Turn::Waited if sim.is_stormy() => {}
            Turn::Waited => {
                if locked(&sim.ledger).is_settled() {
                    return;
                }
                if sim.now() > sim.weather.calm_from + CALM_MAX {
                    let hanging = locked(&sim.ledger).hanging();
                    sim.violated(format!("something hangs: {hanging}"));
                    return;
                }
            }
            Turn::Idle => {
                sim.violated("nothing can happen any more".into());
                return;
            }
        }
    }
    sim.violated("it does not come to an end".into());
}
