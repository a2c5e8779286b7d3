//! Spec 004: the seven invariants, recovery, idempotency and the six codes, by name.

mod interrupted;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use stepgate_core::action::CoreCall;
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::digest::Digest;
use stepgate_core::event::EventType;
use stepgate_core::failure::Outcome;
use stepgate_core::gate::Fault;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{PrincipalId, RunId};
use stepgate_core::journal::artifact::Guarantee;
use stepgate_core::journal::{StateCode, StateError};
use stepgate_core::json::canonical;
use stepgate_core::machine::State;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{
    Dispatch, Effect, Executor, KeyChange, Place, Policy, StepCommit, Store, StoreError, Writes,
};
use stepgate_core::recover::{self, Remedy, Scope};
use stepgate_core::run::{Notice, Payload, Run, Status, Word};
use stepgate_core::step::{self, Person, Refused};
use stepgate_core::verify;
use stepgate_store::faulty::{Faults, FaultyStore, StopAt};
use stepgate_store::memory::MemoryStore;
use stepgate_store::sqlite::SqliteStore;

use crate::gate::{
    Act, Acting, AskAlways, CountingWorld, DenyAll, Fixture, StopsAt, gate, id, proposal, submit,
};
use crate::unfolded::Unfolded;

fn write(number: u32) -> String {
    proposal(number, "WRITE_FILE", json!({"path": "/sandbox/a.txt", "content": "once"}))
}

fn operator() -> PrincipalId {
    PrincipalId::parse("operator").unwrap()
}

fn grants() -> Person {
    Person::Approves { approver_id: operator(), note: Some("looks right".into()) }
}

fn state_code(error: StoreError) -> StateCode {
    match error {
        StoreError::State(StateError { code, .. }) => code,
        other => panic!("{other}"),
    }
}

pub(crate) async fn assert_verified(store: &dyn Store) {
    let report = verify::verify(store, &[], |_| {}).await.unwrap();
    assert_eq!(report.problems, []);
}

/// Counts what reaches the executor, and can stop just after the act.
struct Counting {
    inner: Arc<dyn Executor>,
    dispatched: Arc<AtomicU64>,
    stop_after_the_act: bool,
}

#[async_trait]
impl Act for Counting {
    fn inner(&self) -> &dyn Executor {
        &*self.inner
    }

    async fn act(&self, call: &CoreCall, before: Option<&Value>, dispatch: Dispatch) -> Effect {
        self.dispatched.fetch_add(1, Ordering::SeqCst);
        let effect = self.inner.dispatch(call, before, dispatch).await;
        if self.stop_after_the_act { Effect::Unknown("stopped".into()) } else { effect }
    }
}

fn counting(fixture: &mut Fixture, stop_after_the_act: bool) -> Arc<AtomicU64> {
    let dispatched = Arc::new(AtomicU64::new(0));
    fixture.gate.executor = Arc::new(Acting(Counting {
        inner: fixture.gate.executor.clone(),
        dispatched: dispatched.clone(),
        stop_after_the_act,
    }));
    dispatched
}

#[tokio::test]
async fn i1_transitions_are_appended_with_a_dense_increasing_sequence_number() {
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    let entries = fixture.dossier(&answer).await.entries;
    let numbers: Vec<_> = entries.iter().map(|row| row.entry.sequence_number).collect();
    let states: Vec<_> = entries.iter().map(|row| row.entry.to_state).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(states, [State::Pending, State::Authorized, State::Executing, State::Completed]);
}

#[tokio::test]
async fn i1_an_entry_is_never_overwritten() {
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    let place = Place { session_id: answer.session_id, run_id: answer.run_id };
    let entries = fixture.dossier(&answer).await.entries;
    for entry in entries.clone() {
        let refused = fixture.gate.store.append_log_entry(place, entry).await.unwrap_err();
        assert_eq!(state_code(refused), StateCode::SequenceGap);
    }
    assert_eq!(fixture.dossier(&answer).await.entries, entries);
}

#[tokio::test]
async fn i2_write_class_calls_include_their_idempotency_key() {
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    let call = &fixture.dossier(&answer).await.entries[2];
    let artifact: Value = serde_json::from_str(&call.artifact.text).unwrap();
    assert_eq!(artifact["tool_class"], "write");
    assert_eq!(artifact["idempotency_key"], format!("agent/{}", id(1)));
    assert_eq!(call.entry.idempotency_key.as_ref().unwrap().as_str(), format!("agent/{}", id(1)));
}

#[tokio::test]
async fn i2_the_same_key_never_executes_again_and_gets_the_recorded_response() {
    let mut fixture = Fixture::new();
    let dispatched = counting(&mut fixture, false);
    let first = fixture.submit(write(1)).await;
    std::fs::remove_file(fixture.path("a.txt")).unwrap();
    let again = fixture.submit(write(1)).await;
    assert_eq!(again.body(), first.body());
    assert_eq!((again.run_id, again.replayed), (first.run_id, true));
    assert_eq!(dispatched.load(Ordering::SeqCst), 1);
    assert!(!fixture.path("a.txt").exists());
    let events = fixture.dossier(&first).await.events;
    assert_eq!(events.last().unwrap().event.event_type, EventType::ToolReplayed);
    assert_eq!(fixture.gate.store.counts().await.unwrap().runs, 1);
    assert_verified(&*fixture.gate.store).await;
}

#[tokio::test]
async fn i2_a_key_that_names_another_action_is_a_conflict() {
    let fixture = Fixture::new();
    fixture.submit(write(1)).await;
    for other in [
        proposal(1, "THINK", json!({})),
        proposal(1, "WRITE_FILE", json!({"path": "/sandbox/a.txt", "content": "twice"})),
    ] {
        let response = fixture.respond(other).await;
        assert_eq!(response["outcome"], "VALIDATION_ERROR");
        assert_eq!(response["error"]["error_code"], "IDEMPOTENCY_CONFLICT");
    }
    assert_eq!(std::fs::read_to_string(fixture.path("a.txt")).unwrap(), "once");
    assert_verified(&*fixture.gate.store).await;
}

#[tokio::test]
async fn i2_a_refused_proposal_binds_nothing_and_a_denied_one_is_replayed() {
    let mut fixture = Fixture::new();
    fixture.submit(proposal(1, "READ_FILE", json!({}))).await;
    fixture.submit(proposal(1, "CURL", json!({}))).await;
    assert_eq!(fixture.respond(proposal(1, "THINK", json!({}))).await["outcome"], "SUCCESS");
    let denied = proposal(2, "READ_FILE", json!({"path": "/sandbox/a.exe"}));
    assert_eq!(fixture.respond(&denied).await["outcome"], "DENIED");
    fixture.gate.extensions.read.push("exe".into());
    let again = fixture.submit(&denied).await;
    assert!(again.replayed && again.body().contains("DENIED"));
}

#[tokio::test]
async fn i2_another_principals_equal_id_is_another_key() {
    let fixture = Fixture::new();
    fixture.submit(write(1)).await;
    let other = PrincipalId::parse("other").unwrap();
    let session = fixture.gate.default_session(&other).await.unwrap();
    let submission = step::Submission {
        session_id: session.session_id,
        principal_id: other,
        payload: Payload::whole(write(1).into_bytes()),
    };
    let answer = step::run(&fixture.gate, submission).await.unwrap();
    assert!(!answer.replayed);
}

#[tokio::test]
async fn i2_two_at_once_with_one_key_execute_once() {
    for _ in 0..50 {
        let mut fixture = Fixture::new();
        let dispatched = counting(&mut fixture, false);
        fixture.gate.default_session(&crate::gate::agent()).await.unwrap();
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let gate = fixture.gate.clone();
                tokio::spawn(async move { submit(&gate, write(1)).await.unwrap() })
            })
            .collect();
        for task in tasks {
            let word = task.await.unwrap().word();
            let is_known = matches!(word, Word::Outcome(_) | Word::Notice(Notice::InProgress));
            assert!(is_known, "{word:?}");
        }
        assert_eq!(dispatched.load(Ordering::SeqCst), 1);
        assert_verified(&*fixture.gate.store).await;
    }
}

#[tokio::test]
async fn i3_a_recorded_effect_is_never_dispatched_again() {
    let mut fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    let dispatched = counting(&mut fixture, false);
    assert_eq!(
        recover::recover(&fixture.gate, Scope::Core).await.unwrap(),
        recover::Report::default()
    );
    let read = step::redispatch(&fixture.gate, answer.run_id).await.unwrap();
    assert_eq!(read.body(), answer.body());
    assert_eq!(dispatched.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn i3_all_artifacts_are_persisted_with_ids_and_digests() {
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    for appended in fixture.dossier(&answer).await.entries {
        let mut artifact: Value = serde_json::from_str(&appended.artifact.text).unwrap();
        let digest = artifact.as_object_mut().unwrap().remove("_digest").unwrap();
        assert_eq!(digest, Digest::of(&artifact).to_string());
        assert_eq!(digest, appended.entry.artifact_digest.to_string());
    }
}

#[tokio::test]
async fn i4_the_checkpoint_digest_is_sha256_of_the_canonical_state() {
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    let checkpoint =
        fixture.gate.store.load_latest_checkpoint(answer.run_id).await.unwrap().unwrap();
    let text = canonical::text_of(&checkpoint.checkpoint_state);
    assert_eq!(checkpoint.checkpoint_digest, Digest::of_bytes(text.as_bytes()));
    assert_eq!(checkpoint.checkpoint_sequence_number, 4);
}

#[tokio::test]
async fn i5_each_entry_names_the_digest_of_the_one_before() {
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    let mut before = Digest::ZERO;
    for appended in fixture.dossier(&answer).await.entries {
        assert_eq!(appended.entry.prev_entry_digest, before);
        assert_eq!(appended.entry.entry_digest, appended.entry.recomputed_digest());
        before = appended.entry.entry_digest;
    }
}

#[tokio::test]
async fn the_runtime_recovers_from_a_crash_without_losing_trace_integrity() {
    let memory = MemoryStore::new();
    // The second commit of the step is the fourth write: two sessions are opened first.
    let faults = Faults::new(StopAt::Before(4));
    let fixture = Fixture::with_store(Arc::new(FaultyStore::new(memory.clone(), faults)));
    submit(&fixture.gate, write(1)).await.unwrap_err();
    assert_eq!(std::fs::read_to_string(fixture.path("a.txt")).unwrap(), "once");
    let mut restarted = gate(Arc::new(memory.reopened()), fixture.directory.path());
    restarted.world = CountingWorld::starting_at(1_000_000);
    let report = recover::recover(&restarted, Scope::Core).await.unwrap();
    assert_eq!(report.finished.len(), 1, "{report:?}");
    assert_verified(&*restarted.store).await;
}

#[tokio::test]
async fn a_checkpoint_that_does_not_fix_the_journal_is_refused() {
    let fixture = Fixture::new().with_policy(AskAlways);
    let answer = fixture.submit(write(1)).await;
    let mut checkpoint =
        fixture.gate.store.load_latest_checkpoint(answer.run_id).await.unwrap().unwrap();
    checkpoint.checkpoint_state.last_entry_digest = Digest::ZERO;
    let refused = fixture.gate.store.write_checkpoint(checkpoint).await.unwrap_err();
    assert_eq!(state_code(refused), StateCode::ChecksumMismatch);
}

/// A run whose act was cut short and one that is paused, in a database that somebody else changed.
struct Halted {
    interrupted: RunId,
    paused: step::Answer,
    fixture: Fixture,
    _place: tempfile::TempDir,
}

/// `change` names the run that it is about as `?1`.
async fn halted(change: &str, whose: fn(&Halted) -> RunId) -> Halted {
    let place = tempfile::TempDir::new().unwrap();
    let path = place.path().join("stepgate.db");
    let open = || Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
    let mut fixture = Fixture::with_store(open());
    let real = fixture.gate.executor.clone();
    counting(&mut fixture, true);
    submit(&fixture.gate, write(1)).await.unwrap_err();
    let [interrupted] = fixture.gate.store.unfinished_runs().await.unwrap()[..] else { panic!() };
    fixture.gate.executor = real;
    fixture.gate.policy = Arc::new(AskAlways);
    let elsewhere = json!({"path": "/sandbox/b.txt", "content": "asked"});
    let paused = fixture.submit(proposal(2, "WRITE_FILE", elsewhere)).await;
    fixture.gate.store = Arc::new(MemoryStore::new());
    let mut halted = Halted { interrupted, paused, fixture, _place: place };

    let stranger = Unfolded::open(&path);
    let triggers: Vec<String> = stranger
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for trigger in triggers {
        stranger.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
    }
    assert_eq!(stranger.execute(change, [whose(&halted).to_string()]).unwrap(), 1, "{change}");
    drop(stranger);
    halted.fixture.gate.store = open();
    halted
}

#[tokio::test]
async fn a_trace_that_does_not_verify_is_quarantined_and_the_others_go_on() {
    let changes = [
        "UPDATE checkpoints SET ts = '2020-01-01T00:00:00.000Z' WHERE trace_id = ?1",
        "UPDATE checkpoints SET checkpoint_digest = printf('%064d', 0) WHERE trace_id = ?1",
        "UPDATE checkpoints SET checkpoint_state = '{' WHERE trace_id = ?1",
        "UPDATE journal SET entry_digest = printf('%064d', 0) WHERE trace_id = ?1",
        "UPDATE journal SET trace_id = 'elsewhere' WHERE trace_id = ?1",
        "UPDATE approvals SET status = 'approved' WHERE tool_run_id = ?1",
    ];
    for change in changes {
        let Halted { paused, fixture, _place, .. } =
            halted(change, |them| them.paused.run_id).await;
        let report = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
        let [(run_id, why)] = &report.quarantined[..] else { panic!("{change}: {report:?}") };
        assert_eq!(*run_id, paused.run_id, "{change}");
        assert!(why.starts_with("STATE_RECOVERY_FAILED"), "{change}: {why}");
        assert_eq!((report.waiting, report.stuck), (vec![], vec![]), "{change}");
        let [other] = report.finished[..] else { panic!("{change}: {:?}", report.finished) };
        let run = fixture.gate.store.dossier(other).await.unwrap().unwrap().run;
        assert_eq!(run.status, Status::Ok, "{change}");
    }
}

/// Changes to a row that journal, checkpoints and digest of what was asked say nothing of.
const FORGED: [&str; 4] = [
    "UPDATE tool_runs SET payload = CAST(replace(CAST(payload AS TEXT), '550e', 'f50e')
                                         AS BLOB) WHERE tool_run_id = ?1",
    "UPDATE tool_runs SET payload = CAST(replace(CAST(payload AS TEXT), 'a test', 'forged')
                                         AS BLOB) WHERE tool_run_id = ?1",
    "UPDATE tool_runs SET step_index = step_index + 7 WHERE tool_run_id = ?1",
    "UPDATE tool_runs SET idempotency_key = 'agent/elsewhere' WHERE tool_run_id = ?1",
];

#[tokio::test]
async fn an_interrupted_run_whose_row_was_forged_is_quarantined_and_never_goes_on() {
    for change in FORGED {
        let Halted { interrupted, mut fixture, paused, _place } =
            halted(change, |them| them.interrupted).await;
        let dispatched = counting(&mut fixture, false);
        let before = fixture.gate.store.dossier(interrupted).await.unwrap().unwrap();
        let report = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
        let [(run_id, why)] = &report.quarantined[..] else { panic!("{change}: {report:?}") };
        assert_eq!(*run_id, interrupted, "{change}");
        assert!(why.starts_with("STATE_RECOVERY_FAILED"), "{change}: {why}");
        assert_eq!((report.finished, report.waiting), (vec![], vec![paused.run_id]), "{change}");
        let after = fixture.gate.store.dossier(interrupted).await.unwrap().unwrap();
        assert_eq!(after, before, "{change}");
        assert_eq!(dispatched.load(Ordering::SeqCst), 0, "{change}");
    }
}

#[tokio::test]
async fn nobody_decides_on_a_paused_run_that_was_forged() {
    for change in FORGED {
        let Halted { paused, fixture, _place, .. } =
            halted(change, |them| them.paused.run_id).await;
        let before = fixture.dossier(&paused).await;
        let approval = before.approval.as_ref().unwrap().approval_id;
        let refuses = Person::Denies { approver_id: operator(), note: None };
        for person in [grants(), refuses, Person::Nobody] {
            match step::resume(&fixture.gate, approval, person).await {
                Err(Refused::Fault(Fault::Store(error))) => {
                    assert_eq!(state_code(error), StateCode::RecoveryFailed, "{change}");
                }
                other => panic!("{change}: {other:?}"),
            }
        }
        assert_eq!(fixture.dossier(&paused).await, before, "{change}");
        assert!(!fixture.path("b.txt").exists(), "{change}");
    }
}

#[tokio::test]
async fn a_finished_journal_without_a_record_is_quarantined() {
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    let (restarted, dispatched) = cut(&fixture, answer.run_id, 4).await;
    let report = recover::recover(&restarted.gate, Scope::Core).await.unwrap();
    let [(run_id, why)] = &report.quarantined[..] else { panic!("{report:?}") };
    assert_eq!(*run_id, answer.run_id);
    assert!(why.contains("the absence of a record"), "{why}");
    assert_eq!((report.finished, dispatched.load(Ordering::SeqCst)), (vec![], 0));
}

/// A restart on a store to which the first `length` entries of a run were appended, and nothing after.
async fn cut(from: &Fixture, run_id: RunId, length: usize) -> (Fixture, Arc<AtomicU64>) {
    let old = &from.gate.store;
    let new = Arc::new(MemoryStore::new());
    for linked in old.loose_events().await.unwrap() {
        let named = linked.event.payload["session_id"].as_str().unwrap().parse().unwrap();
        let session = old.session(named).await.unwrap().unwrap();
        new.open_session(session, linked.event).await.unwrap();
    }
    let dossier = old.dossier(run_id).await.unwrap().unwrap();
    let place = Place { session_id: dossier.run.arrival.session_id, run_id };
    let mut entries = dossier.entries.into_iter().take(length);
    let binding = Binding { settled: false, ..dossier.binding.unwrap() };
    let opening = StepCommit {
        open: Some(Run { status: Status::Started, ending: None, ..dossier.run }),
        entries: entries.next().into_iter().collect(),
        key: Some(KeyChange::Bind(binding)),
        ..StepCommit::at(place)
    };
    new.commit(opening).await.unwrap();
    for entry in entries {
        new.append_log_entry(place, entry).await.unwrap();
    }
    let mut fixture = Fixture::with_store(new);
    fixture.gate.world = CountingWorld::starting_at(1_000_000);
    let dispatched = counting(&mut fixture, false);
    (fixture, dispatched)
}

#[tokio::test]
async fn what_was_authorized_before_a_crash_is_dispatched_once() {
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    for length in [1, 2] {
        let (restarted, dispatched) = cut(&fixture, answer.run_id, length).await;
        assert_verified(&*restarted.gate.store).await;
        let report = recover::recover(&restarted.gate, Scope::Core).await.unwrap();
        assert_eq!(report.finished, [answer.run_id], "{report:?}");
        assert_eq!(dispatched.load(Ordering::SeqCst), 1);
        assert_eq!(std::fs::read_to_string(restarted.path("a.txt")).unwrap(), "once");
        let dossier = restarted.dossier(&answer).await;
        assert_eq!((dossier.run.status, dossier.entries.len()), (Status::Ok, 4));
        let body = dossier.record.unwrap().0.body().unwrap();
        assert_eq!(body.guarantee, Some(Guarantee::ExactlyOnce));
        assert_verified(&*restarted.gate.store).await;
        assert_eq!(restarted.submit(write(1)).await.body(), answer.body());
        assert_eq!(dispatched.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn what_was_authorized_before_a_crash_and_is_refused_now_is_recorded_and_not_dispatched() {
    let policies: [Arc<dyn Policy>; 2] = [Arc::new(DenyAll), Arc::new(AskAlways)];
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    for policy in policies {
        let (mut restarted, dispatched) = cut(&fixture, answer.run_id, 2).await;
        restarted.gate.policy = policy;
        let report = recover::recover(&restarted.gate, Scope::Core).await.unwrap();
        assert_eq!(report.finished, [answer.run_id], "{report:?}");
        assert_eq!(dispatched.load(Ordering::SeqCst), 0);
        assert!(!restarted.path("a.txt").exists());
        let dossier = restarted.dossier(&answer).await;
        let states: Vec<_> = dossier.entries.iter().map(|row| row.entry.to_state).collect();
        use State::{Authorized, Executing, Failed, Pending};
        assert_eq!(states, [Pending, Authorized, Executing, Failed]);
        let effect: Value = serde_json::from_str(&dossier.entries[3].artifact.text).unwrap();
        assert_eq!(effect["outcome"]["status"], "DENIED");
        let body = dossier.record.unwrap().0.body().unwrap();
        assert_eq!((body.outcome, body.guarantee), (Outcome::Denied, None));
        assert_eq!(dossier.run.status, Status::Error);
        assert_verified(&*restarted.gate.store).await;
        let again = restarted.submit(write(1)).await;
        assert!(again.replayed && again.body().contains("DENIED"), "{}", again.body());
    }
}

#[tokio::test]
async fn what_policy_asks_about_after_a_crash_waits() {
    let fixture = Fixture::new();
    let answer = fixture.submit(write(1)).await;
    let (mut restarted, dispatched) = cut(&fixture, answer.run_id, 1).await;
    restarted.gate.policy = Arc::new(AskAlways);
    let report = recover::recover(&restarted.gate, Scope::Core).await.unwrap();
    assert_eq!((report.waiting, report.finished), (vec![answer.run_id], vec![]));
    assert_eq!(dispatched.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_executor_that_stops_for_one_run_does_not_keep_the_others() {
    let mut fixture = Fixture::new();
    let real = fixture.gate.executor.clone();
    counting(&mut fixture, true);
    let path = |name: &str| json!({"path": format!("/sandbox/{name}.txt"), "content": "x"});
    for (number, name) in [(1, "stuck"), (2, "b"), (3, "c")] {
        submit(&fixture.gate, proposal(number, "WRITE_FILE", path(name))).await.unwrap_err();
    }
    fixture.gate.executor = Arc::new(Acting(StopsAt { inner: real.clone(), name: "stuck" }));
    let report = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
    assert_eq!((report.finished.len(), &report.quarantined[..]), (2, &[][..]));
    let [(stuck, why)] = &report.stuck[..] else { panic!("{report:?}") };
    assert!(why.contains("the executor stopped"), "{why}");
    assert_verified(&*fixture.gate.store).await;
    fixture.gate.executor = real;
    assert_eq!(recover::recover(&fixture.gate, Scope::Core).await.unwrap().finished, [*stuck]);
    assert_verified(&*fixture.gate.store).await;
}

#[tokio::test]
async fn a_trace_that_somebody_holds_is_stuck_and_not_quarantined() {
    let store = MemoryStore::with_lock_wait(std::time::Duration::from_millis(20));
    let mut fixture = Fixture::with_store(Arc::new(store));
    counting(&mut fixture, true);
    submit(&fixture.gate, write(1)).await.unwrap_err();
    let [run_id] = fixture.gate.store.unfinished_runs().await.unwrap()[..] else { panic!() };
    fixture.gate.store.acquire_trace_lock(run_id).await.unwrap();
    let report = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
    let [(stuck, why)] = &report.stuck[..] else { panic!("{report:?}") };
    assert_eq!(*stuck, run_id);
    assert!(why.starts_with("STATE_LOCK_ACQUIRE_FAILED"), "{why}");
    assert_eq!((report.finished, report.quarantined), (vec![], vec![]));
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_is_left_alone_without_its_lock() {
    let store = MemoryStore::with_lock_wait(std::time::Duration::from_millis(20));
    let fixture = Fixture::with_store(Arc::new(store)).with_policy(AskAlways);
    let (answer, approval) = paused(&fixture).await;
    fixture.gate.store.acquire_trace_lock(answer.run_id).await.unwrap();
    let report = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
    let waits = recover::Report { waiting: vec![answer.run_id], ..recover::Report::default() };
    assert_eq!(report, waits);
    let elsewhere = recover::recover(&fixture.gate, Scope::Servers).await.unwrap();
    assert_eq!(elsewhere, recover::Report::default());
    fixture.gate.store.release_trace_lock(answer.run_id).await.unwrap();
    step::resume(&fixture.gate, approval, grants()).await.unwrap();
    let report = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
    assert_eq!(report, recover::Report::default());
}

#[tokio::test]
async fn a_waiting_run_is_read_once_and_proven_again_when_somebody_decides() {
    let unchanged = "UPDATE tool_runs SET status = status WHERE tool_run_id = ?1";
    let Halted { paused, fixture, _place, .. } = halted(unchanged, |them| them.paused.run_id).await;
    let first = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
    assert_eq!((first.waiting, first.finished.len()), (vec![paused.run_id], 1));
    let approval = fixture.dossier(&paused).await.approval.unwrap().approval_id;
    let stranger = rusqlite::Connection::open(_place.path().join("stepgate.db")).unwrap();
    assert_eq!(stranger.execute(FORGED[2], [paused.run_id.to_string()]).unwrap(), 1);
    let second = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
    assert_eq!((second.waiting, second.quarantined), (vec![paused.run_id], vec![]));
    match step::resume(&fixture.gate, approval, grants()).await {
        Err(Refused::Fault(Fault::Store(error))) => {
            assert_eq!(state_code(error), StateCode::RecoveryFailed);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn recovery_takes_no_lock_of_a_run_that_is_not_in_its_scope() {
    let store = MemoryStore::with_lock_wait(std::time::Duration::from_millis(20));
    let mut fixture = Fixture::with_store(Arc::new(store));
    counting(&mut fixture, true);
    submit(&fixture.gate, write(1)).await.unwrap_err();
    let [run_id] = fixture.gate.store.unfinished_runs().await.unwrap()[..] else { panic!() };
    fixture.gate.store.acquire_trace_lock(run_id).await.unwrap();
    let report = recover::recover(&fixture.gate, Scope::Servers).await.unwrap();
    assert_eq!(report, recover::Report::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn first_steps_that_come_at_once_join_one_session() {
    for round in 0..10 {
        let place = tempfile::TempDir::new().unwrap();
        let path = place.path().join("stepgate.db");
        let stores: [Arc<dyn Store>; 2] = [
            Arc::new(MemoryStore::new()),
            Arc::new(SqliteStore::open(&path, Default::default()).unwrap()),
        ];
        for store in stores {
            let fixture = Fixture::with_store(store);
            let tasks: Vec<_> = (0..8)
                .map(|number| {
                    let gate = fixture.gate.clone();
                    let think = proposal(number, "THINK", json!({}));
                    tokio::spawn(async move { submit(&gate, think).await.unwrap() })
                })
                .collect();
            for task in tasks {
                assert_eq!(task.await.unwrap().word(), Word::Outcome(Outcome::Success), "{round}");
            }
            assert_eq!(fixture.gate.store.counts().await.unwrap().sessions, 2, "{round}");
            assert_verified(&*fixture.gate.store).await;
        }
    }
}

#[test]
fn the_recovery_table_says_what_happens_for_every_pair() {
    use ApprovalStatus::{Approved, Denied, Expired, Pending};
    let approvals = [None, Some(Pending), Some(Approved), Some(Denied), Some(Expired)];
    use Remedy::{Decide, Dispatch, Quarantine, Read, Redispatch, Wait};
    let rows = [
        (State::Pending, [Decide, Wait, Quarantine, Quarantine, Quarantine]),
        (State::Authorized, [Dispatch, Quarantine, Dispatch, Quarantine, Quarantine]),
        (State::Executing, [Redispatch, Quarantine, Redispatch, Quarantine, Quarantine]),
        (State::Completed, [Read, Quarantine, Read, Read, Read]),
        (State::Failed, [Read, Quarantine, Read, Read, Read]),
        (State::Denied, [Read, Quarantine, Read, Read, Read]),
    ];
    for (state, remedies) in rows {
        for (approval, remedy) in approvals.into_iter().zip(remedies) {
            assert_eq!(recover::remedy(state, approval), remedy, "{state} {approval:?}");
        }
    }
}

#[tokio::test]
async fn a_paused_step_says_so_and_says_the_same_again() {
    let fixture = Fixture::new().with_policy(AskAlways);
    let first = fixture.submit(write(1)).await;
    assert_eq!(first.word(), Word::Notice(Notice::ApprovalRequired));
    let response: Value = serde_json::from_str(&first.body()).unwrap();
    assert_eq!(response["outcome"], "APPROVAL_REQUIRED");
    assert_eq!(response["result"]["run_id"], first.run_id.to_string());
    assert_eq!(response["error"], json!(null));
    let again = fixture.submit(write(1)).await;
    assert_eq!(again.body(), first.body());
    assert!(!fixture.path("a.txt").exists());
    assert_eq!(fixture.dossier(&first).await.run.status, Status::ApprovalRequired);
    let report = recover::recover(&fixture.gate, Scope::Core).await.unwrap();
    assert_eq!(report.waiting, [first.run_id]);
    assert_verified(&*fixture.gate.store).await;
}

async fn paused(fixture: &Fixture) -> (step::Answer, stepgate_core::ids::ApprovalId) {
    let answer = fixture.submit(write(1)).await;
    let approval = fixture.dossier(&answer).await.approval.unwrap();
    (answer, approval.approval_id)
}

#[tokio::test]
async fn a_granted_step_executes_once_and_a_second_decision_is_refused() {
    let fixture = Fixture::new().with_policy(AskAlways);
    let (answer, approval) = paused(&fixture).await;
    let done = step::resume(&fixture.gate, approval, grants()).await.unwrap();
    assert_eq!(done.run_id, answer.run_id);
    assert!(done.body().contains("SUCCESS"));
    assert_eq!(std::fs::read_to_string(fixture.path("a.txt")).unwrap(), "once");
    let second = step::resume(&fixture.gate, approval, grants()).await.unwrap_err();
    assert_eq!(second, Refused::AlreadyDecided);
    let dossier = fixture.dossier(&answer).await;
    assert_eq!(dossier.run.status, Status::Ok);
    assert_eq!(dossier.approval.unwrap().status, ApprovalStatus::Approved);
    assert_verified(&*fixture.gate.store).await;
}

#[tokio::test]
async fn a_refused_or_expired_step_is_never_executed() {
    let refuses = Person::Denies { approver_id: operator(), note: None };
    for (person, detail) in
        [(refuses, "DENIED_BY_OPERATOR: by operator"), (Person::Nobody, "APPROVAL_EXPIRED")]
    {
        let fixture = Fixture::new().with_policy(AskAlways);
        let (answer, approval) = paused(&fixture).await;
        let done = step::resume(&fixture.gate, approval, person).await.unwrap();
        assert!(done.body().contains("APPROVAL_DENIED"));
        assert!(!fixture.path("a.txt").exists());
        let dossier = fixture.dossier(&answer).await;
        assert_eq!(dossier.run.status, Status::Denied);
        let body = dossier.record.unwrap().0.body().unwrap();
        assert_eq!(body.detail.as_deref(), Some(detail));
        assert_verified(&*fixture.gate.store).await;
    }
}

#[tokio::test]
async fn nobody_decides_on_their_own_request() {
    let fixture = Fixture::new().with_policy(AskAlways);
    let (_, approval) = paused(&fixture).await;
    let own = Person::Approves { approver_id: crate::gate::agent(), note: None };
    let refused = step::resume(&fixture.gate, approval, own).await.unwrap_err();
    assert_eq!(refused, Refused::OwnRequest);
    assert!(!fixture.path("a.txt").exists());
}

#[tokio::test]
async fn a_grant_does_not_bypass_policy() {
    let mut fixture = Fixture::new().with_policy(AskAlways);
    let (answer, approval) = paused(&fixture).await;
    fixture.gate.policy = Arc::new(DenyAll);
    let done = step::resume(&fixture.gate, approval, grants()).await.unwrap();
    assert!(done.body().contains("POLICY_VIOLATION"));
    assert!(!fixture.path("a.txt").exists());
    let dossier = fixture.dossier(&answer).await;
    assert_eq!(dossier.approval.unwrap().status, ApprovalStatus::Approved);
    assert_eq!(dossier.run.status, Status::Error);
    assert_verified(&*fixture.gate.store).await;
}

#[tokio::test]
async fn a_granted_step_that_crashed_is_dispatched_again() {
    let mut fixture = Fixture::new().with_policy(AskAlways);
    let real = fixture.gate.executor.clone();
    let (answer, approval) = paused(&fixture).await;
    counting(&mut fixture, true);
    step::resume(&fixture.gate, approval, grants()).await.unwrap_err();
    assert_eq!(fixture.dossier(&answer).await.run.status, Status::Approved);
    assert_verified(&*fixture.gate.store).await;
    fixture.gate.executor = real;
    fixture.gate.policy = Arc::new(BuiltInRule);
    recover::recover(&fixture.gate, Scope::Core).await.unwrap();
    assert_eq!(fixture.dossier(&answer).await.run.status, Status::Ok);
    assert_verified(&*fixture.gate.store).await;
}
