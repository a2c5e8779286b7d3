//! Keeps the time of approvals: what nobody decides until its `expires_at` is decided by time.
//!
//! The open ones are read once; later ones are announced. Nothing is asked of the store in between.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::ids::ApprovalId;
use stepgate_core::ports::{ApprovalQuery, StoreError};
use stepgate_core::step::{Person, Refused};
use stepgate_core::time::Timestamp;
use tracing::warn;

use super::{Service, is_set, quarantine_of};

/// Open approvals that are read at once at the start: only their times are kept.
const OPEN_AT_ONCE: usize = 64;
/// The clock of the wall may be set while we sleep, so no sleep is longer.
const SLEEP_MAX: Duration = Duration::from_secs(30);
/// How long a failed expiry waits for its next try.
const RETRY_MS: u64 = 5_000;

type Due = BinaryHeap<Reverse<(Timestamp, ApprovalId)>>;

impl Service {
    /// Ends the approvals that have expired, for a command without a gateway that would have done so.
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
            // One that cannot be ended now is ended by the next command, and is not offered meanwhile.
            let _ended = expire(self, id).await;
        }
    }
}

pub(super) async fn keep_time(service: Arc<Service>) {
    // Listening before reading: what is asked in between is known twice, which does no harm.
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
                // Another node may have asked, and be gone.
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
            () = is_set(&mut leaving) => return,
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
    let mut query = ApprovalQuery {
        status: Some(ApprovalStatus::Pending),
        limit: OPEN_AT_ONCE,
        ..ApprovalQuery::default()
    };
    let mut due = Due::new();
    loop {
        let approvals = service.gate.store.approvals(query.clone()).await?;
        approvals.iter().for_each(|approval| remember(&mut due, approval));
        let Some(oldest) = approvals.last() else { return Ok(due) };
        query.before = Some(oldest.approval_id);
    }
}

fn remember(due: &mut Due, approval: &Approval) {
    // Without a time it never expires; nobody but a forger makes such a one, and `verify` says so.
    if let Some(at) = approval.expires_at() {
        due.push(Reverse((at, approval.approval_id)));
    }
}

/// Lets time decide. An error means that it has to be tried again.
async fn expire(service: &Arc<Service>, id: ApprovalId) -> Result<(), ()> {
    match service.decide(id, Person::Nobody).await {
        Ok(_)
        | Err(
            Refused::AlreadyDecided
            | Refused::NoSuchApproval
            | Refused::NotInDoubt
            | Refused::OwnRequest
            | Refused::OutOfReach,
        ) => Ok(()),
        // It does not verify. People were told, and trying again does not change it.
        Err(ref refused) if quarantine_of(refused).is_some() => Ok(()),
        Err(Refused::Fault(fault)) => {
            warn!(approval_id = %id, "approval {id} has expired and cannot be ended yet: {fault}");
            Err(())
        }
    }
}
