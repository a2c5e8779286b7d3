//! Steps a second, durable, with a budget that every call is charged to and without one, in turns. The tools do nothing, so
//! that the store's part is as large as it can be, and all calls are charged to one account.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use stepgate_core::gate::Gate;
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::ports::Store;
use stepgate_core::run::Payload;
use stepgate_core::step::{self, Submission};
use stepgate_store::postgres::{PostgresOptions, Scratch};
use stepgate_store::{PostgresStore, SqliteOptions, SqliteStore};
use uuid::Uuid;

use crate::parts::{self, AGENT, Meter};
use crate::proposal;

/// Rounds, each with a budget and without one. The median counts.
const ROUNDS: usize = 9;
/// Steps of a round, over all clients.
const STEPS: usize = 2_048;

const PERMIT: &str = "permit (principal, action, resource);";
const BUDGET: &str = "[budget.payments]\nargument = \"amount\"\nlimit = \"900000000.00\"\n\
                      per = \"principal\"\nwindow = \"ever\"\n";

/// On the PostgreSQL of this address, or else on SQLite in the current directory.
pub(crate) async fn measure(url: Option<&str>) -> anyhow::Result<()> {
    println!("steps a second, median of {ROUNDS} rounds of {STEPS} steps, in turns");
    println!("{:>8} {:>16} {:>14} {:>8}", "clients", "without budget", "with a budget", "ratio");
    for clients in [1, 64] {
        let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let rates = [round(url, "", clients).await?, round(url, BUDGET, clients).await?];
            without.push(rates[0]);
            with.push(rates[1]);
            ratios.push(rates[1] / rates[0]);
        }
        let [without, with, ratio] = [without, with, ratios].map(median);
        println!("{clients:>8} {without:>16.0} {with:>14.0} {ratio:>8.2}");
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

async fn round(url: Option<&str>, budgets: &str, clients: usize) -> anyhow::Result<f64> {
    match url {
        None => {
            let directory = tempfile::tempdir_in(".").context("cannot make a directory here")?;
            let store = sqlite(&directory.path().join("stepgate.db"))?;
            rate(store, budgets, clients).await
        }
        Some(url) => {
            let scratch = Scratch::make(url, "stepgate_bench_budget").await?;
            let store = PostgresStore::open(scratch.url(), PostgresOptions::default()).await?;
            let rate = rate(Arc::new(store), budgets, clients).await?;
            scratch.remove().await?;
            Ok(rate)
        }
    }
}

fn sqlite(path: &Path) -> anyhow::Result<Arc<dyn Store>> {
    Ok(Arc::new(SqliteStore::open(path, SqliteOptions::default())?))
}

async fn rate(store: Arc<dyn Store>, budgets: &str, clients: usize) -> anyhow::Result<f64> {
    let meter = Arc::new(Meter::default());
    let gate = Arc::new(parts::gate(PERMIT, budgets, Arc::clone(&store), &meter)?);
    let mut sessions = Vec::new();
    for _ in 0..clients {
        let session_id = SessionId::new(Uuid::now_v7());
        let session = gate.named_session(session_id, &PrincipalId::parse(AGENT)?).await?;
        client(&gate, session.session_id, 8).await?;
        sessions.push(session.session_id);
    }
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for session_id in sessions {
        let gate = Arc::clone(&gate);
        running.spawn(async move { client(&gate, session_id, STEPS / clients).await });
    }
    for done in running.join_all().await {
        done?;
    }
    let elapsed = start.elapsed();
    store.leave().await;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let steps = STEPS as f64;
    Ok(steps / elapsed.as_secs_f64())
}

/// One client: it proposes again as soon as it is answered.
async fn client(gate: &Gate, session_id: SessionId, steps: usize) -> anyhow::Result<()> {
    for number in 0..steps {
        let principal_id = PrincipalId::parse(AGENT)?;
        let payload = Payload::whole(proposal(number).to_string().into_bytes());
        let answer = step::run(gate, Submission { session_id, principal_id, payload }).await?;
        ensure!(answer.body().contains("\"SUCCESS\""), "not done: {}", answer.body());
    }
    Ok(())
}
