//! The clients that take the steps, whichever way: the same calls, and the same clock around each.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use stepgate_core::action::Action;
use stepgate_core::gate::Gate;
use stepgate_core::ids::SessionId;
use stepgate_core::session::Session;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::measure::rate;
use super::{Load, Run};
use crate::{commands, start};

/// Steps before the clock starts (warm-up).
const WARM_UP_STEPS: usize = 64;
pub(super) const CONTENT: &str =
    "The quick brown fox jumps over the lazy dog, durably and exactly once.\n";

/// One client. It sends the next request when the last one is answered.
pub(super) trait Client: Send + 'static {
    fn request(action: Action, args: Value) -> Vec<u8>;

    /// Sends a request, and reads the answer: an error unless the step succeeded.
    fn send(&mut self, request: Vec<u8>) -> impl Future<Output = anyhow::Result<()>> + Send;
}

pub(super) struct Real {
    pub(super) per_second: f64,
    /// How long each step took, as its client sees it, in nanoseconds.
    pub(super) latencies: Histogram<u64>,
}

/// Latencies with three significant digits, however long.
pub(super) fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new(3)?)
}

/// Warms the gate up with one client, then measures all clients at once.
pub(super) async fn measure<C: Client>(
    run: Run,
    progress: &ProgressBar,
    open: impl AsyncFn(usize) -> anyhow::Result<C>,
) -> anyhow::Result<Real> {
    let warm_up = requests::<C>(run.load, 0, WARM_UP_STEPS)?;
    take_steps(vec![(open(0).await?, warm_up)], &ProgressBar::hidden()).await?;
    // Everything is made before the clock starts: the clients' work is not the gate's cost.
    let mut clients = Vec::with_capacity(run.clients);
    for number in 0..run.clients {
        let requests = requests::<C>(run.load, number, run.steps_of_client())?;
        clients.push((open(number).await?, requests));
    }
    let start = Instant::now();
    let taken = take_steps(clients, progress).await?;
    let per_second = rate(u64::try_from(taken.len())?, start.elapsed());
    let mut latencies = histogram()?;
    for latency in taken {
        latencies.record(u64::try_from(latency.as_nanos())?)?;
    }
    Ok(Real { per_second, latencies })
}

async fn take_steps<C: Client>(
    clients: Vec<(C, Vec<Vec<u8>>)>,
    progress: &ProgressBar,
) -> anyhow::Result<Vec<Duration>> {
    let mut tasks = JoinSet::new();
    for (mut client, requests) in clients {
        let progress = progress.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::with_capacity(requests.len());
            for request in requests {
                let start = Instant::now();
                client.send(request).await?;
                latencies.push(start.elapsed());
                progress.inc(1);
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(client) = tasks.join_next().await {
        latencies.extend(client??);
    }
    Ok(latencies)
}

fn requests<C: Client>(load: Load, client: usize, count: usize) -> anyhow::Result<Vec<Vec<u8>>> {
    let request = |step| {
        let action = load.action(step);
        Ok(C::request(action, arguments(action, client)?))
    };
    (0..count).map(request).collect()
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

/// A proposal, as it is sent to the gate and to `POST /v1/steps`.
pub(super) fn proposal(action: Action, args: Value) -> Vec<u8> {
    commands::proposal(action.name(), args, REASONING).to_string().into_bytes()
}

pub(super) const REASONING: &str = "a measurement";

/// The sessions that a client's steps take in turn.
pub(super) struct Turns {
    sessions: Arc<[Session]>,
    next: usize,
}

impl Turns {
    /// Each client starts at a different session.
    pub(super) fn of(sessions: &Arc<[Session]>, client: usize, run: Run) -> Self {
        Self { sessions: Arc::clone(sessions), next: client * run.steps_of_client() }
    }

    pub(super) fn is_default(&self) -> bool {
        self.sessions.len() == 1
    }

    pub(super) fn next(&mut self) -> anyhow::Result<&Session> {
        let session = self.sessions.get(self.next % self.sessions.len().max(1));
        self.next += 1;
        session.context("there is no session")
    }
}

/// The agent's default session, and further named ones up to the count.
pub(super) async fn sessions(gate: &Gate, count: usize) -> anyhow::Result<Arc<[Session]>> {
    let agent = start::local_agent()?;
    let mut sessions = vec![gate.default_session(&agent).await?];
    while sessions.len() < count {
        sessions.push(gate.named_session(SessionId::new(Uuid::now_v7()), &agent).await?);
    }
    Ok(sessions.into())
}
