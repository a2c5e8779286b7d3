//! Simulated nodes and real ones on a PostgreSQL judge by one machine (`stepgate_core::lease`), but the simulation
//! has no SQL: here both do the same random acts, and every answer and every owner is compared.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stepgate_core::approval::Approval;
use stepgate_core::ids::RunId;
use stepgate_core::lease::Ownership;
use stepgate_core::ports::{Nodes, StepCommit, Store};
use stepgate_core::session::SessionKind;
use stepgate_sim::{Rehearsal, Sabotage};
use stepgate_store::{PostgresOptions, PostgresStore};

use crate::desk::{Desk, Step, agent, operator};
use crate::differential::{Chance, told};
use crate::server;

const HISTORIES: u64 = 6;
const ACTS: usize = 80;
const NODES: usize = 3;

/// No lease ends by itself, and nobody waits long for a lock.
async fn real(url: &str, node: usize) -> Arc<PostgresStore> {
    let options = PostgresOptions {
        node_id: format!("node {node}"),
        readers_max: 1,
        lease: Duration::from_secs(24 * 3600),
        lock_wait: Duration::from_millis(60),
        ..PostgresOptions::default()
    };
    Arc::new(PostgresStore::open(url, options).await.unwrap())
}

/// A run, and the commit that comes next in it: the same until it is accepted.
struct Open {
    step: Step,
    asked: Option<Approval>,
    next: Option<StepCommit>,
}

impl Open {
    fn next(&mut self) -> Option<StepCommit> {
        if self.next.is_none() {
            self.next = match self.asked.take() {
                Some(asked) => Some(self.step.granting(&asked).0),
                None => Some(self.step.closing()),
            };
        }
        self.next.clone()
    }
}

struct History {
    chance: Chance,
    schema: String,
    desk: Desk,
    real: Vec<Arc<PostgresStore>>,
    simulated: Rehearsal,
    runs: Vec<Open>,
    /// Locks that a node has of its own.
    locked: BTreeSet<(usize, RunId)>,
    /// What happened so far, for whoever must find out why.
    acts: Vec<String>,
    /// The first thing that was not the same.
    difference: Option<String>,
}

impl History {
    async fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let schema = server::fresh_schema();
        let mut nodes = Vec::new();
        for node in 0..NODES {
            nodes.push(real(&server::url_of(&schema), node).await);
        }
        let desk = Desk::open(nodes[0].clone()).await;
        let simulated = Rehearsal::of(NODES as u64, sabotage).unwrap();
        let there = desk.clone();
        let opened = simulated.act(0, |store| async move {
            let desk = Desk { store, ..there };
            desk.open_session(desk.system, operator(), SessionKind::System).await.unwrap();
            desk.open_session(desk.session, agent(), SessionKind::Default).await.unwrap();
        });
        opened.unwrap();
        Self {
            chance: Chance(seed),
            schema,
            desk,
            real: nodes,
            simulated,
            runs: Vec::new(),
            locked: BTreeSet::new(),
            acts: vec![format!("seed {seed}")],
            difference: None,
        }
    }

    /// Does the same at both nodes, and compares what they answer.
    async fn both<F: Future<Output = String> + Send + 'static>(
        &mut self,
        node: usize,
        what: String,
        act: impl Fn(Arc<dyn Store>) -> F,
    ) -> String {
        let real = act(self.real[node].clone()).await;
        let simulated = self.simulated.act(node, &act).unwrap();
        self.acts.push(format!("node {node} {what}: {real}"));
        if simulated != real {
            self.difference.get_or_insert(format!("the simulated one says {simulated}"));
        }
        real
    }

    async fn act(&mut self) {
        let node = self.chance.below(NODES);
        match self.chance.below(16) {
            0..3 => self.open(node).await,
            3..6 => self.lock(node).await,
            6..8 => self.release(node).await,
            8..11 => self.commit(node).await,
            11 => self.lapse(node),
            12 => self.renew(node).await,
            13 => self.dispatch(node).await,
            14 if self.chance.below(3) == 0 => self.restart(node).await,
            _ => self.look(node).await,
        }
        self.compare_owners();
    }

    fn run(&mut self) -> Option<usize> {
        // The last ones: what is over answers always the same.
        let recent = self.runs.len().min(4);
        let back = if recent == 0 { return None } else { self.chance.below(recent) };
        Some(self.runs.len() - 1 - back)
    }

    async fn open(&mut self, node: usize) {
        let mut step = self.desk.step();
        let run_id = step.id();
        let (commit, asked) = match self.chance.below(3) {
            0 => {
                let (commit, asked) = step.pausing();
                (commit, Some(asked))
            }
            _ => (step.opening(), None),
        };
        let opened = self
            .both(node, format!("opens {run_id}"), move |store| {
                let commit = commit.clone();
                async move {
                    store.lock_new_trace(run_id).await.unwrap();
                    told(store.commit(commit).await)
                }
            })
            .await;
        assert_eq!(opened, "Ok(())");
        self.locked.insert((node, run_id));
        self.runs.push(Open { step, asked, next: None });
    }

    async fn lock(&mut self, node: usize) {
        let Some(at) = self.run() else { return };
        let run_id = self.runs[at].step.id();
        let act = move |store: Arc<dyn Store>| async move {
            told(store.acquire_trace_lock(run_id).await)
        };
        if self.both(node, format!("locks {run_id}"), act).await == "Ok(())" {
            self.locked.insert((node, run_id));
        }
    }

    async fn release(&mut self, node: usize) {
        let held = self.locked.iter().rev().find(|(holder, _)| *holder == node).copied();
        let Some((_, run_id)) = held else { return };
        self.locked.remove(&(node, run_id));
        let act = move |store: Arc<dyn Store>| async move {
            told(store.release_trace_lock(run_id).await)
        };
        self.both(node, format!("lets go of {run_id}"), act).await;
    }

    async fn commit(&mut self, node: usize) {
        let Some(at) = self.run() else { return };
        let (run_id, Some(commit)) = (self.runs[at].step.id(), self.runs[at].next()) else {
            return;
        };
        let act = move |store: Arc<dyn Store>| {
            let commit = commit.clone();
            async move { told(store.commit(commit).await) }
        };
        let is_last = self.runs[at].next.as_ref().is_some_and(|next| next.record.is_some());
        let answer = self.both(node, format!("commits to {run_id}"), act).await;
        // What is over is committed to again and again.
        if answer == "Ok(())" && !is_last {
            self.runs[at].next = None;
        }
    }

    async fn dispatch(&mut self, node: usize) {
        let Some(at) = self.run() else { return };
        let run_id = self.runs[at].step.id();
        let act =
            move |store: Arc<dyn Store>| async move { told(store.may_dispatch(run_id).await) };
        self.both(node, format!("asks whether it may send {run_id}"), act).await;
    }

    async fn look(&mut self, node: usize) {
        let act = move |store: Arc<dyn Store>| async move {
            let strays = store.has_stray_runs().await;
            format!("{:?} {strays:?}", store.unfinished_runs().await)
        };
        self.both(node, "looks".to_owned(), act).await;
    }

    fn lapse(&mut self, node: usize) {
        let incarnation = self.simulated.incarnation(node).unwrap();
        self.acts.push(format!("the lease of node {node}, number {incarnation}, lapses"));
        let sql = "UPDATE nodes SET expires_at = clock_timestamp() WHERE incarnation =";
        self.sql(&format!("{sql} {incarnation}"));
        self.simulated.lapse(node);
    }

    async fn renew(&mut self, node: usize) {
        self.real[node].renew_lease().await.unwrap();
        self.simulated.renew(node).unwrap().unwrap();
        let incarnation = self.simulated.incarnation(node).unwrap();
        self.acts.push(format!("node {node} renews its lease as {incarnation}"));
    }

    async fn restart(&mut self, node: usize) {
        self.real[node].leave().await;
        self.real[node] = real(&server::url_of(&self.schema), node).await;
        self.simulated.restart(node).unwrap();
        self.locked.retain(|(holder, _)| *holder != node);
        self.acts.push(format!("node {node} is another process"));
    }

    fn compare_owners(&mut self) {
        let found = self
            .sql("SELECT tool_run_id, coalesce(owner, 0), epoch FROM tool_runs ORDER BY position");
        let expected: Vec<String> = self
            .runs
            .iter()
            .map(|open| {
                let Ownership { owner, epoch } = self.simulated.ownership(open.step.id()).unwrap();
                format!("{}|{}|{epoch}", open.step.id(), owner.unwrap_or(0))
            })
            .collect();
        if expected != found.lines().collect::<Vec<_>>() {
            let what = format!("simulated owners {expected:?}, real owners {found}");
            self.difference.get_or_insert(what);
        }
    }

    fn sql(&self, sql: &str) -> String {
        let sql = format!("SET search_path = {}; {sql}", self.schema);
        server::shared().sql("postgres", &sql).unwrap()
    }
}

/// Does many acts, up to the first difference.
async fn history(seed: u64, sabotage: Option<Sabotage>) -> History {
    let mut history = History::new(seed, sabotage).await;
    for _ in 0..ACTS {
        history.act().await;
        if history.difference.is_some() {
            break;
        }
    }
    history
}

#[tokio::test]
async fn simulated_nodes_answer_as_real_ones_do() {
    let mut all = Vec::new();
    for seed in 0..HISTORIES {
        let History { acts, difference, .. } = history(seed, None).await;
        assert_eq!(difference, None, "{}", acts.join("\n"));
        all.extend(acts);
    }
    // Everything was answered in every way that there is.
    for (what, answer) in [
        ("commits", "Ok(())"),
        ("commits", "ConcurrentExecution"),
        ("commits", "SequenceGap"),
        ("locks", "Ok(())"),
        ("locks", "LockAcquireFailed"),
        ("may send", "Ok(())"),
        ("may send", "ConcurrentExecution"),
        ("looks", "Ok(true)"),
        ("looks", "Ok(false)"),
    ] {
        let is_it = |act: &String| act.contains(what) && act.ends_with(answer);
        assert!(all.iter().any(is_it), "nobody {what} and hears {answer}:\n{}", all.join("\n"));
    }
}

#[tokio::test]
async fn a_guard_that_only_one_of_the_two_has_is_noticed() {
    for sabotage in
        [Sabotage::SkipFence, Sabotage::TakeOverLiving, Sabotage::RenewLapsed, Sabotage::SkipMargin]
    {
        let mut is_noticed = false;
        for seed in 0..HISTORIES {
            is_noticed |= history(seed, Some(sabotage)).await.difference.is_some();
            if is_noticed {
                break;
            }
        }
        assert!(is_noticed, "{sabotage:?}");
    }
}
