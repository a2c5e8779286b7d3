//! `stepgate bench`: durable steps per second, compared with the bare cost of the same rows in the same commits.
//!
//! Both are measured in one run, alternating, on the same disk. Only the ratio counts: the absolute figures depend on
//! the machine.

mod postgres;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use stepgate_core::action::Action;
use stepgate_core::gate::Gate;
use stepgate_core::ids::SessionId;
use stepgate_core::run::Payload;
use stepgate_core::session::Session;
use stepgate_core::step::{self, Submission};
use stepgate_core::verify;
use stepgate_store::SqliteStore;
use stepgate_store::sqlite::Roofline;

use crate::cli::BenchArgs;
use crate::data_dir::DataDir;
use crate::show::{self, Cell, Table};
use crate::start::{self, Held};

/// Rounds per measurement, alternating with the roofline. The median counts.
const ROUNDS: usize = 9;
/// Steps before the clock starts (warm-up).
const WARM_UP_STEPS: usize = 64;
const CONTENT: &str = "The quick brown fox jumps over the lazy dog, durably and exactly once.\n";

/// What the clients propose.
#[derive(Clone, Copy)]
enum Load {
    /// One action, repeated.
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

/// One measurement.
#[derive(Serialize)]
struct Figure {
    action: String,
    clients: usize,
    steps: usize,
    steps_per_second: f64,
    latency_p50_ms: f64,
    latency_p99_ms: f64,
    /// The rate for the same rows in the same commits, with the same file writes.
    roofline_steps_per_second: f64,
    /// Steps per second, as a fraction of the roofline.
    part_of_roofline: f64,
    /// Time of a step, as a multiple of the bare time.
    times_bare: f64,
    /// Journal entries that `verify` checks per second; none for PostgreSQL.
    verified_entries_per_second: Option<f64>,
}

pub(super) async fn bench(data: &DataDir, args: BenchArgs) -> anyhow::Result<u8> {
    const HEADER: [&str; 8] =
        ["ACTION", "CLIENTS", "STEPS/S", "P50 MS", "P99 MS", "BARE/S", "PART", "VERIFIED/S"];
    let mut table = Table::new(HEADER);
    for name in &args.actions {
        let load = Load::parse(name)?;
        for clients in &args.clients {
            let clients = usize::try_from(*clients)?;
            let steps = (usize::try_from(args.steps)? * clients / 64).max(500);
            let sessions = usize::try_from(args.sessions)?;
            let run = Run { load, clients, steps, sessions };
            let figure = measure(&args, data.global.store.as_deref(), name, run).await?;
            if data.global.json {
                show::json(&figure)?;
                continue;
            }
            anstream::eprintln!("measured {name} with {clients} client(s)");
            let verified = figure.verified_entries_per_second.map(|rate| format!("{rate:.0}"));
            table.add([
                Cell::plain(&figure.action),
                Cell::plain(figure.clients),
                Cell::plain(format!("{:.0}", figure.steps_per_second)),
                Cell::plain(format!("{:.2}", figure.latency_p50_ms)),
                Cell::plain(format!("{:.2}", figure.latency_p99_ms)),
                Cell::plain(format!("{:.0}", figure.roofline_steps_per_second)),
                Cell::plain(format!("{:.0} %", figure.part_of_roofline * 100.0)),
                Cell::plain(verified.unwrap_or_else(|| "-".to_owned())),
            ]);
        }
    }
    if !data.global.json {
        show::say(table)?;
    }
    Ok(0)
}

/// The size of a measurement.
#[derive(Clone, Copy)]
struct Run {
    load: Load,
    clients: usize,
    steps: usize,
    /// Sessions over which the clients' steps are spread.
    sessions: usize,
}

async fn measure(
    args: &BenchArgs,
    store: Option<&str>,
    name: &str,
    run: Run,
) -> anyhow::Result<Figure> {
    let Run { clients, steps, .. } = run;
    let place = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    }
    .context("cannot make a temporary directory")?;
    let (mut rounds, mut verified) = (Vec::with_capacity(ROUNDS), Vec::new());
    for round in 0..ROUNDS {
        let directory = place.path().join(round.to_string());
        let (real, bare) = match store {
            None => {
                let real = real_steps(DataDir::at(&directory), run).await?;
                verified.push(verified_entries(&directory).await?);
                (real, bare_rows(&directory, clients).await?)
            }
            Some(url) => postgres::round(url, &directory, run).await?,
        };
        fs::remove_dir_all(&directory)?;
        rounds.push((real, bare));
    }
    // Each round is compared with its own roofline: changes of the disk's speed affect both.
    let part_of_roofline =
        median(rounds.iter().map(|(real, bare)| real.per_second / bare).collect());
    let roofline_steps_per_second = median(rounds.iter().map(|(_, bare)| *bare).collect());
    rounds.sort_by(|(a, _), (b, _)| a.per_second.total_cmp(&b.per_second));
    let (real, _) = rounds.get(ROUNDS / 2).context("no round")?;
    Ok(Figure {
        action: name.to_owned(),
        clients,
        steps,
        steps_per_second: real.per_second,
        latency_p50_ms: real.percentile_ms(50),
        latency_p99_ms: real.percentile_ms(99),
        roofline_steps_per_second,
        part_of_roofline,
        times_bare: 1.0 / part_of_roofline,
        verified_entries_per_second: (!verified.is_empty()).then(|| median(verified)),
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
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

/// Real steps through a real gate: each client proposes again as soon as it is answered.
async fn real_steps(data: DataDir, run: Run) -> anyhow::Result<Real> {
    let Run { load, clients, steps, sessions } = run;
    let held = start::hold_recovered(&data).await?;
    fs::write(data.sandbox().join("read.txt"), CONTENT)?;
    let sessions = sessions_of(&held, sessions).await?;
    run_clients(&held, &sessions, proposals(load, 1, WARM_UP_STEPS)?).await?;
    // Built before the clock starts: the clients' work is not the gate's cost.
    let proposals = proposals(load, clients, steps)?;
    let start = Instant::now();
    let mut latencies = run_clients(&held, &sessions, proposals).await?;
    let elapsed = start.elapsed();
    held.gate.store.leave().await;
    latencies.sort();
    let per_second = rate(u64::try_from(latencies.len())?, elapsed);
    Ok(Real { per_second, latencies })
}

/// How many per second.
fn rate(count: u64, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let count = count as f64;
    count / elapsed.as_secs_f64()
}

/// The default session, and further named ones up to the count.
async fn sessions_of(held: &Held, count: usize) -> anyhow::Result<Arc<[Session]>> {
    let mut sessions = vec![held.session(None).await?];
    while sessions.len() < count {
        sessions.push(held.session(Some(SessionId::new(uuid::Uuid::now_v7()))).await?);
    }
    Ok(sessions.into())
}

/// How many journal entries of the store `verify` checks per second.
async fn verified_entries(directory: &Path) -> anyhow::Result<f64> {
    let store = SqliteStore::open_read_only(&directory.join("stepgate.db"))?;
    let start = Instant::now();
    let report = verify::verify(&store, &[], |_| {}).await?;
    ensure!(report.problems.is_empty(), "the store does not verify: {:?}", report.problems);
    Ok(rate(report.entries, start.elapsed()))
}

/// The proposals of each client, ready to be sent.
fn proposals(load: Load, clients: usize, steps: usize) -> anyhow::Result<Vec<Vec<Payload>>> {
    let proposal = |client: usize, step: usize| {
        let action = load.action(step);
        let proposal = json!({
            "schema_version": "1.0.0",
            "id": uuid::Uuid::new_v4(),
            "reasoning": "a measurement",
            "action": action.name(),
            "args": arguments(action, client)?,
        });
        Ok(Payload::whole(proposal.to_string().into_bytes()))
    };
    let of_client =
        |client| (0..steps.div_ceil(clients)).map(|step| proposal(client, step)).collect();
    (0..clients).map(of_client).collect()
}

async fn run_clients(
    held: &Held,
    sessions: &Arc<[Session]>,
    proposals: Vec<Vec<Payload>>,
) -> anyhow::Result<Vec<Duration>> {
    let mut tasks = tokio::task::JoinSet::new();
    for (client, payloads) in proposals.into_iter().enumerate() {
        let (gate, sessions) = (held.gate.clone(), Arc::clone(sessions));
        tasks.spawn(async move { run_client(&gate, &sessions, client, payloads).await });
    }
    let mut latencies = Vec::new();
    while let Some(client) = tasks.join_next().await {
        latencies.extend(client??);
    }
    Ok(latencies)
}

async fn run_client(
    gate: &Gate,
    sessions: &[Session],
    client: usize,
    payloads: Vec<Payload>,
) -> anyhow::Result<Vec<Duration>> {
    let mut latencies = Vec::with_capacity(payloads.len());
    // Each client starts at a different session.
    let turns = sessions.iter().cycle().skip(client * payloads.len() % sessions.len().max(1));
    for (payload, session) in payloads.into_iter().zip(turns) {
        let submission = Submission {
            session_id: session.session_id,
            principal_id: session.principal_id.clone(),
            payload,
        };
        let start = Instant::now();
        let answer = step::run(gate, submission).await?;
        latencies.push(start.elapsed());
        ensure!(answer.word().as_str() == "SUCCESS", "{}", answer.body());
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

/// Writes the rows of those steps with plain SQL, and the file writes of WRITE_FILE.
async fn bare_rows(directory: &Path, clients: usize) -> anyhow::Result<f64> {
    let roofline = Roofline::of(&directory.join("stepgate.db"))?;
    let files = directory.join("bare");
    fs::create_dir_all(&files)?;
    let scratch = directory.join("bare.db");
    let steps = roofline.steps();
    let elapsed = tokio::task::spawn_blocking(move || {
        roofline.write(&scratch, clients, |range| {
            let is_write = |step: &usize| roofline.tool(*step) == Some(Action::WriteFile.name());
            write_files(&files, range.filter(is_write).count());
        })
    })
    .await??;
    Ok(rate(u64::try_from(steps)?, elapsed))
}

/// Makes this many durable file replacements, all at once.
fn write_files(directory: &Path, count: usize) {
    let write = |number: usize| -> std::io::Result<()> {
        let path: PathBuf = directory.join(format!("{number}.txt"));
        let temporary = path.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(CONTENT.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(directory)?.sync_all()
    };
    std::thread::scope(|scope| {
        for number in 0..count {
            scope.spawn(move || write(number));
        }
    });
}
