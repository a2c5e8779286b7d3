//! The same random histories in every engine: the same answers, and afterwards the same of everything,
//! byte for byte. PostgreSQL is written by two nodes in turn, and its nodes come and go.

use std::fmt::Debug;
use std::sync::Arc;

use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::digest::Digest;
use stepgate_core::event::{Event, EventType};
use stepgate_core::ids::{PrincipalId, RunId, SessionId};
use stepgate_core::ports::{
    ApprovalChange, ApprovalQuery, Audited, Counts, Dossier, EventQuery, KeyChange, RunQuery,
    StepCommit, Store, StoreError,
};
use stepgate_core::run::{Payload, Status};
use stepgate_core::session::SessionKind;
use stepgate_store::{PostgresOptions, PostgresStore};
use uuid::Uuid;

use crate::conformance::{memory, sqlite};
use crate::desk::{Desk, Step, agent, operator};
use crate::server;

const HISTORIES: u64 = 8;
const ACTS: usize = 60;

/// Chance from a seed (splitmix64), so that a history that fails is there again.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    fn text(&mut self) -> String {
        let alphabet = ["a", "Z", "\0", "\\", "\\0", "'", "\"", "é", "\u{10FFFF}", "\n", "%", "$1"];
        (0..self.below(9)).map(|_| *self.of(&alphabet)).collect()
    }
}

/// One history in the making.
struct History {
    chance: Chance,
    desk: Desk,
    others: Vec<Arc<dyn Store>>,
    /// The two nodes of PostgreSQL.
    nodes: [Arc<dyn Store>; 2],
    url: String,
    sessions: Vec<SessionId>,
    open: Vec<(Step, Option<Approval>)>,
    /// What was committed before, to be tried again.
    past: Vec<StepCommit>,
}

async fn node(url: &str) -> Arc<dyn Store> {
    let options = PostgresOptions { readers_max: 2, ..PostgresOptions::default() };
    Arc::new(PostgresStore::open(url, options).await.unwrap())
}

/// What is the same in every engine: all of an answer, except the words of a row's refusal.
pub(crate) fn told<T: Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::State(error)) => format!("{:?}", error.code),
        answer => format!("{answer:?}"),
    }
}

impl History {
    async fn begin(seed: u64, sqlite: Arc<dyn Store>) -> Self {
        let url = server::fresh_url();
        let nodes = [node(&url).await, node(&url).await];
        let desk = Desk::open(memory().await.1).await;
        let history = Self {
            chance: Chance(seed),
            sessions: vec![desk.session],
            others: vec![sqlite],
            nodes,
            url,
            open: Vec::new(),
            past: Vec::new(),
            desk,
        };
        // The others begin with the sessions that the first has.
        let memory = &history.desk.store;
        let opened = memory.loose_events().await.unwrap();
        for (session_id, linked) in [history.desk.system, history.desk.session].iter().zip(opened) {
            let session = memory.session(*session_id).await.unwrap().unwrap();
            for store in history.others.iter().chain([&history.nodes[0]]) {
                store.open_session(session.clone(), linked.event.clone()).await.unwrap();
            }
        }
        history
    }

    /// The stores that an act goes to: all engines, and one of the nodes.
    fn stores(&mut self) -> Vec<Arc<dyn Store>> {
        let mut stores = vec![Arc::clone(&self.desk.store)];
        stores.extend(self.others.iter().cloned());
        stores.push(Arc::clone(self.chance.of(&self.nodes)));
        stores
    }

    async fn commit(&mut self, what: &str, commit: StepCommit) -> bool {
        let run_id = commit.place.run_id;
        let mut answers = Vec::new();
        for store in self.stores() {
            store.acquire_trace_lock(run_id).await.unwrap();
            answers.push(store.commit(commit.clone()).await);
            store.release_trace_lock(run_id).await.unwrap();
        }
        let is_done = answers[0].is_ok();
        self.past.push(commit);
        let answers: Vec<_> = answers.into_iter().map(told).collect();
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{what}: {answers:#?}");
        is_done
    }

    async fn append(&mut self, event: Event) {
        let mut answers = Vec::new();
        for store in self.stores() {
            answers.push(told(store.append_event(event.clone()).await));
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{event:?}: {answers:#?}");
    }

    fn fresh_step(&mut self) -> Step {
        let session_id = *self.chance.of(&self.sessions.clone());
        let mut step = Step::new(session_id, self.chance.next() % 50);
        let bytes: Vec<u8> = (0..self.chance.below(3000)).map(|byte| byte as u8).collect();
        let length = bytes.len() as u64 + u64::from(self.chance.one_in(4));
        step.run.arrival.payload = Payload { bytes: bytes.into(), length };
        step.run.tool_name = match self.chance.below(3) {
            0 => None,
            1 => Some(self.chance.text()),
            _ => step.run.tool_name,
        };
        step
    }

    fn sealed(&mut self, mut commit: StepCommit) -> StepCommit {
        if self.chance.one_in(4) {
            commit.sealed = Some(self.chance.text().as_bytes().into());
        }
        commit
    }

    async fn act(&mut self) {
        match self.chance.below(12) {
            0..4 => self.begin_step().await,
            4..8 => self.go_on().await,
            8 => self.spoil().await,
            9 => {
                if !self.past.is_empty() {
                    let again = self.chance.below(self.past.len());
                    let commit = self.past[again].clone();
                    self.commit("the same again", commit).await;
                }
            }
            10 => self.elsewhere().await,
            _ => {
                // A node leaves, and another comes.
                let place = self.chance.below(2);
                self.nodes[place] = node(&self.url).await;
            }
        }
    }

    async fn begin_step(&mut self) {
        let mut step = self.fresh_step();
        match self.chance.below(4) {
            0 => {
                let commit = step.refused_at_once();
                let commit = self.sealed(commit);
                self.commit("refused at once", commit).await;
            }
            1 => {
                let (pausing, asked) = step.pausing();
                let pausing = self.sealed(pausing);
                if self.commit("pausing", pausing).await {
                    self.open.push((step, Some(asked)));
                }
            }
            2 => {
                let (opening, closing) = (step.opening(), step.closing());
                let at_once = StepCommit {
                    entries: [opening.entries.clone(), closing.entries.clone()].concat(),
                    key: Some(KeyChange::Bind(step.binding(true))),
                    checkpoint: closing.checkpoint.clone(),
                    events: [opening.events.clone(), closing.events.clone()].concat(),
                    record: closing.record.clone(),
                    ..opening
                };
                self.commit("at once", at_once).await;
            }
            _ => {
                if self.chance.one_in(5)
                    && let Some((other, _)) = self.open.first()
                {
                    step.key = other.key.clone();
                }
                let opening = step.opening();
                let opening = self.sealed(opening);
                if self.commit("opening", opening).await {
                    self.open.push((step, None));
                }
            }
        }
    }

    async fn go_on(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.chance.below(self.open.len());
        let (mut step, asked) = self.open.swap_remove(at);
        match asked {
            Some(asked) => {
                let (granting, mut decided) = step.granting(&asked);
                decided.resolution.as_mut().unwrap().note = Some(self.chance.text());
                let approval = Some(ApprovalChange::Decide(decided));
                assert!(self.commit("granting", StepCommit { approval, ..granting }).await);
                self.open.push((step, None));
            }
            None if self.chance.one_in(3) => {
                let events = vec![step.event(EventType::ToolRedispatched)];
                let commit = StepCommit { events, ..StepCommit::at(step.place()) };
                assert!(self.commit("an event", commit).await);
                self.open.push((step, None));
            }
            None => {
                let closing = step.closing();
                assert!(self.commit("closing", closing).await);
            }
        }
    }

    /// A commit that something is wrong with.
    async fn spoil(&mut self) {
        let mut step = self.fresh_step();
        let mut commit = step.opening();
        let taken = self.past.iter().flat_map(|commit| &commit.events).next();
        match self.chance.below(6) {
            0 => commit.entries[1].entry.sequence_number = 9,
            1 => commit.entries[0].entry.entry_digest = Digest::ZERO,
            2 => commit.place.session_id = SessionId::new(Uuid::nil()),
            3 => commit.status = Some(Status::Denied),
            4 => commit.record = Some(step.record(Status::Ok)),
            _ => match taken {
                Some(event) => commit.events[0].event_id = event.event_id,
                None => commit.open = None,
            },
        }
        self.commit("spoilt", commit).await;
    }

    /// Sessions and events outside any step.
    async fn elsewhere(&mut self) {
        if self.chance.one_in(2) {
            let run_id = self.past.last().map(|commit| commit.place.run_id);
            let run_id = run_id.filter(|_| self.chance.one_in(2));
            return self.append(Event { run_id, ..self.desk.loose_event() }).await;
        }
        let kind = *self.chance.of(&[SessionKind::Named, SessionKind::Default]);
        let name = *self.chance.of(&["agent-1", "agent-2"]);
        let principal_id = PrincipalId::parse(name).unwrap();
        let session_id = match self.chance.one_in(4) {
            true => self.sessions[0],
            false => SessionId::new(Uuid::now_v7()),
        };
        let there = self.desk.store.session(self.desk.session).await.unwrap().unwrap();
        let session = stepgate_core::session::Session { session_id, kind, principal_id, ..there };
        let event = self.desk.loose_event();
        let mut answers = Vec::new();
        for store in self.stores() {
            answers.push(store.open_session(session.clone(), event.clone()).await);
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:#?}");
        if let Ok(opened) = &answers[0]
            && opened.principal_id == agent()
        {
            self.sessions.push(opened.session_id);
        }
    }

    async fn compare(&self) {
        let others = self.others.iter().chain(&self.nodes);
        for store in others {
            same(&self.desk.store, store, &self.past).await;
        }
    }
}

/// Every run as `verify` reads it, a few at a time.
async fn audited(store: &Arc<dyn Store>) -> Vec<(RunId, Dossier, Counts)> {
    let last = store.moment().await.unwrap().last;
    let mut runs: Vec<(RunId, Dossier, Counts)> = Vec::new();
    loop {
        let before = runs.last().map(|(run_id, _, _)| *run_id);
        let page = store.audit(&last, before, 3).await.unwrap();
        if page.is_empty() {
            return runs;
        }
        let whole = |it: Audited| (it.run_id, it.dossier.unwrap().unwrap(), it.rows);
        runs.extend(page.into_iter().map(whole));
    }
}

/// Everything that the two say, compared.
async fn same(one: &Arc<dyn Store>, other: &Arc<dyn Store>, past: &[StepCommit]) {
    for commit in past {
        let run_id: RunId = commit.place.run_id;
        assert_eq!(one.dossier(run_id).await, other.dossier(run_id).await);
        assert_eq!(one.recall(run_id).await, other.recall(run_id).await);
        assert_eq!(one.load_state(run_id).await, other.load_state(run_id).await);
        let (latest, theirs) =
            (one.load_latest_checkpoint(run_id).await, other.load_latest_checkpoint(run_id).await);
        assert_eq!(latest, theirs);
        if let Some(KeyChange::Bind(binding)) = &commit.key {
            let key = &binding.idempotency_key;
            assert_eq!(one.binding(key).await, other.binding(key).await);
        }
    }
    assert_eq!(audited(one).await, audited(other).await);
    assert_eq!(one.sessions().await, other.sessions().await);
    assert_eq!(one.counts().await, other.counts().await);
    assert_eq!(one.loose_events().await, other.loose_events().await);
    assert_eq!(one.open_approvals(None).await, other.open_approvals(None).await);
    for principal_id in [None, Some(agent()), Some(operator())] {
        for limit in [3, 1000] {
            let events =
                EventQuery { principal_id: principal_id.clone(), limit, ..EventQuery::default() };
            assert_eq!(one.events(events.clone()).await, other.events(events).await);
            let runs =
                RunQuery { principal_id: principal_id.clone(), limit, ..RunQuery::default() };
            assert_eq!(one.runs(runs.clone()).await, other.runs(runs).await);
            for status in [None, Some(ApprovalStatus::Pending), Some(ApprovalStatus::Approved)] {
                let principal_id = principal_id.clone();
                let query =
                    ApprovalQuery { principal_id, status, limit, ..ApprovalQuery::default() };
                assert_eq!(one.approvals(query.clone()).await, other.approvals(query).await);
            }
        }
    }
    let unfinished = one.unfinished_runs().await;
    assert_eq!(unfinished, other.unfinished_runs().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_engine_makes_the_same_of_the_same_history() {
    for seed in 0..HISTORIES {
        println!("seed {seed}");
        let (_directory, store) = sqlite().await;
        let mut history = History::begin(seed, store).await;
        for _ in 0..ACTS {
            history.act().await;
        }
        assert!(history.past.len() > ACTS / 4);
        history.compare().await;
    }
}
