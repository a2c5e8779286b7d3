//! One measurement: rounds, each of which takes every way in turn, and the figures of all rounds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;

use super::append_only::Appended;
use super::clients::{self, Real};
use super::{Run, Way, postgres, sqlite};

#[derive(Serialize)]
pub(super) struct Figure {
    pub(super) action: String,
    pub(super) clients: usize,
    pub(super) via: Way,
    steps: usize,
    rounds: usize,
    /// The median of the rounds.
    pub(super) steps_per_second: f64,
    /// Steps of all rounds. The latencies are theirs.
    latencies: u64,
    pub(super) latency_p50_ms: f64,
    pub(super) latency_p90_ms: f64,
    pub(super) latency_p99_ms: f64,
    pub(super) latency_p99_9_ms: f64,
    pub(super) latency_max_ms: f64,
    /// The rate for the same rows in the same commits, with the same file writes.
    pub(super) roofline_steps_per_second: f64,
    pub(super) part_of_roofline: f64,
    /// Time of a step, as a multiple of the bare time.
    times_bare: f64,
    /// The rate for the values of the same rows, appended to one file.
    pub(super) append_only_steps_per_second: f64,
    /// Steps per second, as a fraction of that.
    pub(super) part_of_append_only: f64,
    append_only_bytes_per_step: f64,
    append_only_appends_per_step: f64,
    /// Steps per second, as a fraction of the steps in process; none where these were not measured beside it.
    pub(super) part_of_process: Option<f64>,
    /// Journal entries that `verify` checks per second; none for PostgreSQL.
    pub(super) verified_entries_per_second: Option<f64>,
}

pub(super) struct Round {
    pub(super) real: Real,
    pub(super) verified_per_second: Option<f64>,
    pub(super) bare_per_second: f64,
    pub(super) appended: Appended,
}

/// Measures every way, and returns one figure for each.
pub(super) async fn figures(
    place: &Path,
    store: Option<&str>,
    action: &str,
    run: Run,
    ways: &[Way],
    progress: &ProgressBar,
) -> anyhow::Result<Vec<Figure>> {
    let mut measured: Vec<(Way, Vec<Round>)> = ways.iter().map(|way| (*way, Vec::new())).collect();
    for number in 1..=run.rounds {
        for (way, rounds) in &mut measured {
            let Run { clients, rounds: last, .. } = run;
            let name = way.name();
            progress.set_message(format!("{action} {clients} {name}, round {number} of {last}"));
            let directory = place.join(format!("{number}-{name}"));
            rounds.push(match store {
                None => sqlite::round(&directory, *way, run, progress).await?,
                Some(url) => postgres::round(url, &directory, *way, run, progress).await?,
            });
            fs::remove_dir_all(&directory)?;
        }
    }
    let process = measured.iter().find(|(way, _)| *way == Way::Process && ways.len() > 1);
    let process = process.map(|(_, rounds)| rounds.as_slice());
    let figures = measured.iter().map(|(way, rounds)| figure(action, run, *way, rounds, process));
    figures.collect()
}

fn figure(
    action: &str,
    run: Run,
    via: Way,
    rounds: &[Round],
    process: Option<&[Round]>,
) -> anyhow::Result<Figure> {
    let mut latencies = clients::histogram()?;
    for round in rounds {
        latencies.add(&round.real.latencies)?;
    }
    let latency_ms = |quantile| ms(latencies.value_at_quantile(quantile));
    let median_of = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
    // Each round is compared with its own roofline and file: changes of the disk's speed affect all of them.
    let part_of_roofline = median_of(|round| round.real.per_second / round.bare_per_second);
    let part_of = |process: &[Round]| {
        let pairs = rounds.iter().zip(process);
        median(pairs.map(|(round, process)| round.real.per_second / process.real.per_second))
    };
    let verified: Option<Vec<f64>> = rounds.iter().map(|round| round.verified_per_second).collect();
    Ok(Figure {
        action: action.to_owned(),
        clients: run.clients,
        via,
        steps: run.steps,
        rounds: run.rounds,
        steps_per_second: median_of(|round| round.real.per_second),
        latencies: latencies.len(),
        latency_p50_ms: latency_ms(0.5),
        latency_p90_ms: latency_ms(0.9),
        latency_p99_ms: latency_ms(0.99),
        latency_p99_9_ms: latency_ms(0.999),
        latency_max_ms: ms(latencies.max()),
        roofline_steps_per_second: median_of(|round| round.bare_per_second),
        part_of_roofline,
        times_bare: 1.0 / part_of_roofline,
        append_only_steps_per_second: median_of(|round| round.appended.per_second),
        part_of_append_only: median_of(|round| round.real.per_second / round.appended.per_second),
        append_only_bytes_per_step: median_of(|round| round.appended.bytes_per_step),
        append_only_appends_per_step: median_of(|round| round.appended.appends_per_step),
        part_of_process: process.map(part_of),
        verified_entries_per_second: verified.map(median),
    })
}

fn ms(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64() * 1000.0
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(super) fn rate(count: u64, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let count = count as f64;
    count / elapsed.as_secs_f64()
}
