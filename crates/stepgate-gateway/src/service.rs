//! The service that every interface uses: steps, decisions, tokens, and the background tasks.
//!
//! Each step runs in its own task. A caller that disconnects stops waiting; the step goes on.

mod archiving;
mod attention;
mod rolled_back;
mod expiry;
mod listening;
mod readiness;
mod recovery;
mod stops;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use stepgate_core::approval::{Approval, ApprovalStatus, Resolution};
use stepgate_core::approvers;
use stepgate_core::consent::{self, GrantRefused, GrantStanding, NewGrant};
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::ids::{ApprovalId, ArtifactId, PrincipalId, RunId, SessionId};
use stepgate_core::journal::{StateCode, StateError};
use stepgate_core::lock;
use stepgate_core::parts::Parts;
use stepgate_core::ports::StoreError;
use stepgate_core::run::{Payload, Word};
use stepgate_core::session::Session;
use stepgate_core::step::{self, Answer, Person, Refused, Settlement, Submission};
use stepgate_core::time::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tracing::{Instrument, warn};

use crate::control::Control;
use crate::hub::Hub;
use crate::meters::StepCounts;
use crate::request;
use crate::tokens::Tokens;

pub use archiving::{ArchiveSettings, Archived};
pub use attention::{APPROVALS_MAX, Counts};
pub(crate) use expiry::each_open_approval;
pub(crate) use recovery::recover_and_tell;
pub(crate) use rolled_back::refuse as refuse_rolled_back;
pub use stops::Stopped;

/// Most sessions in the cache. Above that it is cleared, and sessions are looked up again.
const SESSIONS_MAX: usize = 10_000;

/// The principal, and the session it names: none means the principal's default one.
type AskedSession = (PrincipalId, Option<SessionId>);

/// The gate with everything that a serving process adds to it.
pub struct Service {
    /// The gate.
    pub gate: Gate,
    /// Announces what becomes durable.
    pub hub: Arc<Hub>,
    /// The tokens that authenticate callers.
    pub tokens: Tokens,
    /// What operators change beside the gate. None if this process did not build it.
    pub control: Option<Arc<Control>>,
    /// How the steps of this service ended.
    pub steps: StepCounts,
    /// Cache of sessions that requests have named or joined.
    sessions: Mutex<HashMap<AskedSession, SessionId>>,
    /// How many running tasks shutdown must wait for.
    running: watch::Sender<usize>,
    /// Draining: clients should send new requests elsewhere; requests that still come are answered.
    draining: watch::Sender<bool>,
    leaving: watch::Sender<bool>,
    /// The store has failed for good, and the process must end.
    broken: watch::Sender<bool>,
    /// Signals that a fault left a run to recovery.
    left: Notify,
    /// The last result of the readiness probe.
    tried: readiness::Last,
    /// The scopes of recovery: each has its own passes.
    scopes: recovery::Scopes,
    /// Runs already logged as needing a person, with the time since when they do.
    said: Mutex<HashMap<RunId, Timestamp>>,
    /// Which parts were told to need a person.
    parts: Parts,
    /// One pass over old runs at a time.
    archiving: tokio::sync::Mutex<()>,
}

/// Outcome of a decision.
#[derive(Debug)]
pub struct Decided {
    /// The approval, as it stands now.
    pub approval: Approval,
    /// The step's answer, if the step ended together with the decision.
    pub answer: Option<Answer>,
}

impl Service {
    /// A service over this gate, whose store announces to this hub.
    pub async fn new(
        gate: Gate,
        hub: Arc<Hub>,
        control: Option<Arc<Control>>,
    ) -> anyhow::Result<Arc<Self>> {
        let tokens = Tokens::load(&*gate.store).await?;
        Ok(Arc::new(Self {
            scopes: recovery::scopes(&gate),
            said: Mutex::default(),
            parts: Parts::default(),
            archiving: tokio::sync::Mutex::default(),
            tried: readiness::Last::default(),
            gate,
            hub,
            tokens,
            control,
            steps: StepCounts::default(),
            sessions: Mutex::default(),
            running: watch::channel(0).0,
            draining: watch::channel(false).0,
            leaving: watch::channel(false).0,
            broken: watch::channel(false).0,
            left: Notify::new(),
        }))
    }

    /// Takes a payload through the gate. If the answer is only a notice, waits for the outcome, at most `max_wait`.
    pub async fn submit(
        self: &Arc<Self>,
        principal_id: PrincipalId,
        session: Option<SessionId>,
        payload: Payload,
        max_wait: Duration,
    ) -> Result<Answer, Fault> {
        let run_id = RunId::new(self.gate.world.fresh_uuid());
        self.submit_as(run_id, principal_id, session, payload, max_wait).await
    }

    /// Like [`Self::submit`], with a run id chosen by the caller, so that it can watch the run before it begins.
    /// A proposal that is already known keeps its own run, and the answer names that run.
    pub async fn submit_as(
        self: &Arc<Self>,
        run_id: RunId,
        principal_id: PrincipalId,
        session: Option<SessionId>,
        payload: Payload,
        max_wait: Duration,
    ) -> Result<Answer, Fault> {
        let asked = (principal_id.clone(), session);
        let session_id = self.session_of(&asked).await?;
        let submission = Submission { session_id, principal_id, payload };
        let service = Arc::clone(self);
        let task = self.spawn(async move {
            let answer = step::run_as(&service.gate, run_id, submission).await;
            service.note(answer.as_ref().map_err(Some));
            answer
        });
        let answer = task.await.map_err(stopped)?.inspect_err(|_| {
            // A store that was restored to an earlier state may not have the session any more.
            self.known_sessions().remove(&asked);
        })?;
        match answer.word() {
            Word::Notice(_) if !max_wait.is_zero() => self.wait(answer, max_wait).await,
            Word::Notice(_) | Word::Outcome(_) => Ok(answer),
        }
    }

    /// Waits until the run is recorded, at most `max_wait`, and returns the run's answer at that time.
    pub async fn wait(&self, first: Answer, max_wait: Duration) -> Result<Answer, Fault> {
        let mut watch = self.hub.watch(first.run_id);
        let mut leaving = self.leaving.subscribe();
        let mut answer = step::answer_of(&self.gate, first.run_id).await?;
        if matches!(answer.word(), Word::Notice(_)) {
            tokio::select! {
                () = watch.finished() => {}
                () = tokio::time::sleep(max_wait) => {}
                () = wait_until_set(&mut leaving) => {}
            }
            answer = step::answer_of(&self.gate, first.run_id).await?;
        }
        Ok(Answer { replayed: first.replayed, ..answer })
    }

    /// Decides on an approval. Returns as soon as the decision is durable: the step goes on in its task. A run that
    /// does not verify cannot be decided on, so it is reported as needing a person.
    pub async fn decide(
        self: &Arc<Self>,
        approval_id: ApprovalId,
        person: Person,
    ) -> Result<Decided, Refused> {
        let approval = self.approval(approval_id).await?;
        if decider(&person).is_some_and(|who| self.is_own_request(&approval, who)) {
            return Err(Refused::OwnRequest);
        }
        let run_id = approval.tool_run_id;
        let decided = self.decide_on(approval, person).await;
        if let Err(refused) = &decided
            && let Some(error) = quarantine_of(refused)
        {
            let told =
                stepgate_core::attention::tell_quarantined(&self.gate, run_id, error.to_string())
                    .await;
            if let Err(fault) = told {
                warn!(%run_id, "that {run_id} is quarantined is written down later: {fault}");
            }
            self.log_runs_needing_person().await;
        }
        decided
    }

    async fn decide_on(
        self: &Arc<Self>,
        approval: Approval,
        person: Person,
    ) -> Result<Decided, Refused> {
        let approval_id = approval.approval_id;
        if approval.status != ApprovalStatus::Pending {
            return Err(Refused::AlreadyDecided);
        }
        if person != Person::Nobody && approval.expires_at() <= Some(self.gate.world.now()) {
            // It expired before this decision, although the expiry is not written yet.
            self.resume(approval_id, Person::Nobody, BTreeSet::new())
                .await
                .map_err(task_stopped)??;
            return Err(Refused::AlreadyDecided);
        }
        if let Some(who) = decider(&person)
            && !self.may_decide(&approval, who)?
        {
            return Err(Refused::NotAnApprover);
        }
        let mut with = BTreeSet::new();
        if let Person::Approves { approver_id, note } = &person {
            if !self.reaches(&approval).await? {
                return Err(Refused::OutOfReach);
            }
            match self.approvers(&approval, approver_id, note.as_ref()).await? {
                Some(people) => with = people,
                None => return Ok(Decided { approval, answer: None }),
            }
        }
        let mut watch = self.hub.watch(approval.tool_run_id);
        let mut task = self.resume(approval_id, person.clone(), with);
        let answer = tokio::select! {
            biased;
            ended = &mut task => Some(ended.map_err(task_stopped)??),
            () = watch.decided() => None,
        };
        let approval = self.approval(approval_id).await?;
        // The watch shows that it was decided, not by whom.
        if answer.is_none() && !is_by(&approval, &person) {
            return Err(Refused::AlreadyDecided);
        }
        Ok(Decided { approval, answer })
    }

    /// Everyone whose approval counts together with this person's. None where that is not enough yet: then it is
    /// recorded as a vote, and the approval stays open.
    async fn approvers(
        &self,
        approval: &Approval,
        approver_id: &PrincipalId,
        note: Option<&String>,
    ) -> Result<Option<BTreeSet<PrincipalId>>, Refused> {
        let required = &approval.context.read()?.required;
        if required.is_empty() {
            return Ok(Some(BTreeSet::new()));
        }
        let groups = &self.gate.groups;
        let votes = consent::votes(&self.gate, approval.approval_id).await?;
        let mut others = votes.iter().filter(|voter| *voter != approver_id);
        if let Some(voter) = others.find(|voter| self.tokens.are_linked(voter, approver_id)) {
            return Err(Refused::LinkedApprover(voter.clone()));
        }
        let people = self.unlinked(approver_id, &votes);
        if approvers::are_enough(required, groups, &people) {
            return Ok(Some(people));
        }
        // Others may vote at the same time, so they are counted once more.
        let votes = consent::vote(&self.gate, approval.approval_id, approver_id, note.cloned());
        let people = self.unlinked(approver_id, &votes.await?);
        Ok(approvers::are_enough(required, groups, &people).then_some(people))
    }

    /// Whether policy lets this person decide, and everyone who could have made a token in the person's name.
    fn may_decide(&self, approval: &Approval, person: &PrincipalId) -> Result<bool, Refused> {
        let required = &approval.context.read()?.required;
        let mut behind = self.tokens.behind(person).into_iter();
        Ok(behind.all(|one| approvers::may_decide(required, &self.gate.groups, &one)))
    }

    /// A person, and those of the others who are linked neither to that person nor to each other.
    fn unlinked(
        &self,
        first: &PrincipalId,
        others: &BTreeSet<PrincipalId>,
    ) -> BTreeSet<PrincipalId> {
        let mut people = BTreeSet::from([first.clone()]);
        for other in others {
            if !people.iter().any(|person| self.tokens.are_linked(person, other)) {
                people.insert(other.clone());
            }
        }
        people
    }

    /// Makes a grant, as an operator asks.
    pub async fn grant(
        &self,
        operator: &PrincipalId,
        new: NewGrant,
    ) -> Result<GrantStanding, GrantRefused> {
        let approval = self.gate.store.approval(new.approval_id).await?;
        let approval = approval.ok_or(GrantRefused::NoSuchApproval)?;
        if self.is_own_request(&approval, operator) {
            return Err(GrantRefused::OwnRequest);
        }
        if !self.may_decide(&approval, operator).unwrap_or(false) {
            return Err(GrantRefused::NotAnApprover);
        }
        consent::create_grant(&self.gate, operator, new).await
    }

    fn resume(
        self: &Arc<Self>,
        approval_id: ApprovalId,
        person: Person,
        with: BTreeSet<PrincipalId>,
    ) -> JoinHandle<Result<Answer, Refused>> {
        let service = Arc::clone(self);
        self.spawn(async move {
            let answer = step::resume_with(&service.gate, approval_id, person, &with).await;
            service.note(answer.as_ref().map_err(fault_of));
            answer
        })
    }

    /// Whether a call granted here can reach the executor that it was meant for. Always true if the store is not
    /// shared: then no other node has that executor either.
    async fn reaches(&self, approval: &Approval) -> Result<bool, StoreError> {
        let context = approval.context.read().ok();
        let executor = context.and_then(|it| Some((&it.tool_server, it.executor_id.as_ref()?)));
        let answers = executor.is_none_or(|(server, id)| self.gate.answers_for(server, id));
        Ok(answers || self.gate.store.nodes().await?.is_empty())
    }

    /// Whether this person and the requester are linked through who created their tokens.
    fn is_own_request(&self, approval: &Approval, person: &PrincipalId) -> bool {
        // A context that cannot be read is decided by no principal: it fails closed.
        let context = approval.context.read();
        context.map_or(true, |asked| self.tokens.are_linked(&asked.principal_id, person))
    }

    /// Whether a token is still valid.
    pub fn is_live(&self, token_id: ArtifactId) -> bool {
        self.tokens.is_live(token_id, self.gate.world.now())
    }

    async fn approval(&self, approval_id: ApprovalId) -> Result<Approval, Refused> {
        self.gate.store.approval(approval_id).await?.ok_or(Refused::NoSuchApproval)
    }

    /// Settles a call in doubt as the operator decides.
    pub async fn resolve(
        self: &Arc<Self>,
        run_id: RunId,
        settlement: Settlement,
        operator: PrincipalId,
    ) -> Result<Answer, Refused> {
        let service = Arc::clone(self);
        let task = self.spawn(async move {
            let answer = step::resolve(&service.gate, run_id, settlement, operator, None).await;
            service.note(answer.as_ref().map_err(fault_of));
            answer
        });
        task.await.map_err(task_stopped)?
    }

    /// A new session of this principal.
    pub async fn open_session(&self, principal: &PrincipalId) -> Result<SessionId, Fault> {
        let id = SessionId::new(self.gate.world.fresh_uuid());
        Ok(self.gate.named_session(id, principal).await?.session_id)
    }

    /// The session that a step joins: the named one, or the principal's default one. Cached, because a session is
    /// never removed and never changes its principal.
    async fn session_of(&self, asked: &AskedSession) -> Result<SessionId, Fault> {
        if let Some(id) = self.known_sessions().get(asked) {
            return Ok(*id);
        }
        let (principal, named) = asked;
        let Session { session_id, .. } = match named {
            Some(id) => self.gate.named_session(*id, principal).await?,
            None => self.gate.default_session(principal).await?,
        };
        self.know_session(asked.clone(), session_id);
        Ok(session_id)
    }

    /// Whether there is a session of this id, and it is this principal's.
    pub async fn has_session(&self, principal: &PrincipalId, id: SessionId) -> Result<bool, Fault> {
        let asked = (principal.clone(), Some(id));
        if self.known_sessions().contains_key(&asked) {
            return Ok(true);
        }
        let session = self.gate.store.session(id).await?;
        let is_own = session.is_some_and(|session| session.principal_id == *principal);
        if is_own {
            self.know_session(asked, id);
        }
        Ok(is_own)
    }

    fn know_session(&self, asked: AskedSession, session_id: SessionId) {
        let mut known = self.known_sessions();
        if known.len() >= SESSIONS_MAX {
            known.clear();
        }
        known.insert(asked, session_id);
    }

    fn known_sessions(&self) -> MutexGuard<'_, HashMap<AskedSession, SessionId>> {
        lock::locked(&self.sessions)
    }

    /// Starts the background tasks: expiry, recovery, listening to other nodes, telling which parts need a person,
    /// and the check for a store that went back in time.
    pub fn begin(self: &Arc<Self>) {
        tokio::spawn(expiry::keep_time(Arc::clone(self)));
        tokio::spawn(recovery::keep_recovering(Arc::clone(self)));
        tokio::spawn(listening::keep_listening(Arc::clone(self)));
        tokio::spawn(attention::keep_telling(Arc::clone(self)));
        tokio::spawn(rolled_back::keep_looking(Arc::clone(self)));
        tokio::spawn(archiving::keep_archiving(Arc::clone(self)));
    }

    /// Spawns a task that shutdown waits for.
    fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let guard = RunningGuard::enter(Arc::clone(self));
        let work = async move {
            let done = work.await;
            drop(guard);
            done
        };
        // Its log lines and events belong to the request that started it.
        tokio::spawn(request::within(request::current(), work.in_current_span()))
    }

    /// Counts a step that ended or paused; wakes recovery if a fault left its run behind. A broken store ends the process.
    fn note(&self, ended: Result<&Answer, Option<&Fault>>) {
        match ended {
            // A recorded answer that is given again is no step.
            Ok(answer) if answer.replayed => {}
            Ok(answer) => self.steps.count(&self.gate, answer),
            Err(Some(fault)) if self.note_broken(fault) => {}
            Err(Some(Fault::Store(_) | Fault::Executor(_))) => self.left.notify_one(),
            Err(Some(Fault::ForeignSession(_)) | None) => {}
        }
    }

    /// Ends the process if the fault is a broken store. Whether it is one.
    fn note_broken(&self, fault: &Fault) -> bool {
        let is_broken = matches!(fault, Fault::Store(StoreError::Broken(_)));
        if is_broken {
            self.broken.send_replace(true);
        }
        is_broken
    }

    /// A flag that is set when the store has failed for good.
    pub fn broken(&self) -> watch::Receiver<bool> {
        self.broken.subscribe()
    }

    /// A flag that is set when the process shuts down.
    pub fn leaving(&self) -> watch::Receiver<bool> {
        self.leaving.subscribe()
    }

    /// Starts draining: from now on [`Self::is_draining`] is true.
    pub fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Whether clients should send new requests elsewhere.
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Tells every waiting task that the process shuts down.
    pub fn leave(&self) {
        self.drain();
        self.leaving.send_replace(true);
    }

    /// How many steps are under way.
    pub fn running(&self) -> usize {
        *self.running.borrow()
    }

    /// Waits until no step is under way.
    pub async fn idle(&self) {
        // Cannot fail: `self` owns the sender.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }
}

/// Sleeps for this time. False where the flag is set meanwhile.
pub async fn sleep_unless_set(time: Duration, flag: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(time) => true,
        () = wait_until_set(flag) => false,
    }
}

/// Waits until a flag is set.
pub async fn wait_until_set(flag: &mut watch::Receiver<bool>) {
    if flag.wait_for(|flag| *flag).await.is_err() {
        // The sender was dropped, so the flag can never be set.
        std::future::pending::<()>().await;
    }
}

/// Counts a task as running while it lives.
struct RunningGuard(Arc<Service>);

impl RunningGuard {
    fn enter(service: Arc<Service>) -> Self {
        service.running.send_modify(|running| *running += 1);
        Self(service)
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running = running.saturating_sub(1));
    }
}

fn fault_of(refused: &Refused) -> Option<&Fault> {
    let Refused::Fault(fault) = refused else { return None };
    Some(fault)
}

/// The error of a run that cannot be decided on because it does not verify.
pub(crate) fn quarantine_of(refused: &Refused) -> Option<&StateError> {
    let Fault::Store(StoreError::State(error)) = fault_of(refused)? else { return None };
    (error.code == StateCode::RecoveryFailed).then_some(error)
}

/// Whether the approval was resolved by exactly this decision.
fn is_by(approval: &Approval, person: &Person) -> bool {
    let (status, note) = match person {
        Person::Approves { note, .. } => (ApprovalStatus::Approved, note),
        Person::Denies { note, .. } => (ApprovalStatus::Denied, note),
        Person::Nobody => (ApprovalStatus::Expired, &None),
    };
    let is_made =
        |made: &Resolution| made.approver_id.as_ref() == decider(person) && made.note == *note;
    approval.status == status && approval.resolution.as_ref().is_some_and(is_made)
}

/// The person who decides; none where the time decides.
fn decider(person: &Person) -> Option<&PrincipalId> {
    match person {
        Person::Approves { approver_id, .. } | Person::Denies { approver_id, .. } => {
            Some(approver_id)
        }
        Person::Nobody => None,
    }
}

/// The fault of a task that ended without an answer. Its run is left to recovery.
fn stopped(error: tokio::task::JoinError) -> Fault {
    Fault::Executor(format!("the step's task ended: {error}"))
}

fn task_stopped(error: tokio::task::JoinError) -> Refused {
    Refused::Fault(stopped(error))
}
