//! How sessions spread over several databases, by a simulation with measured figures.
//!
//! A session is placed on a database when it opens, by a hash of its id, and stays there: its chain is
//! one order, kept in one place. A few sessions do most of the work, and they work in bursts. A database
//! takes one step after the other, in the time that was measured.

#[cfg(test)]
mod tests;

use super::chance::{Chance, mixed};
use super::median;

/// How many databases are tried.
const DATABASES: [usize; 4] = [1, 2, 4, 8];
/// Sessions that are open at one time, and how unequal they are: the exponent of Zipf's law.
const POPULATIONS: [(usize, f64); 3] = [(1_000, 0.6), (1_000, 1.0), (10_000, 1.0)];
/// Each is tried with so many seeds; the median is shown, and the worst.
const SEEDS: u64 = 15;
/// What all databases together are asked to do, as a part of what they could.
const ASKED: f64 = 0.5;
/// How full the fullest may be: beyond it, waiting grows faster than work.
const FULL: f64 = 0.7;
const SECONDS: f64 = 15.0;
/// An agent's turn: so many steps on average, with so many seconds between them.
const BURST_STEPS: f64 = 8.0;
const BURST_PAUSE: f64 = 0.05;

/// Prints the tables, for databases that carry so many steps a second each.
pub(super) fn tables(carried: f64) {
    println!("\n### How sessions spread\n");
    println!(
        "Simulated, with {carried:.0} steps a second for each database. Asked for: {:.0} % of what all could do.\n",
        ASKED * 100.0
    );
    println!(
        "| open sessions | skew | databases | fullest, median (worst) | waiting p99 ms, median (worst) \
         | steps/s with the fullest at {:.0} %, median (worst) | of all alike |",
        FULL * 100.0
    );
    println!("|---|---|---|---|---|---|---|");
    for (sessions, skew) in POPULATIONS {
        for databases in DATABASES {
            row(carried, sessions, skew, databases);
        }
    }
    println!("\n### Adding a database to four\n");
    println!("| mean lives of a session since | new one's part of the work | fullest's part |");
    println!("|---|---|---|");
    for lives in [0.0, 0.5, 1.0, 2.0, 4.0] {
        let grown: Vec<_> = (0..SEEDS).map(|seed| Grown::after(4, lives, seed)).collect();
        let newest = median(grown.iter().map(|grown| grown.newest).collect());
        let fullest = median(grown.iter().map(|grown| grown.fullest).collect());
        println!("| {lives} | {:.1} % | {:.1} % |", newest * 100.0, fullest * 100.0);
    }
}

fn row(carried: f64, sessions: usize, skew: f64, databases: usize) {
    let outcome = |seed| {
        let town = Town {
            databases,
            sessions,
            skew,
            steps_per_second: ASKED * carried * databases as f64,
            burst_steps: BURST_STEPS,
            burst_pause: BURST_PAUSE,
            service: 1.0 / carried,
            seconds: SECONDS,
        };
        (town.largest_part(seed), town.live(seed))
    };
    let outcomes: Vec<_> = (0..SEEDS).map(outcome).collect();
    let shown = |values: Vec<f64>, worst: fn(f64, f64) -> f64| {
        let edge = values.iter().copied().reduce(worst).unwrap_or_default();
        (median(values), edge)
    };
    let fullest = outcomes.iter().map(|(_, day)| day.fullest * 100.0).collect();
    let waits = outcomes.iter().map(|(_, day)| day.waited_p99 * 1000.0).collect();
    let alike = FULL * carried * databases as f64;
    let carried_at_full = outcomes.iter().map(|(part, _)| FULL * carried / part).collect();
    let (fullest, fullest_worst) = shown(fullest, f64::max);
    let (wait, wait_worst) = shown(waits, f64::max);
    let (total, total_worst) = shown(carried_at_full, f64::min);
    println!(
        "| {sessions} | {skew} | {databases} | {fullest:.0} % ({fullest_worst:.0} %) \
         | {wait:.1} ({wait_worst:.1}) | {total:.0} ({total_worst:.0}) | {:.0} % |",
        total / alike * 100.0
    );
}

/// Where a session lives: every database bids, and the highest bid has it (rendezvous). One more
/// database takes a part of the sessions from each, and no session changes between the others.
fn place(session: u64, databases: usize) -> usize {
    let bid = |database: &usize| mixed(session ^ mixed(*database as u64 + 1));
    (0..databases).max_by_key(bid).unwrap_or_default()
}

/// Sessions, and the databases that keep them. Times in seconds.
#[derive(Clone, Debug)]
struct Town {
    databases: usize,
    sessions: usize,
    /// The exponent of Zipf's law; 0 makes all sessions alike.
    skew: f64,
    /// What all sessions together ask for.
    steps_per_second: f64,
    burst_steps: f64,
    burst_pause: f64,
    /// How long a database takes for a step.
    service: f64,
    seconds: f64,
}

/// What a simulated while came to.
#[derive(Clone, Debug, PartialEq)]
struct Day {
    /// How many steps each database was asked for, and did.
    asked: Vec<usize>,
    served: Vec<usize>,
    /// The part of the time that the busiest database worked.
    fullest: f64,
    waited_mean: f64,
    waited_p99: f64,
}

impl Town {
    fn live(&self, seed: u64) -> Day {
        let arrivals = self.arrivals(seed);
        let mut day = Day {
            asked: arrivals.iter().map(Vec::len).collect(),
            served: Vec::new(),
            fullest: 0.0,
            waited_mean: 0.0,
            waited_p99: 0.0,
        };
        let mut waits = Vec::new();
        for arrivals in arrivals {
            let before = waits.len();
            let busy = self.serve(arrivals, &mut waits);
            day.served.push(waits.len() - before);
            day.fullest = day.fullest.max(busy / self.seconds);
        }
        waits.sort_by(f64::total_cmp);
        day.waited_mean = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
        day.waited_p99 = waits.get(waits.len() * 99 / 100).copied().unwrap_or_default();
        day
    }

    /// One step after the other, in the order in which they come. Answers how long it worked before the
    /// end of the while; what is left then is still done.
    fn serve(&self, mut arrivals: Vec<f64>, waits: &mut Vec<f64>) -> f64 {
        arrivals.sort_by(f64::total_cmp);
        let (mut free, mut busy) = (0.0_f64, 0.0);
        for arrival in arrivals {
            let start = free.max(arrival);
            waits.push(start - arrival);
            free = start + self.service;
            busy += (free.min(self.seconds) - start.min(self.seconds)).max(0.0);
        }
        busy
    }

    /// When each database is asked for a step.
    fn arrivals(&self, seed: u64) -> Vec<Vec<f64>> {
        let mut arrivals = vec![Vec::new(); self.databases];
        for Resident { session, part } in self.residents(seed) {
            let bursts_per_second = self.steps_per_second * part / self.burst_steps;
            let mut chance = Chance::new(session);
            let Some(database) = arrivals.get_mut(place(session, self.databases)) else { continue };
            let mut at = chance.pause(1.0 / bursts_per_second);
            while at < self.seconds {
                let mut step = at;
                for _ in 0..chance.run_length(self.burst_steps) {
                    if step < self.seconds {
                        database.push(step);
                    }
                    step += chance.pause(self.burst_pause);
                }
                at += chance.pause(1.0 / bursts_per_second);
            }
        }
        arrivals
    }

    /// The part of all work that the database has that has most of it.
    fn largest_part(&self, seed: u64) -> f64 {
        let mut parts = vec![0.0; self.databases];
        for Resident { session, part } in self.residents(seed) {
            if let Some(sum) = parts.get_mut(place(session, self.databases)) {
                *sum += part;
            }
        }
        parts.into_iter().fold(0.0, f64::max)
    }

    fn residents(&self, seed: u64) -> Vec<Resident> {
        let mut chance = Chance::new(mixed(seed));
        let weight = |rank: usize| ((rank + 1) as f64).powf(-self.skew);
        let all: f64 = (0..self.sessions).map(weight).sum();
        let resident = |rank| Resident { session: chance.number(), part: weight(rank) / all };
        (0..self.sessions).map(resident).collect()
    }
}

/// A session, and its part of all work.
struct Resident {
    session: u64,
    part: f64,
}

/// A town some time after it got one database more. A session that ends is followed by a new one that
/// works as much; only new ones are placed on all databases, the others stay where they are.
struct Grown {
    newest: f64,
    fullest: f64,
}

impl Grown {
    fn after(databases: usize, lives: f64, seed: u64) -> Self {
        let town = Town {
            databases,
            sessions: 10_000,
            skew: 0.6,
            steps_per_second: 0.0,
            burst_steps: BURST_STEPS,
            burst_pause: BURST_PAUSE,
            service: 0.0,
            seconds: 0.0,
        };
        let mut chance = Chance::new(mixed(seed ^ mixed(databases as u64)));
        let mut parts = vec![0.0; databases + 1];
        for Resident { session, part } in town.residents(seed) {
            let is_new = chance.pause(1.0) < lives;
            let home = match is_new {
                true => place(chance.number(), databases + 1),
                false => place(session, databases),
            };
            if let Some(sum) = parts.get_mut(home) {
                *sum += part;
            }
        }
        let newest = parts.last().copied().unwrap_or_default();
        Self { newest, fullest: parts.into_iter().fold(0.0, f64::max) }
    }
}
