//! The shared store as one node has it: over a network that delays, refuses and loses, with a lease, claims
//! and locks of its own. `stepgate_core::lease` judges; when the node asks, waits and asks again follows
//! `postgres/nodes.rs` and `postgres/writer.rs` step by step.

mod reads;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use stepgate_core::digest::Digest;
use stepgate_core::event::Event;
use stepgate_core::ids::{PrincipalId, RunId};
use stepgate_core::journal::{StateCode, StateError};
use stepgate_core::lease::{Claim, Claiming, Holder, Incarnation, Lease, Sending, taken_over};
use stepgate_core::ports::{
    Announcement, Locks, Node, Nodes, Sessions, StepCommit, StoreError, Unreached, Writes,
};
use stepgate_core::session::{Session, SessionKind};
use stepgate_store::MemoryStore;

use crate::database::{Database, SentCommit, Tables};
use crate::environment::Environment;
use crate::locked;
use crate::processes::{Processes, Seat};
use crate::sabotage::Sabotage;
use crate::schedule::{Group, Instant};
use crate::signal::Bell;
use crate::trace::short;
use crate::weather::{Fate, LEASE, LOCK_WAIT, MARGIN, MS, SECOND, STALL_MAX};

/// How often a run that another node works on is asked for again.
const ASK_AGAIN: Instant = 50 * MS;
/// How often in a thousand a call that only reads is exposed to faults: those that write matter more.
const READS_EXPOSED: u64 = 300;

/// The read that follows a lost answer.
const READ_BACK: &str = "load_state";

/// One node's way to the store.
pub(crate) struct NodeStore {
    env: Arc<Environment>,
    database: Arc<Database>,
    processes: Arc<Processes>,
    seat: Seat,
    holder: Mutex<Holder>,
    locks: Mutex<BTreeSet<RunId>>,
    unlocked: Bell,
    hurry: Bell,
    renewed: Bell,
}

impl NodeStore {
    /// Registers the node.
    pub(crate) async fn register(
        env: Arc<Environment>,
        database: Arc<Database>,
        processes: Arc<Processes>,
        seat: Seat,
    ) -> Result<Arc<Self>, StoreError> {
        let store = Self {
            env,
            database,
            processes,
            seat,
            holder: Mutex::new(Holder::new(Duration::from_micros(LEASE))),
            locks: Mutex::default(),
            unlocked: Bell::default(),
            hurry: Bell::default(),
            renewed: Bell::default(),
        };
        store.become_another().await?;
        Ok(Arc::new(store))
    }

    /// The node's own clock, which nobody sets.
    fn own_now(&self) -> Duration {
        Duration::from_micros(self.seat.own(self.env.now()))
    }

    fn lease(&self) -> Lease {
        locked(&self.holder).lease()
    }

    /// Lets the node believe that its lease never ends.
    pub(crate) fn believe_in_lease(&self) {
        let mut holder = locked(&self.holder);
        let incarnation = holder.lease().incarnation;
        holder.registered(incarnation, Duration::MAX);
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.lease().incarnation
    }

    fn claim_on(&self, run_id: RunId) -> Option<Claim> {
        locked(&self.holder).claim_on(run_id)
    }

    fn note_claim(&self, run_id: RunId, claim: Option<Claim>) {
        locked(&self.holder).note(run_id, claim);
    }

    /// Renews the lease again and again.
    pub(crate) async fn keep_renewing(&self) {
        loop {
            let heard = self.hurry.times();
            self.env.within(self.seat.real(LEASE / 3), self.hurry.rung_since(heard)).await;
            // What fails is tried again; meanwhile the lease runs out, which is what it is for.
            let _tried = self.renew().await;
        }
    }

    pub(crate) async fn renew(&self) -> Result<(), StoreError> {
        let (lease, asked) = (self.lease(), self.own_now());
        let renews_lapsed = self.env.is_sabotaged(Sabotage::RenewLapsed);
        if !lease.is_good(asked) && !renews_lapsed {
            return self.become_another().await;
        }
        let is_renewed = self.renewed_in_store(lease.incarnation).await?;
        let believes = renews_lapsed || self.env.is_sabotaged(Sabotage::RenewUnseen);
        let is_good = match is_renewed && believes {
            true => {
                locked(&self.holder).registered(lease.incarnation, asked);
                true
            }
            false => locked(&self.holder).renewed(lease, asked, self.own_now(), is_renewed),
        };
        if !is_good {
            return self.become_another().await;
        }
        self.renewed.ring();
        Ok(())
    }

    /// Renews in the store, which may take its time between the look at the old lease and the commit.
    async fn renewed_in_store(&self, incarnation: Incarnation) -> Result<bool, StoreError> {
        let stalls = self.env.is_stormy() && self.env.weather.renewal_stalls > 0;
        let stall = match stalls && self.env.happens(self.env.weather.renewal_stalls) {
            true => self.env.between(MS, STALL_MAX),
            false => 0,
        };
        let (env, database) = (Arc::clone(&self.env), Arc::clone(&self.database));
        let outages = self.database.tables().outages;
        let asking = self.ask("renew", move |tables, now| {
            if tables.is_renewing(incarnation) {
                return Err(away("renew"));
            }
            let is_renewed = tables.renew(incarnation, now);
            match stall {
                0 => tables.commit_renewal(incarnation),
                _ => env.clone().spawn(Group::WORLD, async move {
                    env.sleep(stall).await;
                    database.tables().commit_renewal(incarnation);
                }),
            }
            Ok(is_renewed)
        });
        let is_renewed = asking.await??;
        if stall > 0 && is_renewed {
            self.env.note("stall", self.seat.node, stall, || {
                format!("the renewal of {incarnation} is seen after {} ms", stall / MS)
            });
            self.env.sleep(stall).await;
        }
        match self.database.tables().outages == outages {
            true => Ok(is_renewed),
            false => Err(away("renew")),
        }
    }

    async fn become_another(&self) -> Result<(), StoreError> {
        let asked = self.own_now();
        let incarnation = self.ask("register", Tables::register).await?;
        locked(&self.holder).registered(incarnation, asked);
        self.renewed.ring();
        Ok(())
    }

    async fn claim(&self, run_id: RunId) -> Result<(), StoreError> {
        if locked(&self.holder).has_claimed(run_id) {
            return Ok(());
        }
        let deadline = self.env.now() + LOCK_WAIT;
        loop {
            let incarnation = self.incarnation();
            let claiming =
                self.ask("claim", move |tables, now| tables.try_claim(run_id, incarnation, now));
            match claiming.await? {
                Claiming::NothingToClaim => return Ok(()),
                Claiming::Claimed(claim) => {
                    let Claim { incarnation, epoch } = claim;
                    self.note_claim(run_id, Some(claim));
                    self.env.note("claim", self.seat.node, epoch.unsigned_abs(), || {
                        format!("run {} in epoch {epoch} as {incarnation}", short(run_id))
                    });
                    return Ok(());
                }
                Claiming::Held => {}
            }
            if self.env.now() + ASK_AGAIN > deadline {
                return Err(busy(run_id));
            }
            self.env.sleep(ASK_AGAIN).await;
        }
    }

    async fn lock(&self, run_id: RunId) -> Result<(), StoreError> {
        let deadline = self.env.now() + LOCK_WAIT;
        loop {
            let heard = self.unlocked.times();
            if locked(&self.locks).insert(run_id) {
                return Ok(());
            }
            let waited = self.env.schedule.within(deadline, self.unlocked.rung_since(heard)).await;
            waited.ok_or_else(|| busy(run_id))?;
        }
    }

    fn unlock(&self, run_id: RunId) {
        locked(&self.locks).remove(&run_id);
        self.unlocked.ring();
    }

    /// A round trip that only reads, or that does no harm twice.
    async fn ask<T>(
        &self,
        what: &'static str,
        work: impl FnOnce(&mut Tables, Instant) -> T + Send,
    ) -> Result<T, StoreError> {
        // What is read back after a lost answer matters as much as what is written.
        let fate = match what == READ_BACK || self.env.happens(READS_EXPOSED) {
            true => self.env.fate(),
            false => Fate::Calm,
        };
        self.strike_before(fate, what).await;
        self.travel().await;
        match fate {
            Fate::Refused | Fate::LostBefore | Fate::Broken => return Err(away(what)),
            Fate::Calm
            | Fate::LostAfter
            | Fate::Late
            | Fate::CrashBefore
            | Fate::CrashAfter
            | Fate::PauseBefore
            | Fate::PauseAfter => {}
        }
        let now = self.env.now();
        let done = {
            let mut tables = self.database.tables();
            if now < tables.down_until {
                return Err(away(what));
            }
            work(&mut tables, now)
        };
        self.travel().await;
        self.strike_after(fate, what).await;
        match fate {
            Fate::LostAfter => Err(away(what)),
            Fate::Calm
            | Fate::Refused
            | Fate::LostBefore
            | Fate::Late
            | Fate::CrashBefore
            | Fate::CrashAfter
            | Fate::Broken
            | Fate::PauseBefore
            | Fate::PauseAfter => Ok(done),
        }
    }

    /// A read of rows.
    async fn read<T>(
        &self,
        what: &'static str,
        work: impl FnOnce(&MemoryStore) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        self.ask(what, |tables, _| work(tables.rows())).await?
    }

    /// A round trip that writes: `arrive` is done once, now, later or never.
    async fn write<T: Send + 'static>(
        &self,
        what: &'static str,
        arrive: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let fate = self.env.fate();
        let lost = || StoreError::AnswerLost(format!("{what}: no answer"));
        self.strike_before(fate, what).await;
        self.travel().await;
        let outages = {
            let tables = self.database.tables();
            if self.env.now() < tables.down_until {
                return Err(away(what));
            }
            tables.outages
        };
        match fate {
            Fate::Refused => return Err(away(what)),
            Fate::LostBefore => return Err(lost()),
            Fate::Late => {
                self.arrive_later(arrive);
                return Err(lost());
            }
            Fate::Broken if self.env.happens(500) => return Err(self.broken(what)),
            Fate::Broken
            | Fate::Calm
            | Fate::LostAfter
            | Fate::CrashBefore
            | Fate::CrashAfter
            | Fate::PauseBefore
            | Fate::PauseAfter => {}
        }
        if self.env.is_sabotaged(Sabotage::AnswerEarly) {
            return self.answer_early(arrive);
        }
        let answer = arrive(&self.database);
        if self.env.is_stormy() && self.env.happens(self.env.weather.outages) {
            self.outage();
        }
        self.travel().await;
        self.strike_after(fate, what).await;
        match fate {
            Fate::LostAfter => return Err(lost()),
            Fate::Broken => return Err(self.broken(what)),
            Fate::Calm
            | Fate::Refused
            | Fate::LostBefore
            | Fate::Late
            | Fate::CrashBefore
            | Fate::CrashAfter
            | Fate::PauseBefore
            | Fate::PauseAfter => {}
        }
        if self.database.tables().outages != outages {
            return Err(lost());
        }
        answer
    }

    fn arrive_later<T: Send + 'static>(
        &self,
        arrive: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) {
        let (env, database) = (Arc::clone(&self.env), Arc::clone(&self.database));
        let after = self.env.between(MS, 3 * SECOND);
        self.env.spawn(Group::WORLD, async move {
            env.sleep(after).await;
            // The sender no longer listens.
            let _unheard = arrive(&database);
        });
    }

    fn answer_early<T: Send + 'static>(
        &self,
        arrive: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        // Only what is written a moment later can be answered before, and only some writes wait so long.
        if !self.env.happens(300) {
            return arrive(&self.database);
        }
        self.arrive_later(arrive);
        Err(StoreError::Unavailable(EARLY.into()))
    }

    fn outage(&self) {
        let (back_after, forgets) =
            (self.env.between(SECOND / 2, 8 * SECOND), self.env.between(1, 4));
        let now = self.env.now();
        self.env.note("OUTAGE", self.seat.node, back_after, || {
            format!("the store dies for {} ms", back_after / MS)
        });
        let forgets = usize::try_from(forgets).unwrap_or(1);
        self.database.tables().crash(now, back_after, forgets);
    }

    fn broken(&self, what: &str) -> StoreError {
        StoreError::Broken(format!("{what}: fsync failed"))
    }

    /// On the way there or back.
    async fn travel(&self) {
        let time = self.env.between(1, self.env.weather.store_delay_max);
        self.env.sleep(time).await;
    }

    async fn strike_before(&self, fate: Fate, what: &'static str) {
        if fate != Fate::Calm {
            self.env.note("fault", self.seat.node, fate as u64, || format!("{what}: {fate:?}"));
        }
        match fate {
            Fate::CrashBefore => self.die(what).await,
            Fate::PauseBefore => self.stop(what).await,
            Fate::Calm
            | Fate::Refused
            | Fate::LostBefore
            | Fate::LostAfter
            | Fate::Late
            | Fate::CrashAfter
            | Fate::Broken
            | Fate::PauseAfter => {}
        }
    }

    async fn strike_after(&self, fate: Fate, what: &'static str) {
        match fate {
            Fate::CrashAfter => self.die(what).await,
            Fate::PauseAfter => self.stop(what).await,
            Fate::Calm
            | Fate::Refused
            | Fate::LostBefore
            | Fate::LostAfter
            | Fate::Late
            | Fate::CrashBefore
            | Fate::Broken
            | Fate::PauseBefore => {}
        }
    }

    async fn die(&self, what: &'static str) {
        self.processes.crash(self.seat, what);
        std::future::pending::<()>().await;
    }

    async fn stop(&self, what: &'static str) {
        self.processes.pause(self.seat, what);
        // The task itself stops here, with the others of its process.
        self.env.sleep(1).await;
    }

    async fn commit_once(&self, commit: StepCommit) -> Result<(), StoreError> {
        let run_id = commit.place.run_id;
        let sent = SentCommit {
            claim: self.claim_on(run_id),
            incarnation: self.incarnation(),
            node: self.seat.node,
            commit,
        };
        match self.write("commit", move |database| database.commit(&sent)).await {
            Ok(claim) => {
                self.note_claim(run_id, claim);
                Ok(())
            }
            Err(StoreError::Unavailable(why)) if why == EARLY => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// How a write tells that it is answered before it is done, by sabotage.
const EARLY: &str = "answered early";

fn away(what: &str) -> StoreError {
    StoreError::Unavailable(format!("{what}: the store is away"))
}

fn busy(run_id: RunId) -> StoreError {
    let detail = format!("trace {} is held by another for too long", short(run_id));
    StateError::new(StateCode::LockAcquireFailed, detail).into()
}

#[async_trait]
impl Writes for NodeStore {
    async fn commit(&self, commit: StepCommit) -> Result<(), StoreError> {
        let splits = self.env.is_sabotaged(Sabotage::SplitCommit)
            && commit.record.is_some()
            && commit.open.is_none()
            && !commit.entries.is_empty();
        if !splits {
            return self.commit_once(commit).await;
        }
        let first = StepCommit { entries: commit.entries.clone(), ..StepCommit::at(commit.place) };
        self.commit_once(first).await?;
        self.commit_once(StepCommit { entries: Vec::new(), ..commit }).await
    }

    async fn append_event(&self, event: Event) -> Result<(), StoreError> {
        self.write("event", move |database| database.tables().append_event(event)).await
    }

    async fn open_session(&self, session: Session, event: Event) -> Result<Session, StoreError> {
        self.write("session", move |database| database.tables().open_session(session, event)).await
    }
}

#[async_trait]
impl Locks for NodeStore {
    async fn acquire_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.lock(trace_id).await?;
        let claimed = self.claim(trace_id).await;
        if claimed.is_err() {
            self.unlock(trace_id);
        }
        claimed
    }

    async fn release_trace_lock(&self, trace_id: RunId) -> Result<(), StoreError> {
        let claim = locked(&self.holder).release(trace_id);
        let disowned = match claim {
            Some(claim) => {
                self.ask("disown", move |tables, _| tables.disown(trace_id, claim)).await
            }
            None => Ok(()),
        };
        self.unlock(trace_id);
        disowned
    }

    async fn may_dispatch(&self, trace_id: RunId) -> Result<(), StoreError> {
        if self.env.is_sabotaged(Sabotage::SkipMargin) {
            return Ok(());
        }
        let deadline = self.env.now() + self.seat.real(MARGIN);
        loop {
            let heard = self.renewed.times();
            let lease = self.lease();
            let trusted = self.env.is_sabotaged(Sabotage::TrustUnclaimed);
            let trusted = trusted.then_some(Claim { incarnation: lease.incarnation, epoch: 1 });
            let claim = self.claim_on(trace_id).or(trusted);
            match lease.may_send(claim, self.own_now(), Duration::from_micros(MARGIN)) {
                Sending::Now => return Ok(()),
                Sending::Never => return Err(taken_over(trace_id)),
                Sending::AfterRenewal => self.hurry.ring(),
            }
            let renewed = self.renewed.rung_since(heard);
            if self.env.schedule.within(deadline, renewed).await.is_none() {
                return Err(taken_over(trace_id));
            }
        }
    }
}

#[async_trait]
impl Nodes for NodeStore {
    fn node_id(&self) -> Option<String> {
        None
    }

    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        Ok(Vec::new())
    }

    async fn has_stray_runs(&self) -> Result<bool, StoreError> {
        let incarnation = self.incarnation();
        self.ask("strays", move |tables, now| tables.has_strays(incarnation, now)).await
    }

    async fn unreached(&self) -> Result<Vec<Unreached>, StoreError> {
        Ok(Vec::new())
    }

    async fn lock_new_trace(&self, trace_id: RunId) -> Result<(), StoreError> {
        self.lock(trace_id).await
    }

    async fn default_session_of(
        &self,
        principal_id: &PrincipalId,
    ) -> Result<Option<Session>, StoreError> {
        self.session_of(principal_id, SessionKind::Default).await
    }

    async fn tell_policy(&self, _: Digest) -> Result<(), StoreError> {
        Ok(())
    }

    async fn tell_executors(&self, _: Vec<String>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn claim_executor(&self, _: &str, mark: &str) -> Result<String, StoreError> {
        Ok(mark.to_owned())
    }

    async fn leave(&self) {}

    async fn elsewhere(&self) -> Announcement {
        std::future::pending().await
    }
}
