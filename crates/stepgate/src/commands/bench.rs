//! `stepgate bench`: durable steps per second, beside the bare cost of the same rows in the same commits, and beside a
//! plain file that the same bytes are appended to.
//!
//! All are measured in one run, in turns, on the same disk. Only the ratios count: the absolute figures depend on
//! the machine.

mod measure;
mod sqlite;
mod postgres;
mod append_only;
mod clients;
mod process;
mod served;
mod http;
mod mcp;

use std::io::{self, IsTerminal};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use stepgate_core::action::Action;

use crate::cli::{BenchArgs, Via};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};
use clients::Real;
use measure::Figure;

/// With fewer clients, a round still takes so many steps.
const STEPS_MIN: usize = 500;
const DRAWS_HZ: u8 = 4;
/// A column of the table: its head, and what it shows of a figure.
type Column = (&'static str, fn(&Figure) -> String);

/// The columns. `BARE` is the roofline, `FILE` the append-only file.
const COLUMNS: [Column; 15] = [
    ("ACTION", |it| it.action.clone()),
    ("CLIENTS", |it| it.clients.to_string()),
    ("VIA", |it| it.via.name().to_owned()),
    ("STEPS/S", |it| whole(it.steps_per_second)),
    ("P50 MS", |it| ms(it.latency_p50_ms)),
    ("P90 MS", |it| ms(it.latency_p90_ms)),
    ("P99 MS", |it| ms(it.latency_p99_ms)),
    ("P99.9 MS", |it| ms(it.latency_p99_9_ms)),
    ("MAX MS", |it| ms(it.latency_max_ms)),
    ("BARE/S", |it| whole(it.roofline_steps_per_second)),
    ("OF BARE", |it| percent(it.part_of_roofline)),
    ("FILE/S", |it| whole(it.append_only_steps_per_second)),
    ("OF FILE", |it| percent(it.part_of_append_only)),
    ("OF PROCESS", |it| it.part_of_process.map_or("-".to_owned(), percent)),
    ("VERIFIED/S", |it| it.verified_entries_per_second.map_or("-".to_owned(), whole)),
];

fn ms(latency: f64) -> String {
    format!("{latency:.2}")
}

fn whole(rate: f64) -> String {
    format!("{rate:.0}")
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

pub(super) async fn bench(data: &DataDir, args: BenchArgs) -> anyhow::Result<()> {
    // Digits that are cut off would make another number.
    let mut table = Table::new(COLUMNS.map(|(head, _)| head)).uncut();
    for name in &args.actions {
        for clients in &args.clients {
            let run = Run::of(&args, Load::parse(name)?, usize::try_from(*clients)?)?;
            let place = match &args.dir {
                Some(dir) => tempfile::tempdir_in(dir),
                None => tempfile::tempdir(),
            };
            let place = place.context("cannot make a temporary directory")?;
            let ways = Way::of(&args.via);
            let progress = progress(run, ways.len())?;
            let store = data.global.store.as_deref();
            let figures =
                measure::figures(place.path(), store, name, run, &ways, &progress).await?;
            progress.finish_and_clear();
            if !data.global.json {
                anstream::eprintln!("measured {name} with {clients} client(s)");
            }
            for figure in figures {
                match data.global.json {
                    true => show::json(&figure)?,
                    false => table.add(COLUMNS.map(|(_, shown)| Cell::plain(shown(&figure)))),
                }
            }
        }
    }
    if data.global.json { Ok(()) } else { show::say(table) }
}

/// A bar that counts the steps of the gate, of the roofline and of the append-only file, if standard error is a terminal.
fn progress(run: Run, ways: usize) -> anyhow::Result<ProgressBar> {
    if !io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let steps = u64::try_from(3 * run.rounds * ways)? * run.steps_of_round()?;
    let bar =
        ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(DRAWS_HZ));
    Ok(bar.with_style(ProgressStyle::with_template("{msg} {wide_bar} {percent} % {eta}")?))
}

#[derive(Clone, Copy)]
enum Load {
    Only(Action),
    /// A typical agent: think, list, read and write in turn.
    Mix,
}

impl Load {
    fn parse(name: &str) -> anyhow::Result<Self> {
        if name == "MIX" {
            return Ok(Self::Mix);
        }
        match Action::parse(name) {
            Some(action) => Ok(Self::Only(action)),
            None => bail!("there is no action `{name}`: name one, or MIX"),
        }
    }

    fn action(self, step: usize) -> Action {
        match (self, step % 4) {
            (Self::Only(action), _) => action,
            (Self::Mix, 0) => Action::Think,
            (Self::Mix, 1) => Action::ListFiles,
            (Self::Mix, 2) => Action::ReadFile,
            (Self::Mix, _) => Action::WriteFile,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    Process,
    /// `POST /v1/steps`, over TCP.
    Http,
    /// `tools/call` at `/mcp`, over TCP.
    Mcp,
}

impl Way {
    const ALL: [Self; 3] = [Self::Process, Self::Http, Self::Mcp];

    fn of(named: &[Via]) -> Vec<Self> {
        let is_named = |way: &Self| {
            named.iter().any(|via| match via {
                Via::All => true,
                Via::Process => *way == Self::Process,
                Via::Http => *way == Self::Http,
                Via::Mcp => *way == Self::Mcp,
            })
        };
        Self::ALL.into_iter().filter(is_named).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Http => "http",
            Self::Mcp => "mcp",
        }
    }

    async fn steps(self, data: DataDir, run: Run, progress: &ProgressBar) -> anyhow::Result<Real> {
        match self {
            Self::Process => process::steps(data, run, progress).await,
            Self::Http => http::steps(data, run, progress).await,
            Self::Mcp => mcp::steps(data, run, progress).await,
        }
    }
}

#[derive(Clone, Copy)]
struct Run {
    load: Load,
    clients: usize,
    /// Steps of one round, if they can be divided among the clients.
    steps: usize,
    /// Sessions over which the clients' steps are spread.
    sessions: usize,
    rounds: usize,
}

impl Run {
    fn of(args: &BenchArgs, load: Load, clients: usize) -> anyhow::Result<Self> {
        let steps = usize::try_from(args.steps)?;
        Ok(Self {
            load,
            clients,
            steps: (steps * clients / 64).max(STEPS_MIN.min(steps)),
            sessions: usize::try_from(args.sessions)?,
            rounds: usize::try_from(args.rounds)?,
        })
    }

    fn steps_of_client(self) -> usize {
        self.steps.div_ceil(self.clients)
    }

    fn steps_of_round(self) -> anyhow::Result<u64> {
        Ok(u64::try_from(self.clients * self.steps_of_client())?)
    }
}
