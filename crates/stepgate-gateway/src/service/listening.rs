//! Follows the other nodes of a shared store: wakes local waiters, and reads tokens and accepted tools that
//! operators changed on another node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepgate_core::ports::{Announce, Announcement};
use tracing::{error, warn};

use super::{Service, wait_until_set};

/// How often the policies of the nodes are compared.
const COMPARE_EVERY: Duration = Duration::from_secs(5);

pub(super) async fn keep_listening(service: Arc<Service>) {
    let mut leaving = service.leaving();
    let mut alarm = Alarm::default();
    loop {
        let elsewhere = tokio::select! {
            elsewhere = service.gate.store.elsewhere() => elsewhere,
            () = wait_until_set(&mut leaving) => return,
        };
        match elsewhere {
            Announcement::More => look(&service).await,
            told @ (Announcement::Asked(_) | Announcement::Decided(_) | Announcement::Ended(_)) => {
                service.hub.announce(told)
            }
        }
        alarm.compare(&service).await;
    }
}

/// Polls for what was not announced: events to stream, tokens, accepted tools, and the end of watched runs.
async fn look(service: &Service) {
    service.hub.wake();
    if let Err(error) = service.tokens.read_on(&*service.gate.store).await {
        warn!("the tokens of other nodes are read later: {error:#}");
    }
    if let Some(control) = &service.control
        && let Err(error) = control.read_on(&service.gate).await
    {
        warn!("the tools accepted on other nodes are read later: {error:#}");
    }
    for run_id in service.hub.watched_runs() {
        let recalled = service.gate.store.recall(run_id).await;
        let is_over = |found: &stepgate_core::ports::Recollection| found.run.status.is_final();
        if recalled.is_ok_and(|found| found.as_ref().is_some_and(is_over)) {
            service.hub.announce(Announcement::Ended(run_id));
        }
    }
}

/// Reports nodes that decide by different policies, once for each difference.
#[derive(Default)]
struct Alarm {
    compared: Option<Instant>,
    told: BTreeSet<String>,
}

impl Alarm {
    async fn compare(&mut self, service: &Service) {
        if self.compared.is_some_and(|at| at.elapsed() < COMPARE_EVERY) {
            return;
        }
        self.compared = Some(Instant::now());
        let Ok(nodes) = service.gate.store.nodes().await else { return };
        let living = nodes.iter().filter(|node| node.lease_left.is_some());
        let policies: BTreeSet<String> =
            living.filter_map(|node| Some(node.policy_hash?.to_string())).collect();
        if policies.len() > 1 && policies != self.told {
            error!("nodes have different policies in force: `stepgate nodes` shows which");
        }
        self.told = policies;
    }
}
