//! Whole steps over a store that fails for a moment: what is sent, what is held meanwhile, what is recorded.

mod archived;
mod asked;
mod charged;
mod erased;
mod granted;
mod shadow;
mod stopped;

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stepgate_core::action::{CoreCall, InvalidArgs};
use stepgate_core::approvers::Groups;
use stepgate_core::budget::{AccountKey, Covering, Due};
use stepgate_core::call::{Call, ServerCall};
use stepgate_core::consent_cache::Consents;
use stepgate_core::digest::Digest;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::failure::Outcome;
use stepgate_core::gate::{Doubts, Extensions, Fault, Gate, Parked};
use stepgate_core::ids::{ArtifactId, RunId};
use stepgate_core::journal::artifact::{DecisionMeta, SupervisorDecision, Verdict};
use stepgate_core::journal::{Artifact, Journal, Kind, replay};
use stepgate_core::json::Map;
use stepgate_core::label::Flow;
use stepgate_core::limits::Limits;
use stepgate_core::ports::{
    Dispatch, Effect, Executor, Failed, Hold, Payer, Place, Policy, PolicyDecision, PolicyErasable,
    PolicyRequest, PolicyVerdict, Prepared, Sending, StepCommit, StoreError, ToolServers, World,
};
use stepgate_core::recover::{Report, Scope, recover};
use stepgate_core::run::{Payload, Word};
use stepgate_core::step::{self, Answer, Person, Refused, Settlement, Submission};
use stepgate_core::time::Timestamp;
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};
use stepgate_core::verify::verify;
use stepgate_store::{Faults, FaultyStore, MemoryStore, StopAt};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::desk::{agent, at, operator};

const COOK: &str = "kitchen.cook";
/// A store gets two sessions before the first step: the system's and the agent's.
const FIRST: u64 = 3;

/// A sandbox that counts its holds.
struct Files {
    id: &'static str,
    hold: Arc<()>,
    prepared: AtomicUsize,
    holds_taken_again: AtomicUsize,
    pre_state: Mutex<Value>,
    /// Each dispatch, with the number of holds at that moment.
    sent: Mutex<Vec<(Dispatch, usize)>>,
    /// Where it is set, the first call waits for it before it is ready.
    busy: Mutex<Option<Arc<Notify>>>,
}

impl Files {
    fn new(id: &'static str) -> Arc<Self> {
        Arc::new(Self {
            id,
            hold: Arc::default(),
            prepared: AtomicUsize::default(),
            holds_taken_again: AtomicUsize::default(),
            pre_state: Mutex::new(json!("as it was")),
            sent: Mutex::default(),
            busy: Mutex::default(),
        })
    }

    fn holds(&self) -> usize {
        Arc::strong_count(&self.hold) - 1
    }

    fn sent(&self) -> Vec<(Dispatch, usize)> {
        self.sent.lock().unwrap().clone()
    }
}

#[async_trait]
impl Executor for Files {
    fn id(&self) -> &str {
        self.id
    }

    async fn prepare(&self, _: &CoreCall) -> Result<Prepared, &'static str> {
        self.prepared.fetch_add(1, Ordering::SeqCst);
        let busy = self.busy.lock().unwrap().take();
        if let Some(busy) = busy {
            busy.notified().await;
        }
        let pre_state = Some(self.pre_state.lock().unwrap().clone());
        Ok(Prepared { pre_state, hold: Box::new(Arc::clone(&self.hold)) })
    }

    async fn hold(&self, _: &CoreCall) -> Option<Hold> {
        self.holds_taken_again.fetch_add(1, Ordering::SeqCst);
        Some(Box::new(Arc::clone(&self.hold)))
    }

    async fn dispatch(&self, _: &CoreCall, _: Option<&Value>, dispatch: Dispatch) -> Effect {
        self.sent.lock().unwrap().push((dispatch, self.holds()));
        Effect::Done(None)
    }
}

/// A tool server with one tool, whose first call ends in doubt.
struct Kitchen {
    definition: Mutex<Digest>,
    sent: AtomicUsize,
    /// Where it is set, the next call waits for a place.
    busy: Mutex<Option<Arc<Notify>>>,
    /// What becomes of the next call, where it is set.
    next: Mutex<Option<Effect>>,
}

struct Anything;

impl Contract for Anything {
    fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
        Ok(())
    }
}

#[async_trait]
impl ToolServers for Kitchen {
    fn tool(&self, name: &ToolName) -> Option<Arc<Tool>> {
        self.tools().into_iter().find(|tool| tool.name == *name)
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        vec![Arc::new(Tool {
            name: ToolName::parse(COOK).unwrap(),
            mode: Mode::ExecuteGated,
            delivery: Delivery::Ask,
            definition_digest: *self.definition.lock().unwrap(),
            standing: Standing::Accepted,
            redacted: vec![],
            erasable: Vec::new(),
            flow: Flow::default(),
            contract: Arc::new(Anything),
        })]
    }

    async fn prepare(&self, _: &ServerCall) -> Result<Hold, Failed> {
        let busy = self.busy.lock().unwrap().take();
        if let Some(busy) = busy {
            busy.notified().await;
        }
        Ok(Box::new(()))
    }

    async fn dispatch(&self, _: &ServerCall, _: &Sending) -> Effect {
        let sent = self.sent.fetch_add(1, Ordering::SeqCst);
        if let Some(next) = self.next.lock().unwrap().take() {
            return next;
        }
        match sent {
            0 => Effect::Unknown("the connection was lost".into()),
            _ => Effect::Done(None),
        }
    }
}

/// A policy with one answer.
struct Rule(Mutex<PolicyDecision>);

impl Policy for Rule {
    fn budgets(&self, _: Payer<'_>, call: &Call) -> Vec<Covering> {
        let covered = match call {
            Call::Core(_) => vec![],
            Call::Server(_) => self.0.lock().unwrap().due.clone(),
        };
        let covering = |due: Due| Covering { terms: due.terms, keys: vec![AccountKey::all()] };
        covered.into_iter().map(covering).collect()
    }

    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let decision = self.0.lock().unwrap().clone();
        let is_covered = matches!(request.call, Call::Server(_));
        PolicyDecision {
            due: decision.due.into_iter().filter(|_| is_covered).collect(),
            ..decision
        }
    }
}

#[derive(Default)]
struct Clock {
    pauses: AtomicUsize,
    now_ms: AtomicI64,
}

#[async_trait]
impl World for Clock {
    fn now(&self) -> Timestamp {
        at(self.now_ms.load(Ordering::SeqCst))
    }

    fn fresh_uuid(&self) -> Uuid {
        Uuid::now_v7()
    }

    async fn pause(&self, _: Duration) {
        self.pauses.fetch_add(1, Ordering::SeqCst);
    }
}

struct Stage {
    gate: Gate,
    faults: Arc<Faults>,
    files: Arc<Files>,
    kitchen: Arc<Kitchen>,
    rule: Arc<Rule>,
    clock: Arc<Clock>,
    memory: MemoryStore,
}

impl Stage {
    fn new(stop: StopAt) -> Self {
        let faults = Faults::new(stop);
        let memory = MemoryStore::new();
        let store = FaultyStore::new(memory.clone(), Arc::clone(&faults));
        let files = Files::new("files");
        let kitchen = Arc::new(Kitchen {
            definition: Mutex::new(Digest::of(COOK)),
            sent: AtomicUsize::default(),
            busy: Mutex::default(),
            next: Mutex::default(),
        });
        let rule = Arc::new(Rule(Mutex::new(PolicyDecision {
            verdict: PolicyVerdict::Permit,
            policies: vec!["rule".into()],
            policy_hash: Digest::ZERO,
            caps: Default::default(),
            detail: None,
            defaults: Map::new(),
            due: vec![],
            erasable: PolicyErasable::default(),
        })));
        let clock = Arc::new(Clock::default());
        let gate = Gate {
            store: Arc::new(store),
            executor: files.clone(),
            tools: kitchen.clone(),
            policy: rule.clone(),
            world: clock.clone(),
            limits: Limits { record_attempts_max: 3, approvals_open_max: 2, ..Limits::default() },
            extensions: Extensions::default(),
            parked: Parked::default(),
            doubts: Doubts::default(),
            groups: Groups::default(),
            consents: Consents::default(),
            facts: FactSources::default(),
        };
        Self { gate, faults, files, kitchen, rule, clock, memory }
    }

    fn asks(self) -> Self {
        self.rule.0.lock().unwrap().verdict = PolicyVerdict::RequireApproval("ask".into());
        self
    }

    async fn propose(&self, id: u8, action: &str, args: Value) -> Result<Answer, Fault> {
        let proposal = json!({
            "schema_version": "1.0.0",
            "id": format!("550e8400-e29b-41d4-a716-4466554400{id:02x}"),
            "reasoning": "because",
            "action": action,
            "args": args,
        });
        let session = self.gate.default_session(&agent()).await.unwrap();
        let submission = Submission {
            session_id: session.session_id,
            principal_id: agent(),
            payload: Payload::whole(proposal.to_string().into_bytes()),
        };
        step::run(&self.gate, submission).await
    }

    async fn read(&self, id: u8) -> Result<Answer, Fault> {
        self.propose(id, "READ_FILE", json!({ "path": "/sandbox/a.txt" })).await
    }

    async fn delete(&self, id: u8) -> Result<Answer, Fault> {
        self.propose(id, "DELETE_FILE", json!({ "path": "/sandbox/a.txt" })).await
    }

    async fn grant(&self, asked: &Answer) -> Result<Answer, Refused> {
        let person = Person::Approves { approver_id: operator(), note: None };
        step::resume(&self.gate, asked.approval_id().unwrap(), person).await
    }

    async fn recover(&self) -> Result<Report, Fault> {
        recover(&self.gate, Scope::Core).await
    }

    /// The same store after a restart, with another sandbox.
    fn restarted(&self, files: Arc<Files>) -> Gate {
        Gate { executor: files, parked: Parked::default(), ..self.gate.clone() }
    }

    /// Another node on the same store: it knows nothing that is not in the store.
    fn other_node(&self) -> Self {
        let consents = Consents::default();
        let gate = Gate { consents, parked: Parked::default(), ..self.gate.clone() };
        Self {
            gate,
            faults: self.faults.clone(),
            files: self.files.clone(),
            kitchen: self.kitchen.clone(),
            rule: self.rule.clone(),
            clock: self.clock.clone(),
            memory: self.memory.clone(),
        }
    }

    async fn verifies(&self) {
        let report = verify(&*self.gate.store, &[], |_| {}).await.unwrap();
        assert_eq!(report.problems, []);
    }
}

fn is_success(answer: Result<Answer, Fault>) -> bool {
    answer.unwrap().word() == Word::Outcome(Outcome::Success)
}

fn is_unavailable(answer: &Result<Answer, Fault>) -> bool {
    matches!(answer, Err(Fault::Store(StoreError::Unavailable(_))))
}

#[tokio::test]
async fn a_path_is_held_while_its_call_is_sent_and_free_after_the_record() {
    let stage = Stage::new(StopAt::Never);
    assert!(is_success(stage.read(1).await));
    assert_eq!(stage.files.sent(), [(Dispatch::First, 1)]);
    assert_eq!(stage.files.holds(), 0);
    stage.verifies().await;
}

#[tokio::test]
async fn a_known_proposal_is_answered_before_the_executor_is_asked() {
    let stage = Stage::new(StopAt::Never);
    let (first, second) = (stage.read(1).await.unwrap(), stage.read(1).await.unwrap());
    assert_eq!((first.body(), second.replayed), (second.body(), true));
    assert_eq!(stage.files.prepared.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_call_that_did_not_become_durable_is_not_sent_and_holds_nothing() {
    let stage = Stage::new(StopAt::Refuse { first: FIRST, count: 1 });
    assert!(is_unavailable(&stage.read(1).await));
    assert_eq!((stage.files.sent(), stage.files.holds()), (vec![], 0));
    assert!(is_success(stage.read(1).await));
    stage.verifies().await;
}

#[tokio::test]
async fn an_effect_that_cannot_be_recorded_keeps_its_path_held_until_recovery_ends_the_run() {
    // The record of the step has three attempts, and so has that of the first recovery.
    let stage = Stage::new(StopAt::Refuse { first: FIRST + 1, count: 6 });
    assert!(is_unavailable(&stage.read(1).await));
    assert_eq!(stage.files.holds(), 1);
    assert!(stage.recover().await.is_err());
    assert_eq!(stage.files.holds(), 1);
    let report = stage.recover().await.unwrap();
    assert_eq!((report.finished.len(), report.stuck), (1, vec![]));
    assert_eq!(stage.files.holds(), 0);
    let (first, again) = ((Dispatch::First, 1), (Dispatch::Again, 1));
    assert_eq!(stage.files.sent(), [first, again, again]);
    assert_eq!(stage.files.holds_taken_again.load(Ordering::SeqCst), 0, "the same hold goes on");
    stage.verifies().await;
}

#[tokio::test]
async fn after_a_restart_the_path_is_held_again_before_the_call_is_sent_again() {
    let stage = Stage::new(StopAt::Refuse { first: FIRST + 1, count: 3 });
    assert!(is_unavailable(&stage.read(1).await));
    let files = Files::new("files");
    let report = recover(&stage.restarted(files.clone()), Scope::Core).await.unwrap();
    assert_eq!(report.finished.len(), 1);
    assert_eq!((files.sent(), files.holds()), (vec![(Dispatch::Again, 1)], 0));
}

#[tokio::test]
async fn a_call_is_not_sent_again_by_a_node_that_does_not_reach_its_executor() {
    let stage = Stage::new(StopAt::Refuse { first: FIRST + 1, count: 3 });
    assert!(is_unavailable(&stage.read(1).await));
    let files = Files::new("elsewhere");
    let report = recover(&stage.restarted(files.clone()), Scope::Core).await.unwrap();
    assert_eq!((report.finished.len(), report.stuck.len()), (0, 1));
    assert_eq!(files.sent(), []);
}

#[tokio::test]
async fn a_record_is_tried_as_often_as_the_limit_says() {
    let stage = Stage::new(StopAt::Refuse { first: FIRST + 1, count: 2 });
    assert!(is_success(stage.read(1).await));
    assert_eq!(stage.clock.pauses.load(Ordering::SeqCst), 2);
    let stage = Stage::new(StopAt::Refuse { first: FIRST + 1, count: 3 });
    assert!(is_unavailable(&stage.read(1).await));
    assert_eq!(stage.clock.pauses.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_read_back_and_counts_where_it_was_applied() {
    // The call, then the record.
    for number in [FIRST, FIRST + 1] {
        let stage = Stage::new(StopAt::LoseAnswer { number, is_applied: true });
        assert!(is_success(stage.read(1).await), "{number}");
        assert_eq!(stage.files.sent().len(), 1);
        assert_eq!((stage.faults.writes(), stage.clock.pauses.load(Ordering::SeqCst)), (4, 0));
        stage.verifies().await;
    }
}

#[tokio::test]
async fn a_record_whose_answer_is_lost_is_written_again_where_it_was_not_applied() {
    let stage = Stage::new(StopAt::LoseAnswer { number: FIRST + 1, is_applied: false });
    assert!(is_success(stage.read(1).await));
    assert_eq!((stage.faults.writes(), stage.files.sent().len()), (5, 1));
    stage.verifies().await;
}

#[tokio::test]
async fn a_grant_whose_commit_was_lost_sends_nothing_and_can_be_given_again() {
    let stage = Stage::new(StopAt::LoseAnswer { number: FIRST + 1, is_applied: false }).asks();
    let asked = stage.delete(1).await.unwrap();
    let lost = stage.grant(&asked).await;
    assert!(matches!(lost, Err(Refused::Fault(Fault::Store(StoreError::Unavailable(_))))));
    assert_eq!(stage.files.sent(), []);
    assert!(is_success(stage.grant(&asked).await.map_err(|_| unreachable!())));
    assert_eq!(stage.files.sent().len(), 1);
    stage.verifies().await;
}

#[tokio::test]
async fn a_grant_is_for_the_file_that_the_person_was_asked_about() {
    let stage = Stage::new(StopAt::Never).asks();
    let asked = stage.delete(1).await.unwrap();
    *stage.files.pre_state.lock().unwrap() = json!("another file");
    let answer = stage.grant(&asked).await.unwrap();
    assert_eq!(answer.word(), Word::Outcome(Outcome::Denied));
    assert_eq!(stage.files.sent(), []);
    stage.verifies().await;
}

#[tokio::test]
async fn as_many_approvals_may_be_open_as_the_limit_says() {
    let stage = Stage::new(StopAt::Never).asks();
    for id in [1, 2] {
        assert!(stage.delete(id).await.unwrap().approval_id().is_some(), "{id}");
    }
    let third = stage.delete(3).await.unwrap();
    assert_eq!(third.word(), Word::Outcome(Outcome::Denied));
    stage.verifies().await;
}

#[tokio::test]
async fn a_decision_names_the_defaults_that_policy_saw_and_only_those() {
    let mut seen = Map::new();
    for (id, expected) in [(1, None), (2, Some(json!({ "/encoding": "utf-8" })))] {
        let stage = Stage::new(StopAt::Never);
        stage.rule.0.lock().unwrap().defaults = seen.clone();
        let run_id = stage.read(id).await.unwrap().run_id;
        let dossier = stage.gate.store.dossier(run_id).await.unwrap().unwrap();
        let decision = replay(&dossier.entries).unwrap().decision;
        assert_eq!(decision.map(|decision| decision.meta.defaults), Some(expected));
        seen.insert("/encoding".into(), json!("utf-8"));
    }
}

#[tokio::test]
async fn a_server_call_that_need_not_wait_commits_twice() {
    let stage = Stage::new(StopAt::Never);
    stage.kitchen.sent.store(1, Ordering::SeqCst);
    assert!(is_success(stage.propose(1, COOK, json!({})).await));
    assert_eq!(stage.faults.writes(), FIRST + 1);
}

#[tokio::test]
async fn a_server_call_that_waits_for_a_place_is_durable_before_it_waits() {
    let stage = Stage::new(StopAt::Never);
    stage.kitchen.sent.store(1, Ordering::SeqCst);
    let place = Arc::new(Notify::new());
    *stage.kitchen.busy.lock().unwrap() = Some(Arc::clone(&place));
    let meanwhile = async {
        tokio::task::yield_now().await;
        let unfinished = stage.gate.store.unfinished().await.unwrap();
        place.notify_one();
        unfinished.len()
    };
    let (answer, open) = tokio::join!(stage.propose(1, COOK, json!({})), meanwhile);
    assert!(is_success(answer));
    assert_eq!(open, 1);
    stage.verifies().await;
}

#[tokio::test]
async fn a_step_that_loses_the_race_for_its_key_is_recorded_as_a_conflict_without_a_journal() {
    let stage = Stage::new(StopAt::Never);
    let place = Arc::new(Notify::new());
    *stage.files.busy.lock().unwrap() = Some(Arc::clone(&place));
    let winner = async {
        tokio::task::yield_now().await;
        let answer = stage.delete(1).await;
        place.notify_one();
        answer
    };
    let (loser, winner) = tokio::join!(stage.read(1), winner);
    assert!(is_success(winner));
    let loser = loser.unwrap();
    assert_eq!(loser.word(), Word::Outcome(Outcome::ValidationError));
    let dossier = stage.gate.store.dossier(loser.run_id).await.unwrap().unwrap();
    assert_eq!((dossier.entries.len(), dossier.binding), (0, None));
    assert_eq!((stage.files.sent().len(), stage.files.holds()), (1, 0));
    stage.verifies().await;
}

#[tokio::test]
async fn a_status_tool_sends_a_call_again_only_to_the_tool_that_was_called() {
    let stage = Stage::new(StopAt::Never);
    assert!(matches!(stage.propose(1, COOK, json!({})).await, Err(Fault::Executor(_))));
    let run_id = stage.gate.store.unfinished().await.unwrap()[0].run_id;
    *stage.kitchen.definition.lock().unwrap() = Digest::of("another");
    let again = |asked: Option<RunId>| {
        let settlement = Settlement::Redispatch;
        step::resolve(&stage.gate, run_id, settlement, operator(), asked)
    };
    let refused = again(Some(RunId::new(Uuid::now_v7()))).await;
    assert!(matches!(refused, Err(Refused::Fault(Fault::Executor(_)))), "{refused:?}");
    assert_eq!(stage.kitchen.sent.load(Ordering::SeqCst), 1);
    assert!(is_success(again(None).await.map_err(|_| unreachable!())));
    assert_eq!(stage.kitchen.sent.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_recorded_answers_of_several_runs_are_those_that_were_given() {
    let stage = Stage::new(StopAt::Never);
    let given = [stage.read(1).await.unwrap(), stage.read(2).await.unwrap()];
    let run_ids = given.each_ref().map(|answer| answer.run_id);
    let answers = step::recorded_answers(&stage.gate, &run_ids).await.unwrap();
    let bodies = |answers: &[Answer]| answers.iter().map(Answer::body).collect::<Vec<_>>();
    assert_eq!(bodies(&answers), bodies(&given));
}

/// Appends a decision that permits the run's request, and nothing else: as if a crash came between it and the
/// call.
async fn authorize(gate: &Gate, run_id: RunId) {
    let dossier = gate.store.dossier(run_id).await.unwrap().unwrap();
    let session_id = dossier.run.arrival.session_id;
    let replayed = replay(&dossier.entries).unwrap();
    let mut journal = Journal::continued(run_id, session_id, replayed.tail, replayed.references);
    let request = journal.reference(Kind::ActionRequest).unwrap();
    let head = journal.head(ArtifactId::new(Uuid::now_v7()), at(0));
    let decision = SupervisorDecision::new(
        head,
        request.digest,
        request.id,
        Verdict::Approve,
        DecisionMeta::default(),
        None,
        "permitted".into(),
        head.id,
    );
    journal.advance(Artifact::SupervisorDecision(decision), None).unwrap();
    let place = Place { session_id, run_id };
    let commit = StepCommit { entries: journal.take_pending(), ..StepCommit::at(place) };
    gate.store.commit(commit).await.unwrap();
}

#[tokio::test]
async fn a_call_decided_before_a_crash_is_sent_unless_policy_caps_it_differently_now() {
    for (max, expected, sent) in [(None, Outcome::Success, 2), (Some(30), Outcome::Denied, 1)] {
        let stage = Stage::new(StopAt::Never);
        stage.kitchen.sent.store(1, Ordering::SeqCst);
        *stage.kitchen.busy.lock().unwrap() = Some(Arc::new(Notify::new()));
        // The step is dropped while it waits for a place.
        tokio::select! {
            biased;
            answer = stage.propose(1, COOK, json!({ "volume": 90 })) => panic!("{answer:?}"),
            () = tokio::task::yield_now() => {}
        }
        let gate = Gate { store: Arc::new(stage.memory.reopened()), ..stage.gate.clone() };
        let run_id = gate.store.unfinished().await.unwrap()[0].run_id;
        authorize(&gate, run_id).await;
        stage.rule.0.lock().unwrap().caps.extend(max.map(|max| ("volume".into(), max)));
        let report = recover(&gate, Scope::Servers).await.unwrap();
        assert_eq!(report.finished, [run_id], "{report:?}");
        let answer = step::answer_of(&gate, run_id).await.unwrap();
        assert_eq!(answer.word(), Word::Outcome(expected));
        assert_eq!(stage.kitchen.sent.load(Ordering::SeqCst), sent);
    }
}
