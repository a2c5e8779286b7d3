//! Lease, claim and fence: who may work on a run where several nodes share one store.
//!
//! ```text
//! node    register ──▶ lease of an incarnation ──▶ renewed in time ──▶ the same incarnation
//!                                              └─▶ lapsed ──▶ register again: another incarnation
//!
//! run     its owner               another node claims it      another node commits to it
//!         none                    takes it, epoch + 1         accepted, if it believes to have no claim
//!         a node with a lease     refused                     refused: the fence
//!         a node whose lease      takes it, epoch + 1         refused: the fence
//!         has lapsed
//! ```
//!
//! There is no clock and no I/O here: times are arguments, and the caller says whether a node is gone. The
//! nodes on PostgreSQL and those of the simulation both decide with these functions. Where PostgreSQL must
//! decide inside a statement, a test compares the statement with them.

use std::collections::HashMap;
use std::time::Duration;

use crate::ids::RunId;
use crate::journal::{StateCode, StateError};
use crate::ports::StoreError;
use crate::run::Status;

/// The number of one registration of a node.
pub type Incarnation = i64;

/// The right to work on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The node that has it.
    pub incarnation: Incarnation,
    /// The epoch of the run in which the claim is valid.
    pub epoch: i64,
}

/// Who works on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The node; none where no node does.
    pub owner: Option<Incarnation>,
    /// Counts the claims. A run is opened in the first epoch.
    pub epoch: i64,
}

/// The result of an attempt to claim a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claiming {
    /// There is no such run, or it is over.
    NothingToClaim,
    /// Another node works on it.
    Held,
    /// The claimant now owns the run.
    Claimed(Claim),
}

impl Ownership {
    /// The result of a claim on a run in this status. A claim by the owner itself also starts a new epoch.
    pub fn claimed_by(
        self,
        claimant: Incarnation,
        status: Status,
        is_gone: impl FnOnce(Incarnation) -> bool,
    ) -> Claiming {
        if status.is_final() {
            Claiming::NothingToClaim
        } else if self.is_free_for(claimant, is_gone) {
            Claiming::Claimed(Claim { incarnation: claimant, epoch: self.epoch + 1 })
        } else {
            Claiming::Held
        }
    }

    /// Whether no other living node works on the run.
    pub fn is_free_for(self, node: Incarnation, is_gone: impl FnOnce(Incarnation) -> bool) -> bool {
        self.owner.is_none_or(|owner| owner == node || is_gone(owner))
    }

    /// Whether the run's owner is another node that is gone.
    pub fn is_stray_for(
        self,
        node: Incarnation,
        is_gone: impl FnOnce(Incarnation) -> bool,
    ) -> bool {
        self.owner.is_some_and(|owner| owner != node && is_gone(owner))
    }

    /// The fence: whether a commit to this run is accepted. `claim` is the claim that the sender believes it
    /// holds. Without a claim, the sender must own the run, or the run must have no owner: so an approval
    /// can be decided on any node.
    pub fn admits(self, claim: Option<Claim>, sender: Incarnation) -> bool {
        match claim {
            Some(_) => self.claim() == claim,
            None => self.owner.is_none_or(|owner| owner == sender),
        }
    }

    /// The owner of a run after a commit that leaves it in this status: the sender, unless the run is over
    /// or waits for a person. `before` is none where the commit opens the run.
    pub fn after_commit(
        before: Option<Self>,
        claim: Option<Claim>,
        sender: Incarnation,
        status: Status,
    ) -> Self {
        let owner = match status {
            Status::Started | Status::Approved => {
                Some(claim.map_or(sender, |claim| claim.incarnation))
            }
            Status::ApprovalRequired
            | Status::Ok
            | Status::Error
            | Status::Timeout
            | Status::Denied => None,
        };
        Self { owner, epoch: before.map_or(1, |before| before.epoch) }
    }

    /// The claim that the owner has.
    pub fn claim(self) -> Option<Claim> {
        self.owner.map(|incarnation| Claim { incarnation, epoch: self.epoch })
    }
}

/// A lease, by the clock of the node that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The registration that it belongs to.
    pub incarnation: Incarnation,
    /// When it expires.
    pub good_until: Duration,
}

/// Whether a call may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Yes: this node still owns the run, and will for the margin.
    Now,
    /// The lease must be renewed first.
    AfterRenewal,
    /// No: another node may own the run.
    Never,
}

impl Lease {
    /// Whether it has not expired.
    pub fn is_good(self, now: Duration) -> bool {
        now < self.good_until
    }

    /// Whether a call of a run may be sent. That needs a claim, and at least the margin left of the lease.
    ///
    /// A missing claim means that the answer to the commit that opened the run was lost. Then the
    /// incarnation under which the run was opened is unknown, and a lease that has expired since would look
    /// valid.
    pub fn may_send(self, claim: Option<Claim>, now: Duration, margin: Duration) -> Sending {
        if claim.is_none_or(|claim| claim.incarnation != self.incarnation) {
            Sending::Never
        } else if self.is_good(now.saturating_add(margin)) {
            Sending::Now
        } else {
            Sending::AfterRenewal
        }
    }
}

/// A node's own view: its lease, and the runs that it believes it owns.
///
/// The node counts its lease from before it sent the request, by a monotonic clock that cannot be set: so it
/// always believes that the lease ends earlier than the store does.
#[derive(Debug)]
pub struct Holder {
    lease_time: Duration,
    lease: Lease,
    claims: HashMap<RunId, Claim>,
}

impl Holder {
    /// A node that is not registered yet, and the length of its leases.
    pub fn new(lease_time: Duration) -> Self {
        let lease = Lease { incarnation: 0, good_until: Duration::ZERO };
        Self { lease_time, lease, claims: HashMap::new() }
    }

    /// The lease that the node has now.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// The store has registered the node, which sent the request at `asked`.
    pub fn registered(&mut self, incarnation: Incarnation, asked: Duration) {
        self.lease = Lease { incarnation, good_until: asked.saturating_add(self.lease_time) };
    }

    /// The store has answered at `now` to the renewal of this lease, which was requested at `asked`. Returns
    /// whether the lease is valid; if not, the node must register again.
    ///
    /// An answer that arrives after the old lease expired is too late: a node of an older version does not
    /// wait for renewals that are under way, and may have taken runs over in between.
    #[must_use]
    pub fn renewed(
        &mut self,
        lease: Lease,
        asked: Duration,
        now: Duration,
        is_renewed: bool,
    ) -> bool {
        let is_good = is_renewed && lease.is_good(now);
        if is_good {
            self.registered(lease.incarnation, asked);
        }
        is_good
    }

    /// The claim that the node has on a run.
    pub fn claim_on(&self, run_id: RunId) -> Option<Claim> {
        self.claims.get(&run_id).copied()
    }

    /// Whether the node has claimed a run in its present incarnation.
    pub fn has_claimed(&self, run_id: RunId) -> bool {
        self.claim_on(run_id).is_some_and(|claim| claim.incarnation == self.lease.incarnation)
    }

    /// Notes who owns a run after a claim or a commit.
    pub fn note(&mut self, run_id: RunId, claim: Option<Claim>) {
        match claim {
            Some(claim) => drop(self.claims.insert(run_id, claim)),
            None => drop(self.claims.remove(&run_id)),
        }
    }

    /// Gives a run up. Returns the claim that must be released in the store, if there is one.
    pub fn release(&mut self, run_id: RunId) -> Option<Claim> {
        self.claims.remove(&run_id)
    }
}

/// The error for an operation on a run that another node may have taken over.
pub fn taken_over(run_id: RunId) -> StoreError {
    let detail = format!("run {run_id} may be another node's by now");
    StateError::new(StateCode::ConcurrentExecution, detail).into()
}

#[cfg(test)]
mod tests;
