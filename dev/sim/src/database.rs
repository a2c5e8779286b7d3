//! The store that all nodes share: the rows of the in-memory store, and around them what PostgreSQL adds
//! for several nodes: leases by the store's own clock, and an owner and an epoch on every run.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::RunId;
use stepgate_core::lease::{Claim, Claiming, Incarnation, Ownership, taken_over};
use stepgate_core::ports::{
    ApprovalChange, KeyChange, Runs, StepCommit, StoreError, Unfinished, Writes,
};
use stepgate_core::run::Status;
use stepgate_core::session::Session;
use stepgate_store::MemoryStore;

use crate::environment::Environment;
use crate::ledger::Ledger;
use crate::locked;
use crate::sabotage::Sabotage;
use crate::schedule::Instant;
use crate::trace::{number_of, short};
use crate::weather::LEASE;

/// A commit on its way, with what the node believed when it was sent.
#[derive(Clone)]
pub(crate) struct SentCommit {
    pub(crate) commit: StepCommit,
    pub(crate) claim: Option<Claim>,
    pub(crate) incarnation: Incarnation,
    pub(crate) node: u64,
}

/// The shared store.
pub(crate) struct Database {
    env: Arc<Environment>,
    ledger: Arc<Ledger>,
    tables: Mutex<Tables>,
}

impl Database {
    pub(crate) fn new(env: Arc<Environment>, ledger: Arc<Ledger>) -> Self {
        let tables = Mutex::new(Tables::new(env.sabotage));
        Self { env, ledger, tables }
    }

    /// Everything in it, locked.
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        locked(&self.tables)
    }

    /// A commit arrives. Trace and ledger are told before anything else happens.
    pub(crate) fn commit(&self, sent: &SentCommit) -> Result<Option<Claim>, StoreError> {
        let run_id = sent.commit.place.run_id;
        let (before, answer) = {
            let mut tables = self.tables();
            let before = tables.ownership(run_id);
            (before, tables.write(sent))
        };
        let about = number_of(run_id.as_uuid()) ^ sent.commit.entries.len() as u64;
        match &answer {
            Ok(_) => {
                self.env.note("commit", sent.node, about, || described(&sent.commit));
                self.ledger.committed(&sent.commit, sent.claim, sent.incarnation, before);
            }
            Err(error) => self.env.note("refused", sent.node, about, || {
                format!("{}: {error}", described(&sent.commit))
            }),
        }
        answer
    }
}

/// What is written in it.
pub(crate) struct Tables {
    rows: MemoryStore,
    sabotage: Option<Sabotage>,
    owners: BTreeMap<RunId, (Ownership, Status)>,
    leases: BTreeMap<Incarnation, Instant>,
    /// Renewals that are done and not committed: no reader sees them, and a node that writes the row waits.
    renewals: BTreeMap<Incarnation, Instant>,
    /// Until when it answers no call.
    pub(crate) down_until: Instant,
    /// How often it died.
    pub(crate) outages: u64,
    /// Every write, where a crash is to forget the last ones.
    written: Vec<Written>,
    /// Bindings that are not written until they are settled, by sabotage.
    unmarked: BTreeMap<RunId, Binding>,
}

enum Written {
    Commit(Box<StepCommit>),
    Event(Box<Event>),
    Session(Box<(Session, Event)>),
}

impl Tables {
    fn new(sabotage: Option<Sabotage>) -> Self {
        Self {
            rows: MemoryStore::new(),
            sabotage,
            owners: BTreeMap::new(),
            leases: BTreeMap::new(),
            renewals: BTreeMap::new(),
            down_until: 0,
            outages: 0,
            written: Vec::new(),
            unmarked: BTreeMap::new(),
        }
    }

    /// The rows, for reading.
    pub(crate) fn rows(&self) -> &MemoryStore {
        &self.rows
    }

    /// Who works on a run.
    pub(crate) fn ownership(&self, run_id: RunId) -> Option<Ownership> {
        self.owners.get(&run_id).map(|(held, _)| *held)
    }

    /// Whether a node's lease is good.
    pub(crate) fn is_alive(&self, incarnation: Incarnation, now: Instant) -> bool {
        self.leases.get(&incarnation).is_some_and(|expires| *expires > now)
    }

    /// Whether what a node works on may be taken over.
    fn is_gone(&self, incarnation: Incarnation, now: Instant) -> bool {
        !self.is_alive(incarnation, now) || self.is(Sabotage::TakeOverLiving)
    }

    /// A new incarnation of a node.
    pub(crate) fn register(&mut self, now: Instant) -> Incarnation {
        let incarnation = Incarnation::try_from(self.leases.len()).unwrap_or(Incarnation::MAX) + 1;
        self.leases.insert(incarnation, now + LEASE);
        incarnation
    }

    /// Renews a lease that is still good, without a commit.
    pub(crate) fn renew(&mut self, incarnation: Incarnation, now: Instant) -> bool {
        let is_good = self.is_alive(incarnation, now) || self.is(Sabotage::RenewLapsed);
        if is_good {
            self.renewals.insert(incarnation, now + LEASE);
        }
        is_good
    }

    /// Commits a renewal, unless the store died before.
    pub(crate) fn commit_renewal(&mut self, incarnation: Incarnation) {
        if let Some(expires) = self.renewals.remove(&incarnation) {
            self.leases.insert(incarnation, expires);
        }
    }

    /// Whether a renewal is under way.
    pub(crate) fn is_renewing(&self, incarnation: Incarnation) -> bool {
        self.renewals.contains_key(&incarnation)
    }

    /// Lets a lease end then, whatever was agreed.
    pub(crate) fn end_lease(&mut self, incarnation: Incarnation, then: Instant) {
        self.leases.insert(incarnation, then);
    }

    /// Takes a run over, if it is there, is not over, and no other living node works on it.
    pub(crate) fn try_claim(
        &mut self,
        run_id: RunId,
        incarnation: Incarnation,
        now: Instant,
    ) -> Claiming {
        let Some((held, status)) = self.owners.get(&run_id).copied() else {
            return Claiming::NothingToClaim;
        };
        if self.is(Sabotage::DecideTwice) && status == Status::ApprovalRequired {
            return Claiming::NothingToClaim;
        }
        let claiming = held.claimed_by(incarnation, status, |owner| self.is_gone(owner, now));
        let Claiming::Claimed(claim) = claiming else { return claiming };
        // A claim writes the row of the owner that it judges, so it waits for a renewal of it.
        let waits = held.owner.is_some_and(|owner| owner != incarnation && self.is_renewing(owner));
        if waits && !self.is(Sabotage::RenewUnseen) {
            return Claiming::Held;
        }
        let owned = Ownership { owner: Some(claim.incarnation), epoch: claim.epoch };
        self.owners.insert(run_id, (owned, status));
        claiming
    }

    /// Lets others work on a run.
    pub(crate) fn disown(&mut self, run_id: RunId, claim: Claim) {
        if let Some((held, _)) = self.owners.get_mut(&run_id)
            && held.claim() == Some(claim)
        {
            held.owner = None;
        }
    }

    /// Runs that are not over and that no other living node works on.
    pub(crate) fn unfinished(&self, incarnation: Incarnation, now: Instant) -> Vec<Unfinished> {
        let unfinished = at_once(self.rows.unfinished()).unwrap_or_default();
        let free = unfinished.into_iter().filter_map(|run| {
            let held = self.ownership(run.run_id)?;
            let is_free = held.is_free_for(incarnation, |owner| self.is_gone(owner, now));
            let is_waiting = run.is_waiting && held.owner.is_none();
            is_free.then_some(Unfinished { is_waiting, ..run })
        });
        free.collect()
    }

    /// Whether a node is gone that worked on runs which are not over.
    pub(crate) fn has_strays(&self, incarnation: Incarnation, now: Instant) -> bool {
        self.owners.values().any(|(held, status)| {
            let is_stray = || held.is_stray_for(incarnation, |owner| self.is_gone(owner, now));
            !status.is_final() && is_stray()
        })
    }

    fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// Writes a commit, or nothing of it. The claim that the node has afterwards.
    fn write(&mut self, sent: &SentCommit) -> Result<Option<Claim>, StoreError> {
        let SentCommit { commit, claim, incarnation, .. } = sent;
        let run_id = commit.place.run_id;
        let there = self.owners.get(&run_id).copied().filter(|_| commit.open.is_none());
        let held = there.map(|(held, _)| held);
        let decides = matches!(commit.approval, Some(ApprovalChange::Decide(_)));
        let is_unfenced =
            self.is(Sabotage::SkipFence) || (decides && self.is(Sabotage::DecideTwice));
        if let Some(held) = held
            && !is_unfenced
            && !held.admits(*claim, *incarnation)
        {
            return Err(taken_over(run_id));
        }
        let commit = self.as_sabotaged(commit.clone());
        match self.put(Written::Commit(Box::new(commit.clone()))) {
            Err(StoreError::AlreadyDecided | StoreError::State(_))
                if decides && self.is(Sabotage::DecideTwice) => {}
            other => other?,
        }
        let opened = commit.open.as_ref().map(|run| run.status);
        let was = there.map(|(_, status)| status);
        let recorded = commit.record.as_ref().map(|record| record.status);
        let status = recorded.or(commit.status).or(opened).or(was).unwrap_or(Status::Started);
        let after = Ownership::after_commit(held, *claim, *incarnation, status);
        self.owners.insert(run_id, (after, status));
        Ok(after.claim())
    }

    /// A commit without the mark that a key is in flight, where that is the sabotage.
    fn as_sabotaged(&mut self, mut commit: StepCommit) -> StepCommit {
        if !self.is(Sabotage::DropInFlight) {
            return commit;
        }
        let run_id = commit.place.run_id;
        commit.key = match commit.key.take() {
            Some(KeyChange::Bind(binding)) if !binding.settled => {
                self.unmarked.insert(run_id, binding);
                None
            }
            Some(KeyChange::Settle(key)) => match self.unmarked.remove(&run_id) {
                Some(binding) => Some(KeyChange::Bind(Binding { settled: true, ..binding })),
                None => Some(KeyChange::Settle(key)),
            },
            key => key,
        };
        commit
    }

    /// Writes an event outside any step.
    pub(crate) fn append_event(&mut self, event: Event) -> Result<(), StoreError> {
        self.put(Written::Event(Box::new(event)))
    }

    /// Opens a session.
    pub(crate) fn open_session(
        &mut self,
        session: Session,
        event: Event,
    ) -> Result<Session, StoreError> {
        let opened = at_once(self.rows.open_session(session.clone(), event.clone()))?;
        self.remember(Written::Session(Box::new((session, event))));
        Ok(opened)
    }

    fn put(&mut self, write: Written) -> Result<(), StoreError> {
        match &write {
            Written::Commit(commit) => at_once(self.rows.commit((**commit).clone()))?,
            Written::Event(event) => at_once(self.rows.append_event((**event).clone()))?,
            Written::Session(opening) => {
                let (session, event) = (**opening).clone();
                at_once(self.rows.open_session(session, event)).map(drop)?;
            }
        }
        self.remember(write);
        Ok(())
    }

    fn remember(&mut self, write: Written) {
        if self.is(Sabotage::SkipFsync) {
            self.written.push(write);
        }
    }

    /// Dies, and is back after so long. What was answered is there again, unless nothing was synced.
    pub(crate) fn crash(&mut self, now: Instant, back_after: Instant, forgets: usize) {
        self.outages += 1;
        self.renewals.clear();
        self.down_until = now + back_after;
        if !self.is(Sabotage::SkipFsync) {
            return;
        }
        let mut written = std::mem::take(&mut self.written);
        written.truncate(written.len().saturating_sub(forgets));
        self.rows = MemoryStore::new();
        for write in written {
            // What depended on something that is gone goes with it.
            let _gone = self.put(write);
        }
        let rows = &self.rows;
        self.owners.retain(|run_id, (_, status)| {
            let there = at_once(rows.dossier(*run_id)).ok().flatten();
            *status = there.as_ref().map_or(*status, |dossier| dossier.run.status);
            there.is_some()
        });
    }
}

/// A commit in a few words.
fn described(commit: &StepCommit) -> String {
    let mut words = format!("run {}", short(commit.place.run_id));
    for appended in &commit.entries {
        words += &format!(" {}", appended.entry.to_state);
    }
    for event in &commit.events {
        words += &format!(" +{}", event.event_type.as_str());
    }
    if let Some(record) = &commit.record {
        words += &format!(" RECORD {}", record.status.as_str());
    }
    words
}

/// What the store in memory answers: it never waits.
pub(crate) fn at_once<T>(
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => Err(StoreError::Broken("the store in memory waits".into())),
    }
}
