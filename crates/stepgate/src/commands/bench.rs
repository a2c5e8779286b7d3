//! `stepgate bench`: durable steps a second, beside the bare cost of the same rows in the same commits.
//!
//! Both are measured in one run, in turns, on the same disk, and the ratio is what counts: the
//! figures themselves move with the machine.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use stepgate_core::action::Action;
use stepgate_core::gate::Gate;
use stepgate_core::run::Payload;
use stepgate_core::session::Session;
use stepgate_core::step::{self, Submission};
use stepgate_store::sqlite::Roofline;

use crate::cli::BenchArgs;
use crate::data_dir::{DataDir, Held};
use crate::show::{self, Cell, Table};

/// Each measurement is taken so often, in turns with its roofline; the median counts.
const ROUNDS: usize = 3;
/// Steps before the clock starts.
const WARM_UP_STEPS: usize = 64;
const CONTENT: &str = "The quick brown fox jumps over the lazy dog, durably and exactly once.\n";

/// One measurement.
#[derive(Serialize)]
struct Figure {
    action: &'static str,
    clients: usize,
    steps: usize,
    steps_per_second: f64,
    latency_p50_ms: f64,
    latency_p99_ms: f64,
    /// The same rows in the same commits, and the same file writes.
    roofline_steps_per_second: f64,
    /// Steps a second, as a part of the roofline.
    part_of_roofline: f64,
    /// Time of a step, as a multiple of the bare time.
    times_bare: f64,
}

pub(super) async fn bench(args: BenchArgs, json: bool) -> anyhow::Result<u8> {
    let mut table =
        Table::new(["ACTION", "CLIENTS", "STEPS/S", "P50 MS", "P99 MS", "BARE/S", "PART"]);
    for name in &args.actions {
        let action = Action::parse(name).with_context(|| format!("there is no action `{name}`"))?;
        for clients in &args.clients {
            let clients = usize::try_from(*clients)?;
            let steps = (usize::try_from(args.steps)? * clients / 64).max(500);
            let figure = measure(&args, action, clients, steps).await?;
            if json {
                show::json(&figure)?;
                continue;
            }
            anstream::eprintln!("measured {name} with {clients} client(s)");
            table.add([
                Cell::plain(figure.action),
                Cell::plain(figure.clients),
                Cell::plain(format!("{:.0}", figure.steps_per_second)),
                Cell::plain(format!("{:.2}", figure.latency_p50_ms)),
                Cell::plain(format!("{:.2}", figure.latency_p99_ms)),
                Cell::plain(format!("{:.0}", figure.roofline_steps_per_second)),
                Cell::plain(format!("{:.0} %", figure.part_of_roofline * 100.0)),
            ]);
        }
    }
    if !json {
        table.print();
    }
    Ok(0)
}

async fn measure(
    args: &BenchArgs,
    action: Action,
    clients: usize,
    steps: usize,
) -> anyhow::Result<Figure> {
    let place = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    }
    .context("cannot make a temporary directory")?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let directory = place.path().join(round.to_string());
        let real = real_steps(&directory, action, clients, steps).await?;
        let bare = bare_rows(&directory, action, clients).await?;
        fs::remove_dir_all(&directory)?;
        rounds.push((real, bare));
    }
    rounds.sort_by(|(a, _), (b, _)| a.per_second.total_cmp(&b.per_second));
    let (real, _) = rounds.get(ROUNDS / 2).context("no round")?;
    let mut bare: Vec<f64> = rounds.iter().map(|(_, bare)| *bare).collect();
    bare.sort_by(f64::total_cmp);
    let bare = *bare.get(ROUNDS / 2).context("no round")?;
    Ok(Figure {
        action: action.name(),
        clients,
        steps,
        steps_per_second: real.per_second,
        latency_p50_ms: real.percentile_ms(50),
        latency_p99_ms: real.percentile_ms(99),
        roofline_steps_per_second: bare,
        part_of_roofline: real.per_second / bare,
        times_bare: bare / real.per_second,
    })
}

struct Real {
    per_second: f64,
    /// Sorted.
    latencies: Vec<Duration>,
}

impl Real {
    fn percentile_ms(&self, percent: usize) -> f64 {
        let at = self.latencies.len().saturating_sub(1) * percent / 100;
        self.latencies.get(at).map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
    }
}

/// Real steps through a real gate: so many clients, each proposing as soon as it is answered.
async fn real_steps(
    directory: &Path,
    action: Action,
    clients: usize,
    steps: usize,
) -> anyhow::Result<Real> {
    let data = DataDir::at(directory);
    let held = data.hold().await?;
    fs::write(data.sandbox().join("read.txt"), CONTENT)?;
    let session = held.session(None).await?;
    run_clients(&held, &session, action, 1, WARM_UP_STEPS).await?;
    let start = Instant::now();
    let mut latencies = run_clients(&held, &session, action, clients, steps).await?;
    let elapsed = start.elapsed();
    latencies.sort();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let per_second = latencies.len() as f64 / elapsed.as_secs_f64();
    Ok(Real { per_second, latencies })
}

async fn run_clients(
    held: &Held,
    session: &Session,
    action: Action,
    clients: usize,
    steps: usize,
) -> anyhow::Result<Vec<Duration>> {
    let session = Arc::new(session.clone());
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..clients {
        let (gate, session) = (held.gate.clone(), session.clone());
        let steps = steps.div_ceil(clients);
        tasks.spawn(async move { run_client(&gate, &session, action, client, steps).await });
    }
    let mut latencies = Vec::with_capacity(steps);
    while let Some(client) = tasks.join_next().await {
        latencies.extend(client??);
    }
    Ok(latencies)
}

async fn run_client(
    gate: &Gate,
    session: &Session,
    action: Action,
    client: usize,
    steps: usize,
) -> anyhow::Result<Vec<Duration>> {
    let args = arguments(action, client)?;
    let mut latencies = Vec::with_capacity(steps);
    for _ in 0..steps {
        let proposal = json!({
            "schema_version": "1.0.0",
            "id": uuid::Uuid::new_v4(),
            "reasoning": "a measurement",
            "action": action.name(),
            "args": args,
        });
        let submission = Submission {
            session_id: session.session_id,
            principal_id: session.principal_id.clone(),
            payload: Payload::whole(proposal.to_string().into_bytes()),
        };
        let start = Instant::now();
        let answer = step::run(gate, submission).await?;
        latencies.push(start.elapsed());
        ensure!(answer.response.contains("\"SUCCESS\""), "{}", answer.response);
    }
    Ok(latencies)
}

fn arguments(action: Action, client: usize) -> anyhow::Result<Value> {
    Ok(match action {
        Action::Think => json!({}),
        Action::Finish => json!({ "response": CONTENT }),
        Action::ReadFile => json!({ "path": "/sandbox/read.txt" }),
        Action::ListFiles => json!({ "path": "/sandbox/" }),
        Action::WriteFile => {
            json!({ "path": format!("/sandbox/{client}.txt"), "content": CONTENT })
        }
        Action::CreateDirectory | Action::DeleteFile | Action::RenameFile => {
            bail!("{} cannot be repeated, so it is not measured", action.name())
        }
    })
}

/// The rows of those steps, written back by SQL alone, with the file writes that WRITE_FILE makes.
async fn bare_rows(directory: &Path, action: Action, clients: usize) -> anyhow::Result<f64> {
    let roofline = Roofline::of(&directory.join("stepgate.db"))?;
    let files = directory.join("bare");
    fs::create_dir_all(&files)?;
    let scratch = directory.join("bare.db");
    let steps = roofline.steps();
    let writes = match action {
        Action::WriteFile => true,
        Action::Think
        | Action::Finish
        | Action::ReadFile
        | Action::ListFiles
        | Action::CreateDirectory
        | Action::DeleteFile
        | Action::RenameFile => false,
    };
    let elapsed = tokio::task::spawn_blocking(move || {
        roofline.write(&scratch, clients, |range| {
            if writes {
                write_files(&files, range);
            }
        })
    })
    .await??;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let per_second = steps as f64 / elapsed.as_secs_f64();
    Ok(per_second)
}

/// As many durable file replacements at once as there are clients.
fn write_files(directory: &Path, range: Range<usize>) {
    let write = |number: usize| -> std::io::Result<()> {
        let path: PathBuf = directory.join(format!("{number}.txt"));
        let temporary = path.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(CONTENT.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(directory)?.sync_all()
    };
    let count = range.len();
    std::thread::scope(|scope| {
        for number in 0..count {
            scope.spawn(move || write(number));
        }
    });
}
