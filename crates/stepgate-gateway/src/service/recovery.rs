//! Recovery beside the requests: runs of tool servers at the start, and later whatever a fault left. Each
//! server has passes of its own, so that a call which takes its time keeps no other server's waiting.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use stepgate_core::attention;
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::recover::{self, Report, Scope};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Service, is_set};
use crate::attention::NeedObject;

/// The first pause after a recovery that left something, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How often to look whether another node is gone.
const STRAY_LOOK: Duration = Duration::from_secs(1);

/// The runs of core actions, and those of each server. The lock lets one pass at a time go over them.
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
    service.say_what_needs_a_person().await;
    // What belongs to core actions was recovered before the first request.
    passes.begin(&service, |scope| *scope != Scope::Core);
    let mut pause = PAUSE_MIN;
    let mut next = Instant::now() + pause;
    loop {
        tokio::select! {
            () = passes.one_ends() => {}
            // Also where nothing is known to be left: a node that let go of a run and died before its own
            // recovery left nothing that looks stray.
            () = tokio::time::sleep_until(next) => {
                let has_more = passes.has_more();
                passes.begin(&service, |_| true);
                pause = if has_more { (pause * 2).min(PAUSE_MAX) } else { PAUSE_MAX };
                next = Instant::now() + pause;
            }
            () = stray_runs(&service) => {
                passes.begin(&service, |_| true);
                pause = PAUSE_MIN;
                next = Instant::now() + pause;
            }
            () = service.left.notified() => {
                // Whoever left it may still be letting go.
                pause = PAUSE_MIN;
                next = next.min(Instant::now() + pause);
            }
            () = is_set(&mut leaving) => return,
        }
    }
}

/// A pass over the runs of each scope, one at a time.
#[derive(Default)]
struct Passes {
    under_way: HashSet<usize>,
    /// What the last pass left, and the next may end.
    left: HashSet<usize>,
    ending: JoinSet<(usize, bool)>,
}

impl Passes {
    /// Begins a pass over these, but those whose last one has not ended.
    fn begin(&mut self, service: &Arc<Service>, is_due: impl Fn(&Scope) -> bool) {
        let scopes = service.scopes.iter().enumerate();
        for (index, _) in scopes.filter(|(_, (scope, _))| is_due(scope)) {
            if self.under_way.insert(index) {
                let service = Arc::clone(service);
                self.ending.spawn(async move { (index, leaves_something(&service, index).await) });
            }
        }
    }

    /// Until a pass ends; for ever where none is under way.
    async fn one_ends(&mut self) {
        match self.ending.join_next().await {
            Some(Ok((index, leaves_something))) => {
                self.under_way.remove(&index);
                match leaves_something {
                    true => self.left.insert(index),
                    false => self.left.remove(&index),
                };
            }
            // One that panicked is not begun again: what it is about would do so once more.
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }

    fn has_more(&self) -> bool {
        !self.left.is_empty() || !self.under_way.is_empty()
    }
}

/// Until a node is gone that left runs behind.
async fn stray_runs(service: &Service) {
    loop {
        tokio::time::sleep(STRAY_LOOK).await;
        // A store that cannot be asked has nothing to recover from now.
        if service.gate.store.has_stray_runs().await.unwrap_or(false) {
            warn!(
                "a node is gone that left runs behind: this node takes over those that it reaches"
            );
            return;
        }
    }
}

/// Whether anything is left that the next try may end.
async fn leaves_something(service: &Service, index: usize) -> bool {
    match pass(service, index).await {
        Ok(Report { in_doubt, stuck, .. }) => !in_doubt.is_empty() || !stuck.is_empty(),
        Err(fault) => {
            warn!("recovery goes on later: {fault}");
            true
        }
    }
}

/// One pass over the runs of a scope. What it leaves to people is told before it ends.
async fn pass(service: &Service, index: usize) -> Result<Report, Fault> {
    let Some((scope, turn)) = service.scopes.get(index) else { return Ok(Report::default()) };
    let _turn = turn.lock().await;
    let report = recover::recover(&service.gate, scope.clone()).await?;
    if let Err(fault) = attention::tell(&service.gate, &report).await {
        warn!("which runs need a person is written down later: {fault}");
    }
    for run_id in &report.finished {
        info!(%run_id, "recovered: {run_id} was interrupted, and is finished now");
    }
    service.say_what_needs_a_person().await;
    Ok(report)
}

impl Service {
    /// A pass over everything, now: what it did.
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

    /// A line on standard error for each run that needs a person, once in the life of this process.
    pub(super) async fn say_what_needs_a_person(&self) {
        let Ok(needs) = attention::of(&self.gate).await else { return };
        for need in needs {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.insert(need.run_id, need.since) != Some(need.since) {
                NeedObject::of(&need).log();
            }
        }
    }
}
