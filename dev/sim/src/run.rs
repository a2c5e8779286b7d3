//! Start here: one seed, from its first event to its last.

use std::sync::Arc;

use crate::end;
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
    let mut driver = Driver::new(&sim.env.schedule);
    for node in 0..sim.processes.nodes() {
        sim.processes.start(node);
    }
    people::begin(&sim);
    drive(&sim, &mut driver);
    if sim.env.violation().is_none() {
        end::check(&sim);
    }
    driver.clear();
    sim.processes.clear();
    let mut trace = locked(&sim.env.trace);
    Outcome {
        seed,
        events: trace.events(),
        digest: trace.digest(),
        simulated_ms: sim.env.now() / 1000,
        runs: sim.shared.ledger.runs(),
        violation: sim.env.violation(),
        lines: trace.take_lines(),
    }
}

/// Until everything has come to rest, or something is wrong.
fn drive(sim: &Arc<Sim>, driver: &mut Driver<'_>) {
    let mut chance = by_chance(&sim.env.chance);
    for _ in 0..TURNS_MAX {
        let turn = driver.turn(&mut chance);
        if sim.env.violation().is_some() {
            return;
        }
        match turn {
            Turn::Polled => {}
            Turn::Waited if sim.env.is_stormy() => {}
            Turn::Waited => {
                if sim.shared.ledger.is_settled() {
                    return;
                }
                if sim.env.now() > sim.env.weather.calm_from + CALM_MAX {
                    let hanging = sim.shared.ledger.hanging();
                    sim.env.violated(format!("something hangs: {hanging}"));
                    return;
                }
            }
            Turn::Idle => {
                sim.env.violated("nothing can happen any more".into());
                return;
            }
        }
    }
    sim.env.violated("it does not come to an end".into());
}
