//! Every place where a script of steps can stop, one after the other: at each write of the store,
//! before and after each act, and between the durable parts of an act. After each stop a restart must
//! end where the run without a crash ended.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use stepgate_core::action::CoreCall;
use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::consent::{self, GrantRefused, NewGrant};
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::grant::Condition;
use stepgate_core::ids::{IdempotencyKey, PrincipalId, ProposalId};
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{
    Dispatch, Effect, Executor, Policy, PolicyDecision, PolicyRequest, PolicyVerdict, RunQuery,
    Store, StoreError,
};
use stepgate_core::recover::{self, Scope};
use stepgate_core::step::{self, Person, Refused};
use stepgate_core::verify;
use stepgate_exec::{AtCrashPoint, Sandbox, SandboxLimits};
use stepgate_store::faulty::{Faults, FaultyStore, StopAt};
use stepgate_store::memory::MemoryStore;
use stepgate_store::sqlite::SqliteStore;
use tempfile::TempDir;

use crate::gate::{Act, Acting, CountingWorld, agent, gate, id, proposal, submit};

/// What a client does: propose, or decide as an operator.
enum Op {
    Propose(String),
    Decide(u32, Person),
    /// Makes a grant for two calls from the approval of this proposal.
    Grant(u32),
}

fn script() -> Vec<Op> {
    let person = || PrincipalId::parse("operator").unwrap();
    let path = |path: &str| json!({ "path": path });
    let write = |path: &str, content: &str| json!({ "path": path, "content": content });
    let steps = [
        ("THINK", json!({})),
        ("CREATE_DIRECTORY", path("/sandbox/d/e")),
        ("WRITE_FILE", write("/sandbox/d/a.txt", "first")),
        ("WRITE_FILE", write("/sandbox/d/a.txt", "second")),
        ("READ_FILE", path("/sandbox/d/a.txt")),
        ("RENAME_FILE", json!({"source": "/sandbox/d/a.txt", "destination": "/sandbox/b.txt"})),
        ("WRITE_FILE", write("/sandbox/d/a.txt", "third")),
        ("RENAME_FILE", json!({"source": "/sandbox/d/a.txt", "destination": "/sandbox/b.txt"})),
        ("LIST_FILES", path("/sandbox/")),
        ("DELETE_FILE", path("/sandbox/b.txt")),
        ("DELETE_FILE", path("/sandbox/b.txt")),
        ("WRITE_FILE", write("/sandbox/none/a.txt", "x")),
        ("READ_FILE", path("/sandbox/a.exe")),
        ("READ_FILE", path("/etc/passwd")),
        ("run_command", json!({})),
        ("WRITE_FILE", write("/sandbox/ask-1.txt", "granted")),
        ("WRITE_FILE", write("/sandbox/ask-2.txt", "refused")),
        ("WRITE_FILE", write("/sandbox/ask-3.txt", "expired")),
        ("FINISH", json!({"response": "done"})),
    ];
    let mut script: Vec<Op> = (0..)
        .zip(steps)
        .map(|(number, (action, args))| Op::Propose(proposal(number, action, args)))
        .collect();
    script.push(Op::Propose("{ not json".into()));
    script.push(Op::Propose(String::new()));
    script.push(Op::Decide(15, Person::Approves { approver_id: person(), note: None }));
    script.push(Op::Decide(16, Person::Denies { approver_id: person(), note: Some("no".into()) }));
    script.push(Op::Decide(17, Person::Nobody));
    script.push(Op::Grant(15));
    // The grant is for two of these three.
    for (number, content) in [(30, "granted"), (31, "granted too"), (32, "granted once too often")]
    {
        let args = write("/sandbox/ask-1.txt", content);
        script.push(Op::Propose(proposal(number, "WRITE_FILE", args)));
    }
    script
}

/// Asks a person about paths that say so.
struct AskSome;

impl Policy for AskSome {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let asks = request.call.paths().iter().any(|path| path.as_str().contains("ask"));
        let verdict = if asks {
            PolicyVerdict::RequireApproval("its name says so".into())
        } else {
            PolicyVerdict::Permit
        };
        PolicyDecision { verdict, ..BuiltInRule.decide(request) }
    }
}

/// Where an executor stops.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ActStop {
    Never,
    Before(u64),
    After(u64),
    /// At the n-th crash point inside acts.
    Inside(u64),
}

struct Stopping {
    inner: Arc<Sandbox>,
    stop: ActStop,
    acts: AtomicU64,
    points: Arc<AtomicU64>,
    has_stopped: Arc<AtomicBool>,
}

impl Stopping {
    fn around(sandbox: &Path, stop: ActStop) -> Self {
        let inner = Sandbox::open(sandbox, "sandbox".into(), SandboxLimits::default()).unwrap();
        let points = Arc::new(AtomicU64::new(0));
        let has_stopped = Arc::new(AtomicBool::new(false));
        let (counter, stopped) = (points.clone(), has_stopped.clone());
        inner.set_crash_hook(Some(Arc::new(move |_| {
            let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
            if stop == ActStop::Inside(number) {
                stopped.store(true, Ordering::SeqCst);
            }
            if stopped.load(Ordering::SeqCst) { AtCrashPoint::Crash } else { AtCrashPoint::GoOn }
        })));
        Self { inner: Arc::new(inner), stop, acts: AtomicU64::new(0), points, has_stopped }
    }
}

#[async_trait]
impl Act for Stopping {
    fn inner(&self) -> &dyn Executor {
        &*self.inner
    }

    async fn act(&self, call: &CoreCall, before: Option<&Value>, dispatch: Dispatch) -> Effect {
        let number = self.acts.fetch_add(1, Ordering::SeqCst) + 1;
        if self.stop == ActStop::Before(number) {
            self.has_stopped.store(true, Ordering::SeqCst);
        }
        let unknown = || Effect::Unknown("stopped".into());
        if self.has_stopped.load(Ordering::SeqCst) {
            return unknown();
        }
        let effect = self.inner.dispatch(call, before, dispatch).await;
        if self.stop == ActStop::After(number) {
            self.has_stopped.store(true, Ordering::SeqCst);
            return unknown();
        }
        effect
    }
}

fn gate_on(
    store: Arc<dyn Store>,
    sandbox: &Path,
    stop: ActStop,
    era: u64,
) -> (Gate, Arc<Acting<Stopping>>) {
    let executor = Arc::new(Acting(Stopping::around(sandbox, stop)));
    let mut gate = gate(store, sandbox);
    gate.policy = Arc::new(AskSome);
    gate.executor = executor.clone();
    gate.world = CountingWorld::starting_at(era * 1_000_000);
    (gate, executor)
}

/// Plays the script until it ends or something stops it. A decision that was taken before the stop
/// is not taken again.
async fn play(gate: &Gate) -> Result<BTreeMap<usize, String>, Fault> {
    let mut responses = BTreeMap::new();
    for (number, op) in script().into_iter().enumerate() {
        match op {
            Op::Propose(payload) => {
                let answer = submit(gate, payload).await?;
                // The approval's id is chance; the rest must repeat.
                let mut response: Value = serde_json::from_str(&answer.body()).unwrap();
                if response["outcome"] == "APPROVAL_REQUIRED" {
                    response["result"] = json!("asked");
                }
                responses.insert(number, response.to_string());
            }
            Op::Decide(proposal, person) => decide(gate, proposal, person).await?,
            Op::Grant(proposal) => grant(gate, proposal).await?,
        }
    }
    Ok(responses)
}

async fn approval_of(gate: &Gate, proposal: u32) -> Result<Approval, Fault> {
    let key = IdempotencyKey::of(&agent(), &ProposalId::parse(&id(proposal)).unwrap());
    let binding = gate.store.binding(&key).await?.unwrap();
    Ok(gate.store.dossier(binding.trace_id).await?.unwrap().approval.unwrap())
}

/// Makes the grant, unless it was made before the stop.
async fn grant(gate: &Gate, proposal: u32) -> Result<(), Fault> {
    if !consent::grants(gate).await?.is_empty() {
        return Ok(());
    }
    let beginning = Condition::StartsWith("granted".into());
    let new = NewGrant {
        approval_id: approval_of(gate, proposal).await?.approval_id,
        args: BTreeMap::from([("content".to_owned(), beginning)]),
        uses_max: 2,
        life_ms: 60 * 60 * 1000,
        note: None,
    };
    match consent::create_grant(gate, &PrincipalId::parse("operator").unwrap(), new).await {
        Ok(_) => Ok(()),
        Err(GrantRefused::Fault(fault)) => Err(fault),
        Err(refused) => panic!("{refused}"),
    }
}

async fn decide(gate: &Gate, proposal: u32, person: Person) -> Result<(), Fault> {
    let approval = approval_of(gate, proposal).await?;
    if approval.status != ApprovalStatus::Pending {
        return Ok(());
    }
    match step::resume(gate, approval.approval_id, person).await {
        Ok(_) => Ok(()),
        Err(Refused::Fault(fault)) => Err(fault),
        Err(refused) => panic!("{refused}"),
    }
}

/// Every file and directory with its content.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                found.insert(name, "directory".into());
                open.push(path);
            } else {
                found.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// How each proposal ended, by its id: status, outcome and effects in the journal.
async fn endings(store: &dyn Store) -> BTreeMap<String, (String, usize)> {
    let mut endings = BTreeMap::new();
    let query = RunQuery { limit: 10_000, ..RunQuery::default() };
    for run in store.runs(query).await.unwrap() {
        let dossier = store.dossier(run.arrival.run_id).await.unwrap().unwrap();
        let Some(binding) = dossier.binding else { continue };
        let effects = dossier.entries.iter().filter(|row| row.entry.sequence_number == 4).count();
        let ending = (run.status.as_str().to_owned(), effects);
        let earlier = endings.insert(binding.idempotency_key.to_string(), ending);
        assert_eq!(earlier, None, "two runs under one key");
    }
    endings
}

async fn assert_invariants(store: &dyn Store) {
    let report = verify::verify(store, &[], |_| {}).await.unwrap();
    assert_eq!(report.problems, []);
}

/// The end of a run without a crash, and how many places there are to stop at.
struct Reference {
    responses: BTreeMap<usize, String>,
    tree: BTreeMap<String, String>,
    endings: BTreeMap<String, (String, usize)>,
    writes: u64,
    acts: u64,
    points: u64,
}

async fn reference(store: impl Store + 'static) -> Reference {
    let sandbox = TempDir::new().unwrap();
    let faults = Faults::new(StopAt::Never);
    let store = Arc::new(FaultyStore::new(store, faults.clone()));
    let (gate, executor) = gate_on(store.clone(), sandbox.path(), ActStop::Never, 0);
    let responses = play(&gate).await.unwrap();
    assert_invariants(&*store).await;
    Reference {
        responses,
        tree: tree(sandbox.path()),
        endings: endings(&*store).await,
        writes: faults.writes(),
        acts: executor.0.acts.load(Ordering::SeqCst),
        points: executor.0.points.load(Ordering::SeqCst),
    }
}

/// A store that can be opened again after a crash.
trait Reopen {
    type Opened: Store + 'static;
    fn open(&self) -> Self::Opened;
}

impl Reopen for MemoryStore {
    type Opened = MemoryStore;
    fn open(&self) -> MemoryStore {
        self.reopened()
    }
}

impl Reopen for TempDir {
    type Opened = SqliteStore;
    fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.path().join("stepgate.db"), Default::default()).unwrap()
    }
}

/// Stops once, restarts, plays the script again, and compares with the run without a crash.
async fn crash(place: &impl Reopen, stop: StopAt, act_stop: ActStop, reference: &Reference) {
    let context = format!("{stop:?} {act_stop:?}");
    let sandbox = TempDir::new().unwrap();
    let answered = {
        let store = Arc::new(FaultyStore::new(place.open(), Faults::new(stop)));
        let (gate, _) = gate_on(store, sandbox.path(), act_stop, 0);
        play(&gate).await.err()
    };
    assert!(answered.is_some(), "{context}: nothing stopped");
    let store = Arc::new(place.open());
    assert_invariants(&*store).await;
    let (gate, executor) = gate_on(store.clone(), sandbox.path(), ActStop::Never, 1);
    executor.0.inner.sweep().await.unwrap();
    let report = recover::recover(&gate, Scope::Core).await.unwrap();
    assert_eq!((report.quarantined, report.stuck), (vec![], vec![]), "{context}");
    assert_invariants(&*store).await;
    let responses = play(&gate).await.unwrap_or_else(|fault| panic!("{context}: {fault}"));
    for (number, response) in &responses {
        let before = &reference.responses[number];
        let is_settled_now = before.contains("APPROVAL_REQUIRED");
        assert!(response == before || is_settled_now, "{context}: op {number}: {response}");
    }
    assert_eq!(tree(sandbox.path()), reference.tree, "{context}");
    assert_eq!(endings(&*store).await, reference.endings, "{context}");
    assert_invariants(&*store).await;
}

fn stops(reference: &Reference) -> Vec<(StopAt, ActStop)> {
    let store_stops = (1..=reference.writes)
        .flat_map(|n| [StopAt::Before(n), StopAt::After(n)])
        .map(|stop| (stop, ActStop::Never));
    let act_stops = (1..=reference.acts)
        .flat_map(|n| [ActStop::Before(n), ActStop::After(n)])
        .chain((1..=reference.points).map(ActStop::Inside))
        .map(|stop| (StopAt::Never, stop));
    store_stops.chain(act_stops).collect()
}

#[tokio::test]
async fn every_crash_point_in_memory_ends_like_the_run_without_a_crash() {
    let reference = reference(MemoryStore::new()).await;
    let stops = stops(&reference);
    for (stop, act_stop) in &stops {
        crash(&MemoryStore::new(), *stop, *act_stop, &reference).await;
    }
    println!(
        "crash points tried in memory: {} ({} writes, {} acts, {} inside acts)",
        stops.len(),
        reference.writes,
        reference.acts,
        reference.points
    );
    assert!(stops.len() > 100, "the script has become too small: {}", stops.len());
}

#[tokio::test]
async fn every_crash_point_on_sqlite_ends_like_the_run_without_a_crash() {
    let reference = reference(TempDir::new().unwrap().open()).await;
    let stops = stops(&reference);
    for (stop, act_stop) in &stops {
        crash(&TempDir::new().unwrap(), *stop, *act_stop, &reference).await;
    }
    println!("crash points tried on SQLite: {}", stops.len());
}

#[tokio::test]
async fn a_fault_is_told_as_unknown_and_never_as_an_outcome() {
    let faults = Faults::new(StopAt::Before(3));
    let sandbox = TempDir::new().unwrap();
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), faults));
    let (gate, _) = gate_on(store, sandbox.path(), ActStop::Never, 0);
    let write = json!({"path": "/sandbox/a.txt", "content": "x"});
    let fault = submit(&gate, proposal(1, "WRITE_FILE", write)).await.unwrap_err();
    assert!(matches!(fault, Fault::Store(StoreError::Broken(_))), "{fault}");
    assert_eq!(tree(sandbox.path()), BTreeMap::new());
}

#[tokio::test]
async fn a_path_whose_effect_is_not_recorded_stays_held_until_recovery_has_ended_it() {
    let sandbox = TempDir::new().unwrap();
    let memory = MemoryStore::new();
    let write = |number, content: &str| {
        proposal(number, "WRITE_FILE", json!({"path": "/sandbox/a.txt", "content": content}))
    };
    let (mut gate, executor) = gate_on(Arc::new(memory), sandbox.path(), ActStop::After(1), 0);
    submit(&gate, write(1, "first")).await.unwrap_err();
    executor.0.inner.set_crash_hook(None);
    gate.executor = executor.0.inner.clone();
    let mut second = tokio::spawn({
        let gate = gate.clone();
        async move { submit(&gate, write(2, "second")).await.unwrap() }
    });
    let patience = std::time::Duration::from_millis(300);
    let early = tokio::time::timeout(patience, &mut second).await;
    assert!(early.is_err(), "the path was free while its effect was unknown");
    recover::recover(&gate, Scope::Core).await.unwrap();
    second.await.unwrap();
    let content = std::fs::read_to_string(sandbox.path().join("a.txt")).unwrap();
    assert_eq!(content, "second", "recovery wrote over a later effect");
}
