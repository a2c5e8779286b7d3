//! `cargo xtask simulate`: many seeds, or one that is shown event by event.

use std::process::ExitCode;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use stepgate_sim::{Options, Outcome, Sabotage, simulate, sweep};

const USAGE: &str = "\
usage: cargo xtask simulate [--seeds N] [--from M] [--sabotage NAME]
       cargo xtask simulate --seed N [--trace] [--sabotage NAME]

  --seeds N         how many seeds, 10000 unless told otherwise
  --from M          the first seed, 0 unless told otherwise
  --seed N          one seed
  --trace           shows every event of it
  --sabotage NAME   takes a guard away, to see that it is missed

Examples:
  cargo xtask simulate --seeds 100000
  cargo xtask simulate --seed 4711 --trace";

/// Events that are shown of a seed that failed.
const LAST_LINES: usize = 60;
/// Failures after which a sweep ends.
const FAILURES_MAX: usize = 3;

#[derive(Default)]
struct Asked {
    seeds: Option<u64>,
    from: u64,
    seed: Option<u64>,
    is_traced: bool,
    sabotage: Option<Sabotage>,
}

fn main() -> ExitCode {
    let asked = match read(std::env::args().skip(1)) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let holds = match asked.seed {
        Some(seed) => one(seed, &asked),
        None => many(&asked),
    };
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Option<Asked>, String> {
    let mut asked = Asked::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        let number = |text: String| {
            text.replace('_', "").parse().map_err(|_| format!("`{text}` is not a number"))
        };
        match word.as_str() {
            "--seeds" => asked.seeds = Some(number(value()?)?),
            "--from" => asked.from = number(value()?)?,
            "--seed" => asked.seed = Some(number(value()?)?),
            "--sabotage" => asked.sabotage = Some(value()?.parse()?),
            "--trace" => asked.is_traced = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("there is no option `{other}`")),
        }
    }
    Ok(Some(asked))
}

/// Shows one seed. Whether everything held.
fn one(seed: u64, asked: &Asked) -> bool {
    let outcome = simulate(seed, Options { sabotage: asked.sabotage, is_traced: true });
    let shown = if asked.is_traced { usize::MAX } else { LAST_LINES };
    show(&outcome, shown, asked.sabotage);
    outcome.violation.is_none()
}

/// Simulates many. Whether everything held in all of them.
fn many(asked: &Asked) -> bool {
    let seeds = asked.seeds.unwrap_or(10_000);
    let bar = ProgressBar::new(seeds);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta}")
    {
        bar.set_style(style);
    }
    let start = Instant::now();
    let options = Options { sabotage: asked.sabotage, is_traced: false };
    let swept = sweep(asked.from, seeds, FAILURES_MAX, options, || bar.inc(1));
    bar.finish_and_clear();
    println!(
        "{} seeds, {} runs, {} events in {:.1} s: {} failed",
        swept.seeds,
        swept.runs,
        swept.events,
        start.elapsed().as_secs_f32(),
        swept.failed.len()
    );
    for failed in &swept.failed {
        let violation = failed.violation.as_deref().unwrap_or_default();
        println!("seed {}: {violation}", failed.seed);
    }
    if let Some(first) = swept.failed.first() {
        let again = simulate(first.seed, Options { is_traced: true, ..options });
        show(&again, LAST_LINES, options.sabotage);
    }
    swept.failed.is_empty()
}

fn show(outcome: &Outcome, lines_max: usize, sabotage: Option<Sabotage>) {
    let skipped = outcome.lines.len().saturating_sub(lines_max);
    for line in outcome.lines.iter().skip(skipped) {
        println!("{line}");
    }
    println!(
        "seed {}: {} events, {} runs, {} ms, digest {:016x}",
        outcome.seed, outcome.events, outcome.runs, outcome.simulated_ms, outcome.digest
    );
    match &outcome.violation {
        None => println!("everything held"),
        Some(violation) => {
            println!("VIOLATION: {violation}");
            let sabotage = sabotage.map(|it| format!(" --sabotage {it}")).unwrap_or_default();
            println!(
                "again, in full: cargo xtask simulate --seed {} --trace{sabotage}",
                outcome.seed
            );
        }
    }
}
