//! This process as one of the nodes that share a store: how it asks for its lease and for the runs that it
//! works on. `stepgate_core::lease` decides what the answers mean; a lease itself counts by the database's
//! clock.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stepgate_core::digest::Digest;
use stepgate_core::ids::RunId;
use stepgate_core::journal::StateCode;
use stepgate_core::lease::{Claim, Claiming, Holder, Lease, Sending, taken_over};
use stepgate_core::lock::locked;
use stepgate_core::ports::StoreError;
use stepgate_core::spans::TAKEOVER;
use tokio::sync::Notify;
use tokio_postgres::Row;
use tracing::debug_span;

use super::link::{IS_KEPT, Query};
use super::open::PostgresOptions;
use super::point::Point;
use crate::Result;
use crate::plan::refusal;
use crate::search::IS_UNFINISHED;
use crate::tables::Cell;

/// Poll interval for a run that another node works on.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// How long an expired incarnation is kept: a day.
const FORGOTTEN_AFTER_MS: i64 = 24 * 3600 * 1000;

/// What a node reports to the others about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// The policies that are in force.
    pub(super) policy_hash: Option<Digest>,
    /// The executors that can be reached.
    pub(super) executor_ids: Vec<String>,
}

impl Told {
    /// The two columns of the node's row.
    fn columns(&self) -> [Cell<'static>; 2] {
        let executors = serde_json::Value::from(self.executor_ids.clone());
        [self.policy_hash.map(Cell::text_of).into(), Cell::text_of(executors)]
    }
}

/// This process among the nodes.
#[derive(Debug)]
pub(super) struct Node {
    node_id: String,
    lease_time: Duration,
    margin: Duration,
    lock_wait: Duration,
    point: Arc<Point>,
    /// When this process started, by the monotonic clock, which cannot be set.
    began: Instant,
    /// The lease, and the runs that this node owns.
    holder: Mutex<Holder>,
    /// What this node reports to the others. Each incarnation reports it again.
    told: Mutex<Told>,
    /// Wakes the renewal early: too little of the lease is left.
    hurry: Notify,
    renewed: Notify,
}

impl Node {
    pub(super) async fn register(
        point: Arc<Point>,
        options: &PostgresOptions,
    ) -> Result<Arc<Self>> {
        let node = Self {
            node_id: options.node_id.clone(),
            lease_time: options.lease,
            margin: options.dispatch_margin,
            lock_wait: options.lock_wait,
            point,
            began: Instant::now(),
            holder: Mutex::new(Holder::new(options.lease)),
            told: Mutex::default(),
            hurry: Notify::new(),
            renewed: Notify::new(),
        };
        node.become_another().await?;
        // If the cleanup fails now, the next node that registers does it.
        let _forgotten = node.ask(long_gone()).await;
        Ok(Arc::new(node))
    }

    pub(super) fn node_id(&self) -> &str {
        &self.node_id
    }

    pub(super) fn incarnation(&self) -> i64 {
        self.lease().incarnation
    }

    fn lease(&self) -> Lease {
        locked(&self.holder).lease()
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn claim_on(&self, run_id: RunId) -> Option<Claim> {
        locked(&self.holder).claim_on(run_id)
    }

    /// Notes the owner of a run after a commit.
    pub(super) fn note(&self, run_id: RunId, claim: Option<Claim>) {
        locked(&self.holder).note(run_id, claim);
    }

    /// Renews the lease periodically, until the store is dropped.
    pub(super) async fn keep_renewing(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.lease_time / 3) => {}
                () = self.hurry.notified() => {}
            }
            // A failed renewal is retried; meanwhile the lease may expire, as intended.
            let _tried = self.renew().await;
        }
    }

    /// Gives the lease back, so that no other node has to wait for it to expire.
    pub(super) async fn leave(&self) {
        let sql = "UPDATE nodes SET expires_at = clock_timestamp() WHERE incarnation = $1";
        // If this fails, the other nodes notice when the lease expires.
        let _said = self.ask(Query::of(sql, [Cell::Number(self.incarnation())])).await;
        self.point.stop().await;
    }

    /// Records which sandbox an executor's name refers to, and returns the recorded one: the first.
    pub(super) async fn claim_executor(&self, executor_id: &str, mark: &str) -> Result<String> {
        // The update changes nothing. It waits for another node that claims the name at the same time, and
        // returns that node's mark.
        let sql = "INSERT INTO marks (executor_id, mark) VALUES ($1, $2)
                   ON CONFLICT (executor_id) DO UPDATE SET mark = marks.mark RETURNING mark";
        let values = [Cell::text_of(executor_id), Cell::text_of(mark)];
        let rows = self.ask(Query::of(sql, values)).await?;
        let known = rows.first().and_then(|row| row.try_get(0).ok());
        known.ok_or_else(|| StoreError::Unavailable("PostgreSQL did not keep a mark".into()))
    }

    /// Runs a statement of this node's own bookkeeping; it is durable before the answer.
    pub(super) async fn ask(&self, query: Query) -> Result<Vec<Row>> {
        self.point.ask(query).await
    }

    /// Reports to the others what has changed here.
    pub(super) async fn tell(&self, change: impl FnOnce(&mut Told) + Send) -> Result<()> {
        change(&mut locked(&self.told));
        let [policy_hash, executors] = locked(&self.told).columns();
        let sql = "UPDATE nodes SET policy_hash = $2, executors = $3 WHERE incarnation = $1";
        let values = [Cell::Number(self.incarnation()), policy_hash, executors];
        self.ask(Query::of(sql, values)).await.map(drop)
    }

    pub(super) async fn renew(&self) -> Result<()> {
        let (lease, asked) = (self.lease(), self.now());
        if !lease.is_good(asked) {
            return self.become_another().await;
        }
        // Values that were written to an earlier incarnation's row are written again here.
        let [policy_hash, executors] = locked(&self.told).columns();
        let sql = format!(
            "UPDATE nodes SET expires_at = clock_timestamp() + $2::bigint * interval '1 millisecond',
               policy_hash = $3, executors = $4
             WHERE incarnation = $1 AND expires_at > clock_timestamp()
             RETURNING 1::bigint, {IS_KEPT}"
        );
        let incarnation = Cell::Number(lease.incarnation);
        let values = [incarnation, self.lease_ms(), policy_hash, executors];
        let rows = self.ask(Query::of(sql, values)).await?;
        if !locked(&self.holder).renewed(lease, asked, self.now(), !rows.is_empty()) {
            return self.become_another().await;
        }
        self.renewed.notify_waiters();
        Ok(())
    }

    async fn become_another(&self) -> Result<()> {
        let asked = self.now();
        let [policy_hash, executors] = locked(&self.told).columns();
        let sql = format!(
            "INSERT INTO nodes (node_id, expires_at, policy_hash, executors)
             VALUES ($1, clock_timestamp() + $2::bigint * interval '1 millisecond', $3, $4)
             RETURNING incarnation, {IS_KEPT}"
        );
        let values = [Cell::text_of(&self.node_id), self.lease_ms(), policy_hash, executors];
        let rows = self.ask(Query::of(sql, values)).await?;
        let incarnation = rows.first().and_then(|row| row.try_get(0).ok());
        let unnamed = || StoreError::Unavailable("PostgreSQL did not number this node".into());
        let incarnation = incarnation.ok_or_else(unnamed)?;
        locked(&self.holder).registered(incarnation, asked);
        self.renewed.notify_waiters();
        Ok(())
    }

    fn lease_ms(&self) -> Cell<'static> {
        u64::try_from(self.lease_time.as_millis()).unwrap_or(u64::MAX).into()
    }

    /// Waits until a call of this run may be sent, at most as long as a renewal of the lease may take.
    pub(super) async fn may_dispatch(&self, run_id: RunId) -> Result<()> {
        let deadline = tokio::time::Instant::now() + self.margin;
        loop {
            let renewed = self.renewed.notified();
            let claim = self.claim_on(run_id);
            match self.lease().may_send(claim, self.now(), self.margin) {
                Sending::Now => return Ok(()),
                Sending::Never => return Err(taken_over(run_id)),
                Sending::AfterRenewal => self.hurry.notify_one(),
            }
            if tokio::time::timeout_at(deadline, renewed).await.is_err() {
                return Err(taken_over(run_id));
            }
        }
    }

    /// Takes a run over, if it exists, is not over, and no other living node works on it.
    pub(super) async fn claim(&self, run_id: RunId) -> Result<()> {
        if locked(&self.holder).has_claimed(run_id) {
            return Ok(());
        }
        let deadline = tokio::time::Instant::now() + self.lock_wait;
        loop {
            match self.try_claim(run_id).await? {
                Claiming::NothingToClaim => return Ok(()),
                Claiming::Claimed(claim) => {
                    self.note(run_id, Some(claim));
                    return Ok(());
                }
                Claiming::Held => {}
            }
            if tokio::time::Instant::now() + ASK_AGAIN > deadline {
                let detail = format!("trace {run_id} is held by another node for too long");
                return Err(refusal(StateCode::LockAcquireFailed, detail));
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// `Ownership::claimed_by`, as one statement.
    async fn try_claim(&self, run_id: RunId) -> Result<Claiming> {
        let incarnation = self.incarnation();
        // No rows if there is nothing to claim; one row without an epoch if another node owns the run.
        //
        // INVARIANT: the statement that takes a run over from a node with an expired lease also writes that
        // node's row. So it waits for a renewal that is not committed yet and decides by its result, and a
        // later renewal finds the lease ended. The run is taken only from the owner that was checked: by
        // then the run may have a newer owner than this statement sees.
        let sql = format!(
            "WITH there AS MATERIALIZED (
               SELECT owner, epoch FROM tool_runs WHERE tool_run_id = $1 AND {IS_UNFINISHED}),
             ended AS (
               UPDATE nodes SET expires_at = least(expires_at, clock_timestamp()) FROM there
               WHERE incarnation = there.owner AND incarnation <> $2
                 AND expires_at <= clock_timestamp() RETURNING incarnation),
             free AS MATERIALIZED (
               SELECT owner, epoch FROM there WHERE owner IS NULL OR owner = $2
                 OR owner IN (SELECT incarnation FROM ended)
                 OR NOT EXISTS (SELECT 1 FROM nodes WHERE incarnation = owner)),
             claimed AS (
               UPDATE tool_runs SET owner = $2, epoch = tool_runs.epoch + 1 FROM free
               WHERE tool_run_id = $1 AND {IS_UNFINISHED} AND tool_runs.epoch = free.epoch
                 AND tool_runs.owner IS NOT DISTINCT FROM free.owner
               RETURNING tool_runs.epoch)
             SELECT (SELECT epoch FROM claimed) AS epoch,
                    coalesce(owner <> $2, false) AS was_anothers, {IS_KEPT} FROM there"
        );
        let values = [Cell::text_of(run_id), Cell::Number(incarnation)];
        let rows = self.ask(Query::of(sql, values)).await?;
        let Some(row) = rows.first() else { return Ok(Claiming::NothingToClaim) };
        Ok(match row.try_get("epoch") {
            Ok(Some(epoch)) => {
                if let Ok(true) = row.try_get("was_anothers") {
                    debug_span!(target: TAKEOVER, "takeover", stepgate.run_id = %run_id)
                        .in_scope(|| {});
                }
                Claiming::Claimed(Claim { incarnation, epoch })
            }
            Ok(None) | Err(_) => Claiming::Held,
        })
    }

    /// Releases a run that this node has not ended, so that other nodes can work on it.
    pub(super) async fn disown(&self, run_id: RunId) -> Result<()> {
        let released = locked(&self.holder).release(run_id);
        let Some(Claim { incarnation, epoch }) = released else { return Ok(()) };
        let sql = "UPDATE tool_runs SET owner = NULL
                   WHERE tool_run_id = $1 AND owner = $2 AND epoch = $3";
        let values = [Cell::text_of(run_id), Cell::Number(incarnation), Cell::Number(epoch)];
        self.ask(Query::of(sql, values)).await.map(drop)
    }
}

/// Deletes incarnations that expired long ago and left no runs: every command on the store is a node for a
/// moment. The last incarnation of each node stays, because it says what the node reached.
fn long_gone() -> Query {
    let sql = format!(
        "DELETE FROM nodes USING
           (SELECT node_id, max(incarnation) AS last FROM nodes GROUP BY node_id) AS kept
         WHERE nodes.node_id = kept.node_id AND incarnation < kept.last
           AND expires_at < clock_timestamp() - $1::bigint * interval '1 millisecond'
           AND NOT EXISTS (SELECT 1 FROM tool_runs WHERE owner = incarnation AND {IS_UNFINISHED})"
    );
    Query::of(sql, [Cell::Number(FORGOTTEN_AFTER_MS)])
}
