//! Expires approvals: ends each one that no person has decided by its `expires_at`.
//!
//! The open approvals are read once; later ones are announced by the hub. In between the store is not polled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::ids::ApprovalId;
use stepgate_core::ports::{ApprovalQuery, Store, StoreError};
use stepgate_core::step::{Person, Refused};
use stepgate_core::time::Timestamp;
use tracing::warn;

use super::{Service, quarantine_of, wait_until_set};

/// Page size when the open approvals are read.
const OPEN_AT_ONCE: usize = 64;
/// Longest sleep: the system clock may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(30);
/// Pause before a failed expiry is retried.
const RETRY_MS: u64 = 5_000;

type Due = BinaryHeap<Reverse<(Timestamp, ApprovalId)>>;

impl Service {
    /// Expires approvals that are due, for a command that runs while no gateway does.
    pub async fn expire_due(self: &Arc<Self>) {
        let mut due = match read_open(self).await {
            Ok(due) => due,
            Err(error) => return warn!("cannot read the open approvals: {error}"),
        };
        let now = self.gate.world.now();
        while let Some(Reverse((at, id))) = due.pop() {
            if at > now {
                return;
            }
            // On failure the next command tries again; until then the approval is not offered.
            let _ended = expire(self, id).await;
        }
    }
}

pub(super) async fn keep_time(service: Arc<Service>) {
    // Subscribe before reading: an approval requested in between is then known twice, which is harmless.
    let mut asked = service.hub.asked();
    let mut due = open(&service).await;
    let mut read_at = Instant::now();
    let mut leaving = service.leaving();
    loop {
        let now = service.gate.world.now();
        while let Some(Reverse((at, id))) = due.peek().copied() {
            if at > now {
                break;
            }
            due.pop();
            if expire(&service, id).await.is_err() {
                due.push(Reverse((now.plus_ms(RETRY_MS), id)));
            }
        }
        let next = due.peek().map(|Reverse((at, _))| Duration::from_millis(at.since_ms(now)));
        tokio::select! {
            () = tokio::time::sleep(next.unwrap_or(SLEEP_MAX).min(SLEEP_MAX)) => {
                // Another node may have requested an approval and then died.
                let is_shared = service.gate.store.nodes().await.is_ok_and(|all| !all.is_empty());
                if is_shared && read_at.elapsed() >= SLEEP_MAX {
                    due = open(&service).await;
                    read_at = Instant::now();
                }
            }
            question = asked.recv() => match question {
                Some(approval) => remember(&mut due, &approval),
                None => return,
            },
            () = wait_until_set(&mut leaving) => return,
        }
    }
}

async fn open(service: &Service) -> Due {
    loop {
        match read_open(service).await {
            Ok(due) => return due,
            Err(error) => {
                warn!("cannot read the open approvals, trying again: {error}");
                tokio::time::sleep(Duration::from_millis(RETRY_MS)).await;
            }
        }
    }
}

async fn read_open(service: &Service) -> Result<Due, StoreError> {
    let mut due = Due::new();
    each_open_approval(&*service.gate.store, |approval| remember(&mut due, approval)).await?;
    Ok(due)
}

/// Reads every open approval, the newest first. Keeps only one page at a time: an approval can be megabytes long.
pub(crate) async fn each_open_approval(
    store: &dyn Store,
    mut each: impl FnMut(&Approval),
) -> Result<(), StoreError> {
    let status = Some(ApprovalStatus::Pending);
    let mut query = ApprovalQuery { status, limit: OPEN_AT_ONCE, ..ApprovalQuery::default() };
    loop {
        let page = store.approvals(query.clone()).await?;
        page.iter().for_each(&mut each);
        let Some(oldest) = page.last() else { return Ok(()) };
        query.before = Some(oldest.approval_id);
    }
}

fn remember(due: &mut Due, approval: &Approval) {
    // Without `expires_at` it never expires. Only a forged approval lacks it, and `verify` reports that.
    if let Some(at) = approval.expires_at() {
        due.push(Reverse((at, approval.approval_id)));
    }
}

/// Expires one approval. An error means: retry.
async fn expire(service: &Arc<Service>, id: ApprovalId) -> Result<(), ()> {
    let decided = service.decide(id, Person::Nobody).await;
    // One that does not verify was reported as needing a person, and a retry would not help.
    if let Err(refused @ Refused::Fault(fault)) = &decided
        && quarantine_of(refused).is_none()
    {
        warn!(approval_id = %id, "approval {id} has expired and cannot be ended yet: {fault}");
        return Err(());
    }
    Ok(())
}
