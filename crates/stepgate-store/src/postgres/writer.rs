//! The only writer of this process: batches of steps, each in one transaction.
//!
//! Writes that wait together are planned one after the other and sent as one statement per table, in one
//! round trip and one commit. A batch first trusts the cache; the statements themselves are conditional, so
//! a batch based on stale facts changes nothing. Then everything is read again under locks. If the database
//! still refuses, every write is tried alone: one bad step never harms another. No write is answered before
//! it is durable.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use deadpool_postgres::ClientWrapper;
use stepgate_core::ids::{RunId, SessionId};
use stepgate_core::lease::{Claim, Incarnation, Ownership, taken_over};
use stepgate_core::ports::{ApprovalChange, StoreError};
use stepgate_core::run::Status;
use stepgate_core::spans::BATCH;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::instrument;

use super::cells::one;
use super::error;
use super::facts::{Care, Facts, Needs};
use super::link::{Around, Failed, Query, send};
use super::listen::{DECIDED, ENDED};
use super::nodes::Node;
use super::open::{Lines, PostgresOptions};
use super::point::{Durability, told};
use super::write::{Moved, Planned, Stamp, statements};
use crate::Result;
use crate::plan::{Chain, Rows, Trace, Write, WriteResult, plan};
use crate::select::{self, Engine, Select};
use crate::tables::Cell;

/// Attempts of a write alone, if writes of other nodes interfere.
const ALONE_MAX: usize = 3;

/// Pause before a reconnect.
const CONNECT_AGAIN: Duration = Duration::from_millis(100);

/// Shortest timeout for an answer, also for a write that waited long in the queue.
const ANSWER_WAIT_MIN: Duration = Duration::from_secs(2);

struct Job {
    write: Write,
    /// The claim that the caller believed it held when it asked.
    claim: Option<Claim>,
    /// When its caller's wait ends.
    deadline: Instant,
    answer: oneshot::Sender<WriteResult>,
}

impl Job {
    /// The run that it changes. A batch has at most one write for each run.
    fn run_id(&self) -> Option<RunId> {
        self.write.commit().map(|commit| commit.place.run_id)
    }
}

/// The handle of the writing task. Dropping it ends the task when the queue is empty.
#[derive(Debug)]
pub(super) struct Writer {
    queue: mpsc::Sender<Job>,
    patience: Duration,
    last_loose: Arc<AtomicU64>,
}

/// The last position of an event that belongs to no run, where the answer to the last batch did not tell it.
const UNKNOWN: u64 = u64::MAX;

impl Writer {
    pub(super) fn start(
        lines: Lines,
        node: Arc<Node>,
        options: &PostgresOptions,
        mut left: watch::Receiver<bool>,
    ) -> Self {
        let (queue, jobs) = mpsc::channel(options.queue_jobs_max.max(1));
        let last_loose = Arc::new(AtomicU64::new(UNKNOWN));
        let writing = Writing {
            last_loose: Arc::clone(&last_loose),
            lines,
            node,
            client: None,
            memory: Facts::default(),
            batches: 0,
            patience: options.answer_wait,
        };
        let batch_jobs_max = options.batch_jobs_max.max(1);
        tokio::spawn(async move {
            let left = async {
                // If the sender is gone, the task ends with the queue.
                if left.wait_for(|left| *left).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            writing.serve(jobs, batch_jobs_max, left).await;
        });
        Self { queue, patience: options.answer_wait, last_loose }
    }

    /// The last position of an event that belongs to no run, as the last batch found it.
    pub(super) fn committed_loose_position(&self) -> Option<u64> {
        Some(self.last_loose.load(Ordering::Acquire)).filter(|position| *position != UNKNOWN)
    }

    /// Writes, and returns when the write is durable or refused. A caller that is dropped while it waits for
    /// the answer does not stop the write.
    pub(super) async fn write(&self, write: Write, claim: Option<Claim>) -> WriteResult {
        let stopped = || StoreError::Broken("the writer has stopped; restart to recover".into());
        let (answer, answered) = oneshot::channel();
        let deadline = Instant::now() + self.patience;
        let sending = self.queue.send(Job { write, claim, deadline, answer });
        let sent = tokio::time::timeout(self.patience, sending).await;
        sent.map_err(|_| not_in_time())?.map_err(|_| stopped())?;
        answered
            .await
            .map_err(|_| StoreError::AnswerLost("the writer stopped before it answered".into()))?
    }
}

struct Writing {
    /// The last position of an event that belongs to no run. A batch reads it while it holds the counter of events,
    /// so no event gets a smaller position later.
    last_loose: Arc<AtomicU64>,
    lines: Lines,
    node: Arc<Node>,
    client: Option<ClientWrapper>,
    /// Cache: the state of open traces and sessions, as far as this node knows.
    memory: Facts,
    /// How many batches were attempted.
    batches: i64,
    patience: Duration,
}

/// Why a batch was not written.
enum Trouble {
    /// Nothing of it was written: the database refuses something in it, or the connection was cut.
    Refused(StoreError),
    /// Nothing of it was written, and no other write would be: the server does not answer, or refuses all
    /// writes.
    Away(StoreError),
    /// It was written or not, and the server cannot be asked.
    Unknown(StoreError),
}

/// The answers of a batch, in the order of the writes; none for a write that must be tried again.
type Answers = Vec<Option<WriteResult>>;

impl Writing {
    /// Writes until no caller can send any more, or the node leaves the store.
    async fn serve(
        mut self,
        mut jobs: mpsc::Receiver<Job>,
        batch_jobs_max: usize,
        left: impl Future<Output = ()>,
    ) {
        let mut left = std::pin::pin!(left);
        let mut waiting = VecDeque::new();
        let mut fresh = Vec::new();
        loop {
            if waiting.is_empty() {
                let count = tokio::select! {
                    biased;
                    count = jobs.recv_many(&mut fresh, batch_jobs_max) => count,
                    () = &mut left => 0,
                };
                if count == 0 {
                    return;
                }
            }
            while waiting.len() + fresh.len() < batch_jobs_max
                && let Ok(job) = jobs.try_recv()
            {
                fresh.push(job);
            }
            waiting.extend(fresh.drain(..));
            let batch = next_batch(&mut waiting, batch_jobs_max);
            self.write_batch(batch).await;
        }
    }

    async fn write_batch(&mut self, batch: Vec<Job>) {
        let mut left = batch;
        for care in [Care::Trusting, Care::Doubting] {
            left = in_time(left);
            if left.is_empty() {
                return;
            }
            left = match self.attempt(&left, care).await {
                Ok(answers) => answer(left, answers),
                Err(Trouble::Refused(_)) => left,
                Err(Trouble::Away(error) | Trouble::Unknown(error)) => return refuse(left, &error),
            };
        }
        let mut left = VecDeque::from(left);
        while let Some(job) = left.pop_front() {
            // If the server is down for one write, the others would wait for the same error.
            if let Some(away) = self.write_alone(job).await {
                return refuse(left.into(), &away);
            }
        }
    }

    /// Tries a write alone. Another node may interfere between the read and the write, so it reads again
    /// before it concludes that the database refuses the write itself. Returns the error if the server is
    /// down.
    async fn write_alone(&mut self, job: Job) -> Option<StoreError> {
        let mut batch = vec![job];
        for tries_left in (0..ALONE_MAX).rev() {
            batch = in_time(batch);
            if batch.is_empty() {
                return None;
            }
            match self.attempt(&batch, Care::Doubting).await {
                Ok(answers) => {
                    batch = answer(batch, answers);
                    refuse(batch, &StoreError::Unavailable("not decided".into()));
                    return None;
                }
                Err(Trouble::Refused(StoreError::State(_))) if tries_left > 0 => {}
                Err(Trouble::Refused(error) | Trouble::Unknown(error)) => {
                    refuse(batch, &error);
                    return None;
                }
                Err(Trouble::Away(error)) => {
                    refuse(batch, &error);
                    return Some(error);
                }
            }
        }
        None
    }

    /// Writes all of a batch in one transaction, or nothing.
    #[instrument(
        target = BATCH, name = "transaction", level = "debug", skip_all,
        fields(
            otel.kind = "client",
            db.system.name = "postgresql",
            db.operation.name = "TRANSACTION",
            db.operation.batch.size = batch.len() as u64,
        )
    )]
    async fn attempt(&mut self, batch: &[Job], care: Care) -> Result<Answers, Trouble> {
        let mut facts = match care {
            Care::Trusting => self.memory.about(batch.iter().map(|job| &job.write)),
            Care::Doubting => Facts::default(),
        };
        let attempted = self.transact(batch, care, &mut facts).await;
        match attempted {
            Ok(_) => self.memory.absorb(facts),
            // After an error the cache is cleared, and everything is read again.
            Err(_) => self.memory = Facts::default(),
        }
        attempted
    }

    async fn transact(
        &mut self,
        batch: &[Job],
        care: Care,
        facts: &mut Facts,
    ) -> Result<Answers, Trouble> {
        let first = batch.iter().map(|job| job.deadline).min();
        let deadline = first.unwrap_or_else(Instant::now);
        self.learn(batch, care, facts, deadline).await?;
        let before = facts.chains.clone();
        let (planned, answers) = self.plan(batch, care, facts);
        let moved = moved(&planned, &before, facts);
        let is_idle =
            planned.iter().all(|planned| planned.rows.is_empty() && planned.held.is_none());
        if is_idle {
            // Nothing to write: the locks are released.
            if care == Care::Doubting {
                self.roll_back().await;
            }
            return Ok(answers);
        }
        self.batches += 1;
        let stamp = Stamp { incarnation: self.node.incarnation(), batch: self.batches };
        let queries = statements(&planned, &moved, stamp);
        let around = match care {
            Care::Trusting => Around::Whole,
            Care::Doubting => Around::Commit,
        };
        let last_loose = self.commit(around, &queries, stamp, deadline).await;
        let position = last_loose.as_ref().ok().copied().flatten();
        self.last_loose.store(position.unwrap_or(UNKNOWN), Ordering::Release);
        last_loose?;
        for Planned { rows, after, .. } in &planned {
            if let (Some((run_id, _)), Some(after)) = (rows.trace, after) {
                self.node.note(run_id, after.claim());
            }
        }
        Ok(answers)
    }

    /// Reads the facts that the plans will need and the cache does not have.
    async fn learn(
        &mut self,
        batch: &[Job],
        care: Care,
        facts: &mut Facts,
        deadline: Instant,
    ) -> Result<(), Trouble> {
        let needs = Needs::of(batch.iter().map(|job| &job.write), facts, care);
        if needs.is_empty() && care == Care::Trusting {
            return Ok(());
        }
        let around = match care {
            Care::Trusting => Around::Nothing,
            Care::Doubting => Around::Begin,
        };
        let patience = self.patience_until(deadline);
        let client = self.connected().await.map_err(Trouble::Away)?;
        let rows = match send(client, around, &needs.queries(care), patience).await {
            Ok(rows) => rows,
            Err(failed) => {
                self.client = None;
                return Err(nothing_written(failed));
            }
        };
        let learnt = facts.learn(&rows);
        if learnt.is_err() && care == Care::Doubting {
            self.roll_back().await;
        }
        learnt.map_err(Trouble::Refused)
    }

    /// Plans every write, each on the facts as changed by the writes before it.
    fn plan<'a>(
        &self,
        batch: &'a [Job],
        care: Care,
        facts: &mut Facts,
    ) -> (Vec<Planned<'a>>, Answers) {
        let incarnation = self.node.incarnation();
        let mut planned = Vec::with_capacity(batch.len());
        let mut answers = Vec::with_capacity(batch.len());
        for job in batch {
            let before = job.run_id().and_then(|run_id| facts.status(run_id));
            // Nothing may be added to the runs of an archive before its commit, so their sessions are locked: facts that
            // other writes of the batch have read are not.
            if matches!(job.write, Write::Archive(_)) && care == Care::Trusting {
                answers.push(None);
                continue;
            }
            let decided = fence(job, facts, incarnation)
                .and_then(|held| Ok((held, plan(&job.write, facts)?)));
            match decided {
                Ok((held, rows)) => {
                    let after = rows.trace.map(|(_, Trace { status, .. })| {
                        Ownership::after_commit(held, job.claim, incarnation, status)
                    });
                    facts.note(&rows, after);
                    answers.push(Some(Ok(rows.answer.clone())));
                    let telling = telling(&rows, before);
                    planned.push(Planned { rows, after, held, telling });
                }
                // The cache may be stale; only facts that were read under locks can refuse a write.
                Err(refused) => answers.push(match care {
                    Care::Trusting => None,
                    Care::Doubting => Some(Err(refused)),
                }),
            }
        }
        (planned, answers)
    }

    /// Sends the statements and the commit, and returns what the last statement found. If the answer is lost, finds out
    /// whether the batch was committed.
    async fn commit(
        &mut self,
        around: Around,
        queries: &[Query],
        stamp: Stamp,
        deadline: Instant,
    ) -> Result<Option<u64>, Trouble> {
        let patience = self.patience_until(deadline);
        if around == Around::Whole {
            self.connected().await.map_err(Trouble::Away)?;
        }
        // INVARIANT: an open transaction continues on the connection on which it began. On another
        // connection each statement would be a commit of its own.
        let Some(client) = &self.client else {
            let lost = StoreError::Unavailable("the connection to PostgreSQL was lost".into());
            return Err(Trouble::Refused(lost));
        };
        let failed = match send(client, around, queries, patience).await {
            Ok(rows) => {
                let Select { table, read, .. } = select::last_loose_position(Engine::Postgres);
                return Ok(rows.last().and_then(|rows| one(rows, table, read).ok()?));
            }
            Err(failed) => failed,
        };
        match &failed {
            Failed::Told(error) if error::is_refusal(error) => {
                if failed.is_of_connection() {
                    self.client = None;
                }
                return Err(nothing_written(failed));
            }
            Failed::Told(_) | Failed::Silent(_) => self.client = None,
        }
        match self.was_committed(stamp, deadline).await {
            Some(true) => Ok(None),
            Some(false) => Err(nothing_written(failed)),
            None => {
                let why = told(failed).to_string();
                Err(Trouble::Unknown(StoreError::AnswerLost(why)))
            }
        }
    }

    /// Whether the batch with this stamp is durable; none where the server cannot be asked in time.
    ///
    /// The row that a batch stamps stays locked until its transaction ends. So a read under that lock sees
    /// the final result, even if the server is still working on the lost connection.
    async fn was_committed(&self, stamp: Stamp, deadline: Instant) -> Option<bool> {
        let sql = "SELECT last_batch FROM nodes WHERE incarnation = $1 FOR UPDATE";
        loop {
            let query = Query::of(sql, [Cell::Number(stamp.incarnation)]);
            let patience = self.patience_until(deadline);
            // A connection of its own: the server may have stopped accepting writes.
            if let Ok(client) = self.lines.open(Durability::After).await
                && let Ok(rows) = send(&client, Around::Nothing, &[query], patience).await
            {
                let row = rows.first().and_then(|rows| rows.first());
                let last: Option<i64> = row.and_then(|row| row.try_get(0).ok());
                return Some(last == Some(stamp.batch));
            }
            if Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(CONNECT_AGAIN).await;
        }
    }

    /// The timeout for an answer.
    fn patience_until(&self, deadline: Instant) -> Duration {
        let left = deadline.saturating_duration_since(Instant::now());
        left.clamp(ANSWER_WAIT_MIN.min(self.patience), self.patience)
    }

    async fn connected(&mut self) -> Result<&ClientWrapper> {
        if self.client.as_ref().is_none_or(|client| client.is_closed()) {
            self.client = Some(self.lines.open(Durability::Before).await?);
        }
        self.client.as_ref().ok_or_else(|| StoreError::Unavailable("not connected".into()))
    }

    async fn roll_back(&mut self) {
        let Some(client) = &self.client else { return };
        let rolling = client.batch_execute("ROLLBACK");
        if !matches!(tokio::time::timeout(ANSWER_WAIT_MIN, rolling).await, Ok(Ok(()))) {
            self.client = None;
        }
    }
}

/// The next writes, at most one for each run: a second one waits for the result of the first.
fn next_batch(waiting: &mut VecDeque<Job>, batch_jobs_max: usize) -> Vec<Job> {
    let mut batch = Vec::new();
    let mut runs = HashSet::new();
    let mut later = VecDeque::new();
    for job in waiting.drain(..) {
        let is_next = batch.len() < batch_jobs_max && job.run_id().is_none_or(|id| runs.insert(id));
        match is_next {
            true => batch.push(job),
            false => later.push_back(job),
        }
    }
    *waiting = later;
    batch
}

/// The fence: the present ownership of the run that a write is about, if the run exists and the caller owns
/// it.
fn fence(job: &Job, facts: &Facts, incarnation: Incarnation) -> Result<Option<Ownership>> {
    let Some(commit) = job.write.commit() else { return Ok(None) };
    let run_id = commit.place.run_id;
    let Some(held) = facts.ownership(run_id).filter(|_| commit.open.is_none()) else {
        return Ok(None);
    };
    match held.admits(job.claim, incarnation) {
        true => Ok(Some(held)),
        false => Err(taken_over(run_id)),
    }
}

/// The notification to other nodes: only for runs with an approval, because notifications are not free.
fn telling(rows: &Rows<'_>, before: Option<Status>) -> Option<&'static str> {
    let was_asked = matches!(before, Some(Status::ApprovalRequired | Status::Approved));
    match (rows.record, rows.approval) {
        (Some(_), _) => was_asked.then_some(ENDED),
        (None, Some(ApprovalChange::Decide(_))) => Some(DECIDED),
        (None, Some(ApprovalChange::Ask(_)) | None) => None,
    }
}

/// The state of each session that the plans changed.
fn moved(planned: &[Planned<'_>], before: &HashMap<SessionId, Chain>, after: &Facts) -> Vec<Moved> {
    let moves = planned.iter().filter_map(|planned| planned.rows.chain);
    let mut sessions: Vec<SessionId> = moves.map(|(session_id, _)| session_id).collect();
    // In the order of their ids, like the locks.
    sessions.sort_unstable();
    sessions.dedup();
    let move_of = |session_id: SessionId| {
        let was = before.get(&session_id).copied().unwrap_or(Chain::EMPTY);
        Some(Moved { session_id, before: was, after: *after.chains.get(&session_id)? })
    };
    sessions.into_iter().filter_map(move_of).collect()
}

/// Answers the decided writes, and returns the others.
fn answer(batch: Vec<Job>, answers: Answers) -> Vec<Job> {
    let mut left = Vec::new();
    for (job, answer) in batch.into_iter().zip(answers) {
        match answer {
            Some(answer) => {
                // The caller may have been dropped.
                let _left = job.answer.send(answer);
            }
            None => left.push(job),
        }
    }
    left
}

/// The writes whose callers still wait. Of the others nothing was sent, or the server reported that nothing
/// was written.
fn in_time(batch: Vec<Job>) -> Vec<Job> {
    let now = Instant::now();
    let (late, left) = batch.into_iter().partition(|job: &Job| job.deadline <= now);
    refuse(late, &not_in_time());
    left
}

fn not_in_time() -> StoreError {
    StoreError::Unavailable("PostgreSQL is too slow, or away: nothing was written in time".into())
}

/// The meaning of a failure where nothing was written.
fn nothing_written(failed: Failed) -> Trouble {
    let is_away = match &failed {
        Failed::Told(error) => error::takes_nothing(error),
        Failed::Silent(_) => true,
    };
    if is_away { Trouble::Away(told(failed)) } else { Trouble::Refused(told(failed)) }
}

fn refuse(batch: Vec<Job>, error: &StoreError) {
    for job in batch {
        let _left = job.answer.send(Err(error.clone()));
    }
}
