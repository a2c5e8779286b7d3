//! Recovery in the background: runs of tool servers at the start, and later the runs that a fault left behind.
//! Each server has its own passes, so that a slow call does not delay the recovery of other servers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use stepgate_core::attention;
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::lock;
use stepgate_core::recover::{self, Report, Scope};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use super::{Service, wait_until_set};
use crate::attention::NeedObject;
use crate::meters::METERS;

/// Shortest and longest pause between passes: exponential backoff while runs are left over.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How often to check whether another node is gone.
const STRAY_LOOK: Duration = Duration::from_secs(1);

/// The runs of core actions, and those of each server. The lock allows one pass at a time per scope.
pub(super) type Scopes = Vec<(Scope, Mutex<()>)>;

pub(super) fn scopes(gate: &Gate) -> Scopes {
    let tools = gate.tools.tools();
    let mut servers: Vec<_> = tools.iter().map(|it| it.name.server().to_owned()).collect();
    servers.dedup();
    let each = servers.iter().cloned().map(Scope::Server);
    let scopes = [Scope::Core].into_iter().chain(each);
    let scopes = scopes.chain([Scope::OtherServers(servers.clone())]);
    scopes.map(|scope| (scope, Mutex::new(()))).collect()
}

pub(super) async fn keep_recovering(service: Arc<Service>) {
    let mut leaving = service.leaving();
    let mut passes = Passes::default();
    service.log_runs_needing_person().await;
    // Start-up has recovered the core actions already.
    passes.begin(&service, |scope| *scope != Scope::Core);
    let mut are_strays_told = false;
    let mut pause = PAUSE_MIN;
    let mut next = Instant::now() + pause;
    loop {
        tokio::select! {
            () = passes.one_ends() => {}
            // Runs also if nothing is known to be left: a node that released a run and died before its own recovery
            // leaves nothing that counts as stray.
            () = tokio::time::sleep_until(next) => {
                are_strays_told = false;
                let has_more = passes.has_more();
                passes.begin(&service, |_| true);
                pause = if has_more { (pause * 2).min(PAUSE_MAX) } else { PAUSE_MAX };
                next = Instant::now() + pause;
            }
            () = stray_runs(&service) => {
                if !std::mem::replace(&mut are_strays_told, true) {
                    warn!("a node is gone that left runs behind: this node takes over those that it reaches");
                }
                passes.begin(&service, |_| true);
                pause = PAUSE_MIN;
                next = Instant::now() + pause;
            }
            () = service.left.notified() => {
                // The task that left the run may not have released it yet.
                pause = PAUSE_MIN;
                next = next.min(Instant::now() + pause);
            }
            () = wait_until_set(&mut leaving) => return,
        }
    }
}

/// The recovery passes, at most one at a time per scope.
#[derive(Default)]
struct Passes {
    under_way: HashSet<usize>,
    /// Scopes whose last pass left runs that the next pass may finish.
    left: HashSet<usize>,
    ending: JoinSet<(usize, bool)>,
}

impl Passes {
    /// Begins a pass over each scope that is due, unless its last pass is still running.
    fn begin(&mut self, service: &Arc<Service>, is_due: impl Fn(&Scope) -> bool) {
        let scopes = service.scopes.iter().enumerate();
        for (index, _) in scopes.filter(|(_, (scope, _))| is_due(scope)) {
            if self.under_way.insert(index) {
                let service = Arc::clone(service);
                self.ending.spawn(async move { (index, leaves_something(&service, index).await) });
            }
        }
    }

    /// Waits until a pass ends; forever if none is running.
    async fn one_ends(&mut self) {
        match self.ending.join_next().await {
            Some(Ok((index, leaves_something))) => {
                self.under_way.remove(&index);
                match leaves_something {
                    true => self.left.insert(index),
                    false => self.left.remove(&index),
                };
            }
            // A pass that panics ends the process (decision 26); at shutdown it is cancelled.
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }

    fn has_more(&self) -> bool {
        !self.left.is_empty() || !self.under_way.is_empty()
    }
}

/// Waits until a node is gone that left runs behind.
async fn stray_runs(service: &Service) {
    loop {
        tokio::time::sleep(STRAY_LOOK).await;
        // While the store does not answer, nothing can be recovered: keep polling.
        if service.gate.store.has_stray_runs().await.unwrap_or(false) {
            return;
        }
    }
}

/// Runs a pass. Whether it leaves runs that the next pass may finish.
async fn leaves_something(service: &Service, index: usize) -> bool {
    match pass(service, index).await {
        Ok(Report { in_doubt, stuck, .. }) => !in_doubt.is_empty() || !stuck.is_empty(),
        Err(fault) => {
            service.note_broken(&fault);
            warn!("recovery goes on later: {fault}");
            true
        }
    }
}

/// One pass over the runs of a scope. Reports the runs that need a person before it returns.
async fn pass(service: &Service, index: usize) -> Result<Report, Fault> {
    let Some((scope, turn)) = service.scopes.get(index) else { return Ok(Report::default()) };
    let _turn = turn.lock().await;
    let report = recover_and_tell(&service.gate, scope.clone()).await?;
    service.log_runs_needing_person().await;
    Ok(report)
}

/// Recovers the runs of a scope, and makes durable which of them need a person. Where that is not possible now, the
/// next recovery does it.
pub(crate) async fn recover_and_tell(gate: &Gate, scope: Scope) -> Result<Report, Fault> {
    let report = recover::recover(gate, scope).await?;
    METERS.count_recovered(report.finished.len());
    if let Err(fault) = attention::tell(gate, &report).await {
        warn!("which runs need a person is written down later: {fault}");
    }
    Ok(report)
}

impl Service {
    /// Runs a pass over every scope now, and returns what it did.
    pub async fn recover(self: &Arc<Self>) -> Result<Report, Fault> {
        let mut passes = JoinSet::new();
        for index in 0..self.scopes.len() {
            let service = Arc::clone(self);
            passes.spawn(async move { pass(&service, index).await });
        }
        let mut report = Report::default();
        while let Some(ended) = passes.join_next().await {
            report.add(ended.map_err(super::stopped)??);
        }
        Ok(report)
    }

    /// Logs a line for each run that needs a person, once per process.
    pub(super) async fn log_runs_needing_person(&self) {
        let Ok(needs) = attention::of(&self.gate).await else { return };
        for need in needs {
            let Some(run_id) = need.subject.run_id() else { continue };
            let mut said = lock::locked(&self.said);
            if said.insert(run_id, need.since) != Some(need.since) {
                NeedObject::of(&need).log();
            }
        }
    }
}
