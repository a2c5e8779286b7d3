//! The simulation itself: it repeats, it holds, and it would notice if a guard were missing.

use stepgate_sim::{Options, Sabotage, simulate, sweep};

/// Seeds of the ordinary test run, unless `STEPGATE_SIM_SEEDS` says otherwise.
const SEEDS: u64 = 20_000;

/// A missing guard must be noticed by a seed below this one.
const SABOTAGE_SEED_MAX: u64 = 50_000;

fn table() -> Vec<(Sabotage, u64)> {
    let page = include_str!("../../../../docs/simulation.md");
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let sabotage = cells.next()?.trim_end_matches('`').parse().ok()?;
        let seed = cells.last()?.trim_end_matches(" |").trim().parse().ok()?;
        Some((sabotage, seed))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn the_same_seed_has_the_same_history_event_by_event() {
    for seed in 0..60 {
        let options = Options { is_traced: true, ..Options::default() };
        let (first, second) = (simulate(seed, options), simulate(seed, options));
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(first.lines.len() as u64, first.events);
    }
}

#[test]
fn a_trace_that_nobody_reads_has_the_same_digest() {
    for seed in 0..60 {
        let shown = simulate(seed, Options { is_traced: true, ..Options::default() });
        let unseen = simulate(seed, Options::default());
        assert_eq!((shown.digest, shown.events), (unseen.digest, unseen.events), "seed {seed}");
    }
}

#[test]
fn other_seeds_have_other_histories() {
    let mut digests: Vec<u64> =
        (0..200).map(|seed| simulate(seed, Options::default()).digest).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 200);
}

#[test]
fn no_seed_breaks_a_promise() {
    let seeds = std::env::var("STEPGATE_SIM_SEEDS").ok();
    let seeds = seeds.map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let swept = sweep(0, seeds, 10, Options::default(), || ());
    println!("{} seeds, {} runs, {} events", swept.seeds, swept.runs, swept.events);
    for failed in &swept.failed {
        let violation = failed.violation.as_deref().unwrap_or_default();
        println!("seed {}: {violation}", failed.seed);
        println!("again: cargo xtask simulate --seed {} --trace", failed.seed);
    }
    assert_eq!(swept.failed.len(), 0);
}

#[test]
fn every_missing_guard_is_noticed_by_the_seed_that_the_documentation_names() {
    let table = table();
    let named: Vec<Sabotage> = table.iter().map(|(sabotage, _)| *sabotage).collect();
    assert_eq!(named, Sabotage::ALL);
    for (sabotage, seed) in table {
        assert!(seed < SABOTAGE_SEED_MAX, "{sabotage}");
        let without = simulate(seed, Options { sabotage: Some(sabotage), ..Options::default() });
        println!("{sabotage}, seed {seed}: {:?}", without.violation);
        assert!(without.violation.is_some(), "{sabotage} is not noticed by seed {seed}");
        assert_eq!(simulate(seed, Options::default()).violation, None, "seed {seed}");
    }
}
