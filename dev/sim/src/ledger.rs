//! What must hold, checked after every event by a book of its own: it watches commits, effects and answers,
//! and takes nothing from the program's own state.
//!
//! | promise or invariant | how |
//! |---|---|
//! | no action without a decision | nothing acts for a run that is denied, or not called |
//! | no effect without a record | when something acts, its tool_call is durable; when an agent is answered, its record is |
//! | no record that changes unseen | an answer once given is given again; a run that is over changes no more |
//! | no crash that loses or repeats | effects counted by the tools are what the records guarantee |
//! | I1, I5 | entries are dense, each names the one before, and the state moves along the diagram |
//! | I2 | one key is called by one run |
//! | budgets | what the tools did asks for no more than the budget, each call counted once |
//! | I6 | an epoch of a run has one writer, who owns it when it writes |
//!
//! I3, I4 and I7 are `verify`'s, at the end of every seed, with the rest once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use stepgate_core::action::CoreCall;
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::digest::Digest;
use stepgate_core::failure::Outcome;
use stepgate_core::ids::{ApprovalId, RunId};
use stepgate_core::journal::{Appended, Kind};
use stepgate_core::json::canonical;
use stepgate_core::lease::{Claim, Incarnation, Ownership};
use stepgate_core::machine::State;
use stepgate_core::ports::{ApprovalChange, StepCommit};
use stepgate_core::run::Word;
use stepgate_core::step::Answer;

use crate::environment::Environment;
use crate::locked;
use crate::trace::{number_of, short};

/// The book, which watches commits, effects and answers as they happen.
pub(crate) struct Ledger {
    env: Arc<Environment>,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    lives: BTreeMap<RunId, Life>,
    /// The run that was called under each key.
    called: BTreeMap<String, RunId>,
    /// Who wrote in each epoch of each run.
    writers: BTreeMap<(RunId, i64), Incarnation>,
    /// What was answered, by run.
    answers: BTreeMap<RunId, String>,
    /// What was answered to a proposal that binds its key.
    proposals: BTreeMap<(String, Digest), (RunId, String)>,
    /// How often the sandbox did each thing.
    sandbox_acts: BTreeMap<String, u32>,
    /// What the tools did, as they have it in their own books: what each key asked for.
    spent: BTreeMap<String, u64>,
    decided: BTreeSet<ApprovalId>,
    doubts: BTreeSet<RunId>,
    /// Agents that still wait for something.
    agents_busy: u64,
    /// Whether operators settle what is in doubt.
    operators_settle: bool,
}

/// What a person looks at who settles a run in doubt.
pub(crate) enum Doubt {
    /// The tool that was called under this key.
    Tool(String),
    /// The files, which tell how often it was done.
    Sandbox { acts: u32 },
}

/// A run as the book knows it.
struct Life {
    state: Option<State>,
    sequence_number: u64,
    entry_digest: Digest,
    is_called: bool,
    is_over: bool,
    key: Option<String>,
    /// Action and arguments.
    what: String,
    action: String,
}

impl Ledger {
    pub(crate) fn new(env: Arc<Environment>) -> Self {
        Self { env, book: Mutex::default() }
    }

    /// So many agents begin; whether operators settle what is in doubt.
    pub(crate) fn begin(&self, agents: u64, operators_settle: bool) {
        let mut book = locked(&self.book);
        book.agents_busy = agents;
        book.operators_settle = operators_settle;
    }

    /// One more agent waits for something.
    pub(crate) fn agent_begins(&self) {
        locked(&self.book).agents_busy += 1;
    }

    /// One agent waits for nothing more.
    pub(crate) fn agent_ends(&self) {
        locked(&self.book).agents_busy -= 1;
    }

    /// Recovery does not know what became of these.
    pub(crate) fn doubts(&self, runs: &[RunId]) {
        locked(&self.book).doubts.extend(runs);
    }

    /// Runs whose call is in doubt and that only a person can settle.
    pub(crate) fn to_settle(&self) -> Vec<(RunId, Doubt)> {
        locked(&self.book).to_settle()
    }

    /// Whether every run is over, or waits for a person who will not come.
    pub(crate) fn is_settled(&self) -> bool {
        locked(&self.book).is_settled()
    }

    /// How many runs there are.
    pub(crate) fn runs(&self) -> u64 {
        locked(&self.book).lives.len() as u64
    }

    /// Runs that hang, in words.
    pub(crate) fn hanging(&self) -> String {
        locked(&self.book).hanging()
    }

    /// How often the sandbox did each thing.
    pub(crate) fn sandbox_acts(&self) -> BTreeMap<String, u32> {
        locked(&self.book).sandbox_acts.clone()
    }

    /// What was answered, by run.
    pub(crate) fn answers(&self) -> BTreeMap<RunId, String> {
        locked(&self.book).answers.clone()
    }

    /// A node wrote to a run, which was owned like this before.
    pub(crate) fn committed(
        &self,
        commit: &StepCommit,
        claim: Option<Claim>,
        sender: Incarnation,
        before: Option<Ownership>,
    ) {
        let broken = locked(&self.book).committed(commit, claim, sender, before);
        self.report(broken);
    }

    /// A tool had its effect.
    pub(crate) fn tool_acted(&self, node: u64, run_id: RunId, key: &str, amount: u64) {
        self.env.note("EFFECT", node, number_of(run_id.as_uuid()), || {
            format!("{key} by {}", short(run_id))
        });
        let (may_act, spent) = {
            let mut book = locked(&self.book);
            book.spent.insert(key.to_owned(), amount);
            let may_act = book.lives.get(&run_id).is_some_and(Life::may_act);
            (may_act, book.spent.values().sum::<u64>())
        };
        if !may_act {
            self.env.violated(format!("run {} had an effect and no durable call", short(run_id)));
        }
        if let Some(budget) = self.env.weather.budget.filter(|budget| spent > *budget) {
            self.env.violated(format!("the tools did {spent}, and the budget is {budget}"));
        }
    }

    /// The sandbox changed.
    pub(crate) fn sandbox_acted(&self, node: u64, call: &CoreCall) {
        let what = described(call);
        let about = what.bytes().fold(0, |sum: u64, byte| sum.rotate_left(3) ^ u64::from(byte));
        self.env.note("EFFECT", node, about, || what.clone());
        let may_act = {
            let mut book = locked(&self.book);
            *book.sandbox_acts.entry(what.clone()).or_default() += 1;
            book.lives.values().any(|life| life.what == what && life.may_act())
        };
        if !may_act {
            self.env.violated(format!("`{what}` was done and no durable call asks for it"));
        }
    }

    /// An agent was answered.
    pub(crate) fn answered(&self, key: &str, content: Digest, answer: &Answer) {
        let about = number_of(answer.run_id.as_uuid());
        self.env.note("answer", 0, about, || {
            format!("{key}: {} for run {}", answer.word().as_str(), short(answer.run_id))
        });
        let broken = locked(&self.book).answered(key, content, answer);
        self.report(broken);
    }

    /// An operator was told that the decision was taken; this is what the approval says then.
    pub(crate) fn told_decided(
        &self,
        approval_id: ApprovalId,
        is_theirs: bool,
        status: ApprovalStatus,
    ) {
        self.env.note("decided", 0, number_of(approval_id.as_uuid()), || {
            format!("approval {approval_id} is {}", status.as_str())
        });
        if !is_theirs {
            self.env.violated(format!(
                "an operator was told to have decided on {approval_id}, and somebody else did"
            ));
        }
    }

    fn report(&self, broken: Vec<String>) {
        broken.into_iter().for_each(|broken| self.env.violated(broken));
    }
}

impl Book {
    /// Runs whose call is in doubt and that only a person can settle. An operator always comes for those of
    /// the sandbox: they keep others from its files.
    fn to_settle(&self) -> Vec<(RunId, Doubt)> {
        let open = self.doubts.iter().filter_map(|run_id| {
            let life = self.lives.get(run_id).filter(|life| !life.is_over)?;
            let doubt = match life.action.as_str() {
                "s.ask" if self.operators_settle => Doubt::Tool(life.key.clone()?),
                "WRITE_FILE" | "RENAME_FILE" => {
                    Doubt::Sandbox { acts: self.sandbox_acts.get(&life.what).copied().unwrap_or(0) }
                }
                _ => return None,
            };
            Some((*run_id, doubt))
        });
        open.collect()
    }

    /// Whether every run is over, or waits for a person who will not come.
    fn is_settled(&self) -> bool {
        let may_wait = |life: &Life| {
            !self.operators_settle && life.action == "s.ask" && life.state == Some(State::Executing)
        };
        self.agents_busy == 0 && self.lives.values().all(|life| life.is_over || may_wait(life))
    }

    /// Runs that hang, in words.
    fn hanging(&self) -> String {
        let open = self.lives.iter().filter(|(_, life)| !life.is_over);
        let said: Vec<_> = open
            .map(|(run_id, life)| format!("{} {:?} {}", short(*run_id), life.state, life.action))
            .collect();
        format!("{} agents wait; open runs: {}", self.agents_busy, said.join(", "))
    }

    /// A node wrote to a run.
    fn committed(
        &mut self,
        commit: &StepCommit,
        claim: Option<Claim>,
        sender: Incarnation,
        before: Option<Ownership>,
    ) -> Vec<String> {
        let mut broken = Vec::new();
        let run_id = commit.place.run_id;
        let name = short(run_id);
        let writer = claim.map_or(sender, |claim| claim.incarnation);
        let epoch = before.map_or(1, |held| held.epoch);
        if let Some(held) = before.filter(|_| commit.open.is_none()) {
            let has_epoch = claim.is_none_or(|claim| claim.epoch == held.epoch);
            if !has_epoch || held.owner.is_some_and(|owner| owner != writer) {
                broken.push(format!("I6: node {writer} wrote to run {name}, which it had lost"));
            }
        }
        if *self.writers.entry((run_id, epoch)).or_insert(writer) != writer {
            broken.push(format!("I6: two nodes wrote to run {name} in epoch {epoch}"));
        }
        if let Some(run) = &commit.open {
            let action = run.tool_name.clone().unwrap_or_default();
            let args = run.input_json.clone().unwrap_or_default();
            let life = Life {
                state: None,
                sequence_number: 0,
                entry_digest: Digest::ZERO,
                is_called: false,
                is_over: false,
                key: None,
                what: format!("{action} {args}"),
                action,
            };
            if self.lives.insert(run_id, life).is_some() {
                broken.push(format!("run {name} came into being twice"));
            }
        }
        let Some(life) = self.lives.get_mut(&run_id) else {
            broken.push(format!("run {name} was written to and never opened"));
            return broken;
        };
        if life.is_over {
            broken.push(format!("run {name} is over and was written to"));
        }
        for appended in &commit.entries {
            broken.extend(life.append(appended));
            if let (Kind::ToolCall, Some(key)) =
                (appended.entry.artifact_type, &appended.entry.idempotency_key)
            {
                let first = self.called.entry(key.to_string()).or_insert(run_id);
                if *first != run_id {
                    let first = short(*first);
                    broken.push(format!("I2: runs {first} and {name} were both called as {key}"));
                }
            }
        }
        if let Some(ApprovalChange::Decide(approval)) = &commit.approval
            && !self.decided.insert(approval.approval_id)
        {
            broken.push(format!("the approval of run {name} was decided twice"));
        }
        life.is_over |= commit.record.is_some();
        broken
    }

    fn answered(&mut self, key: &str, content: Digest, answer: &Answer) -> Vec<String> {
        let mut broken = Vec::new();
        let name = short(answer.run_id);
        let outcome = match answer.word() {
            Word::Notice(_) => return broken,
            Word::Outcome(outcome) => outcome,
        };
        if !self.lives.get(&answer.run_id).is_some_and(|life| life.is_over) {
            broken.push(format!("run {name} was answered and is not recorded"));
        }
        let body = answer.body();
        let first = self.answers.entry(answer.run_id).or_insert_with(|| body.clone());
        if *first != body {
            broken.push(format!("run {name} was answered `{first}`, then `{body}`"));
        }
        let binds = match outcome {
            Outcome::ValidationError => false,
            Outcome::Success | Outcome::Denied | Outcome::ExecutionError => true,
        };
        if binds {
            let place = (key.to_owned(), content);
            let said = (answer.run_id, body);
            let first = self.proposals.entry(place).or_insert_with(|| said.clone());
            if *first != said {
                let was = short(first.0);
                broken
                    .push(format!("I2: proposal {key} was answered by run {was}, then by {name}"));
            }
        }
        broken
    }
}

impl Life {
    fn append(&mut self, Appended { entry, .. }: &Appended) -> Option<String> {
        let is_next = entry.sequence_number == self.sequence_number + 1;
        let is_linked = entry.prev_entry_digest == self.entry_digest;
        let is_legal = match (self.state, entry.to_state) {
            (None, State::Pending)
            | (Some(State::Pending), State::Authorized | State::Denied)
            | (Some(State::Authorized), State::Executing)
            | (Some(State::Executing), State::Completed | State::Failed) => true,
            (_, _) => false,
        };
        let (from, to) = (self.state, entry.to_state);
        self.state = Some(entry.to_state);
        self.sequence_number = entry.sequence_number;
        self.entry_digest = entry.entry_digest;
        self.is_called |= entry.artifact_type == Kind::ToolCall;
        if let Some(key) = &entry.idempotency_key {
            self.key = Some(key.to_string());
        }
        let is_sound = is_next && is_linked && is_legal;
        (!is_sound).then(|| {
            let name = short(entry.trace_id);
            format!(
                "I1: run {name} went from {from:?} to {to:?} as entry {}",
                entry.sequence_number
            )
        })
    }

    fn may_act(&self) -> bool {
        self.is_called && self.state != Some(State::Denied)
    }
}

/// A core action with its arguments, as its run's row has them.
fn described(call: &CoreCall) -> String {
    let args = match call {
        CoreCall::Think => serde_json::json!({}),
        CoreCall::Finish { response } => serde_json::json!({ "response": response }),
        CoreCall::ReadFile { path }
        | CoreCall::ListFiles { path }
        | CoreCall::CreateDirectory { path }
        | CoreCall::DeleteFile { path } => serde_json::json!({ "path": path.as_str() }),
        CoreCall::WriteFile { path, content } => {
            serde_json::json!({ "content": content, "path": path.as_str() })
        }
        CoreCall::RenameFile { source, destination } => {
            serde_json::json!({ "destination": destination.as_str(), "source": source.as_str() })
        }
    };
    format!("{} {}", call.action().name(), canonical::text_of(&args))
}
