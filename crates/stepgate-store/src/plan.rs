//! Decides what a write changes, before anything is written.
//!
//! [`plan`] checks every condition of a write against the few facts that a [`View`] gives of the store,
//! numbers the session links, and describes the rows. It never writes, so a refused write leaves nothing
//! behind, on any engine.

mod check;

use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, BudgetChange};
use stepgate_core::decimal::Decimal;
use stepgate_core::digest::Digest;
use stepgate_core::event::{self, Event};
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, IdempotencyKey, RunId, SessionId};
use stepgate_core::journal::{Appended, Checkpoint, StateCode, StateError, Tail};
use stepgate_core::ports::{
    ApprovalChange, ArchiveCommit, EraseCommit, KeyChange, Place, StepCommit, StoreError,
};
use stepgate_core::record::Record;
use stepgate_core::run::{Ending, Run, Status};
use stepgate_core::session::{self, Head, Link, LinkKind, Session, Uniqueness};

use crate::Result;

/// One write, as an engine queues it.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// Everything of one step that becomes durable together.
    Step(Box<Step>),
    /// An event outside any step.
    Event(Box<Event>),
    /// A session, with its event in the system session.
    Session(Box<Session>, Box<Event>),
    /// Runs that leave the store, with their event in the system session.
    Archive(Box<ArchiveCommit>),
    /// Erasable arguments that are erased, with their event in the system session.
    Erase(Box<EraseCommit>),
}

impl Write {
    /// The commit of a step, where it is one.
    pub(crate) fn commit(&self) -> Option<&StepCommit> {
        match self {
            Self::Step(step) => Some(step.commit()),
            Self::Event(_) | Self::Session(..) | Self::Archive(_) | Self::Erase(_) => None,
        }
    }
}

/// A step's commit, with every digest that can be computed without the store. They are computed in advance,
/// to save time on the single thread that writes.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    commit: StepCommit,
    /// The first entry whose digest is not that of its fields.
    unhashed: Option<u64>,
    /// Whether its checkpoint, if it has one, is consistent in itself.
    has_sound_checkpoint: bool,
    /// Digest of the arrival and of the events, where an OPEN link will need them.
    opening: Option<(Digest, Digest)>,
    /// What it adds to its trace, packed as SQL engines store it.
    packed: Option<Vec<u8>>,
}

impl Step {
    /// Computes the digests of a commit, on the caller's thread.
    pub(crate) fn of(commit: StepCommit, packed: Option<Vec<u8>>) -> Self {
        let mut entries = commit.entries.iter().map(|appended| &appended.entry);
        let unhashed = entries.find(|entry| !entry.has_its_digest());
        let opening = match (&commit.open, &commit.record) {
            (Some(run), None) => Some((run.arrival_digest(), event::digest_of(&commit.events))),
            (Some(_) | None, _) => None,
        };
        let unhashed = unhashed.map(|entry| entry.sequence_number);
        let has_sound_checkpoint = commit.checkpoint.as_ref().is_none_or(Checkpoint::is_sound);
        Self { unhashed, has_sound_checkpoint, opening, packed, commit }
    }

    pub(crate) fn commit(&self) -> &StepCommit {
        &self.commit
    }

    /// Whether it has the first entry of its journal.
    pub(crate) fn has_genesis(&self) -> bool {
        let first = self.commit.entries.first();
        first.is_some_and(|appended| appended.entry.sequence_number == 1)
    }
}

/// The state of a trace: what a commit on it is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) session_id: SessionId,
    pub(crate) status: Status,
    pub(crate) tail: Tail,
    /// Whether its original payload is stored apart, to be erased with the record. It is known from the
    /// opening on, so that the record of every other run costs no further statement.
    pub(crate) is_sealed: bool,
    /// Whether its own row has the binding of its key. The key of a run of an older version is in `effects`.
    pub(crate) has_own_key: bool,
}

/// The state of a session: the changing part of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) head: Head,
    /// The highest step index that is durable.
    pub(crate) last_step_index: u64,
}

impl Chain {
    /// A session without links and steps.
    pub(crate) const EMPTY: Self = Self { head: Head::EMPTY, last_step_index: 0 };
}

/// The facts that a plan may ask for. All of them are found by a key.
pub(crate) trait View {
    /// The state of a trace; none where there is no such run.
    fn trace(&mut self, run_id: RunId) -> Result<Option<Trace>>;

    /// The state of a session; none where there is no such session.
    fn chain(&mut self, session_id: SessionId) -> Result<Option<Chain>>;

    /// A whole session, for opening it again.
    fn session(&mut self, session_id: SessionId) -> Result<Option<Session>>;

    /// The existing session that prevents opening this one, where its kind is unique: in the store, or for
    /// its principal.
    fn only_session_like(&mut self, asked: &Session) -> Result<Option<Session>>;

    /// A whole run, for a genesis that comes after the commit that opened the run.
    fn run(&mut self, run_id: RunId) -> Result<Option<Run>>;

    /// What a key is bound to.
    fn binding(&mut self, key: &IdempotencyKey) -> Result<Option<Binding>>;

    /// Whether a key is bound at all: the question of every step.
    fn is_bound(&mut self, key: &IdempotencyKey) -> Result<bool> {
        Ok(self.binding(key)?.is_some())
    }

    /// Whether this trace has an effect in flight under this key.
    fn is_in_flight(&mut self, key: &IdempotencyKey, run_id: RunId) -> Result<bool> {
        Ok(self.binding(key)?.is_some_and(|binding| binding.is_in_flight(run_id)))
    }

    /// Whether a trace has bound a key.
    fn has_key(&mut self, run_id: RunId) -> Result<bool>;

    fn approval(&mut self, approval_id: ApprovalId) -> Result<Option<Approval>>;

    /// Whether a run has asked for an approval.
    fn has_approval(&mut self, run_id: RunId) -> Result<bool>;

    /// How much of an account is used; none where it was never charged.
    fn used(&mut self, account: &Account) -> Result<Option<Decimal>>;

    /// Whether a trace has a checkpoint at this sequence number.
    fn has_checkpoint(&mut self, run_id: RunId, number: u64) -> Result<bool>;

    /// The first of these runs that is not over, or that has another number of events: it may not leave the store.
    fn changed_run(&mut self, runs: &[ArchivedRun]) -> Result<Option<RunId>>;
}

/// The rows of a write. An engine writes them unchanged.
#[derive(Debug, Default)]
pub(crate) struct Rows<'a> {
    /// A new session, with an empty chain.
    pub(crate) session: Option<&'a Session>,
    pub(crate) run: Option<NewRun<'a>>,
    /// Entries, with the OPEN link in the genesis row.
    pub(crate) entries: Vec<(&'a Appended, Option<Link>)>,
    pub(crate) checkpoint: Option<&'a Checkpoint>,
    pub(crate) approval: Option<&'a ApprovalChange>,
    /// A key that is bound or settled. [`NewRun`] has the binding as well.
    pub(crate) key: Option<&'a KeyChange>,
    pub(crate) change: Option<RunChange<'a>>,
    /// Accounts of budgets that change, each once.
    pub(crate) accounts: Vec<AccountChange<'a>>,
    /// Events, with the links of those that no OPEN or CLOSE covers.
    pub(crate) events: Vec<(&'a Event, Option<Link>)>,
    /// An original payload that is stored apart, or erased.
    pub(crate) sealed: Option<SealedChange<'a>>,
    /// Erasable arguments of a new run.
    pub(crate) erasable: Option<(Place, &'a [u8])>,
    /// The runs whose erasable arguments are erased.
    pub(crate) erased: &'a [RunId],
    pub(crate) record: Option<(&'a Record, Link)>,
    /// Entries, checkpoint and record, as SQL engines store them.
    pub(crate) packed: Option<&'a [u8]>,
    /// Runs that leave the store.
    pub(crate) archived: &'a [ArchivedRun],
    /// The state of the trace afterwards.
    pub(crate) trace: Option<(RunId, Trace)>,
    /// The state of the session afterwards.
    pub(crate) chain: Option<(SessionId, Chain)>,
    /// The session to return, where one was to be opened.
    pub(crate) answer: Option<Session>,
}

/// A new row of `tool_runs`, which may have ended already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRun<'a> {
    pub(crate) run: &'a Run,
    /// The status after the whole commit.
    pub(crate) status: Status,
    /// The ending, where the same commit has the record.
    pub(crate) ending: Option<&'a Ending>,
    /// The binding of its key, where the same commit binds one.
    pub(crate) binding: Option<&'a Binding>,
}

/// The change to a row of `tool_runs`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunChange<'a> {
    /// It continues with this status.
    Status(RunId, Status),
    /// It ends.
    End(&'a Record),
}

/// The change to an account of a budget.
#[derive(Clone, Debug)]
pub(crate) struct AccountChange<'a> {
    pub(crate) account: Account,
    pub(crate) change: &'a BudgetChange,
    /// What was used before; none where there is no row yet.
    pub(crate) before: Option<Decimal>,
    pub(crate) after: Decimal,
}

/// The change to an original payload that is stored apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SealedChange<'a> {
    /// It is kept until the record is written.
    Keep(RunId, &'a [u8]),
    /// The record is written.
    Erase(RunId),
}

impl Rows<'_> {
    /// Whether there is anything to write.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            session,
            run,
            entries,
            checkpoint,
            approval,
            key,
            change,
            accounts,
            events,
            sealed,
            erasable,
            erased,
            record,
            packed: _,
            archived,
            trace: _,
            chain: _,
            answer: _,
        } = self;
        session.is_none()
            && run.is_none()
            && entries.is_empty()
            && checkpoint.is_none()
            && approval.is_none()
            && key.is_none()
            && change.is_none()
            && accounts.is_empty()
            && events.is_empty()
            && sealed.is_none()
            && erasable.is_none()
            && erased.is_empty()
            && record.is_none()
            && archived.is_empty()
    }
}

/// Decides a write: its rows, or why nothing is written.
pub(crate) fn plan<'a>(write: &'a Write, view: &mut impl View) -> Result<Rows<'a>> {
    match write {
        Write::Step(step) => plan_step(step, view),
        Write::Event(event) => plan_event(event, view),
        Write::Session(session, event) => plan_session(session, event, view),
        Write::Archive(commit) => plan_archive(commit, view),
        Write::Erase(commit) => plan_erase(commit, view),
    }
}

fn plan_step<'a>(step: &'a Step, view: &mut impl View) -> Result<Rows<'a>> {
    let commit = &step.commit;
    let place = commit.place;
    let chain = known_chain(place.session_id, view)?;
    let before = view.trace(place.run_id)?;
    check::is_about_its_place(commit)?;
    let tail = check::journal_goes_on(commit, step.unhashed, before.as_ref())?;
    let status = check::status_after(commit, before.as_ref(), &tail)?;
    check::checkpoint_fits(commit, step.has_sound_checkpoint, &tail, view)?;
    check::key_is_free(commit, view)?;
    check::approval_is_open(commit, view)?;
    check::sealed_with_its_run(commit)?;
    let accounts = check::budgets_allow(commit, view)?;

    let record = commit.record.as_ref();
    let mut links = Linking::new(place.session_id, chain.head);
    let mut rows = Rows {
        run: commit.open.as_ref().map(|run| NewRun {
            run,
            status,
            ending: record.map(|record| &record.ending),
            binding: bound_by(commit),
        }),
        entries: commit.entries.iter().map(|entry| (entry, None)).collect(),
        checkpoint: commit.checkpoint.as_ref(),
        approval: commit.approval.as_ref(),
        key: commit.key.as_ref(),
        change: change_of(commit),
        accounts,
        sealed: sealed_change_of(commit, before.as_ref()),
        erasable: commit.erasable.as_deref().map(|arguments| (place, arguments)),
        events: commit.events.iter().map(|event| (event, None)).collect(),
        packed: step.packed.as_deref(),
        ..Rows::default()
    };
    link_step(step, view, &mut links, &mut rows)?;
    let is_sealed = match rows.sealed {
        Some(SealedChange::Keep(..)) => true,
        Some(SealedChange::Erase(_)) => false,
        None => before.is_some_and(|trace| trace.is_sealed),
    };
    let had_own_key = before.is_some_and(|trace| trace.has_own_key);
    let has_own_key = had_own_key || bound_by(commit).is_some();
    let trace = Trace { session_id: place.session_id, status, tail, is_sealed, has_own_key };
    rows.trace = Some((place.run_id, trace));
    let opened_index = commit.open.as_ref().map_or(0, |run| run.arrival.step_index);
    let after =
        Chain { head: links.head, last_step_index: chain.last_step_index.max(opened_index) };
    rows.chain = (after != chain).then_some((place.session_id, after));
    Ok(rows)
}

/// The binding that a commit adds.
fn bound_by(commit: &StepCommit) -> Option<&Binding> {
    match &commit.key {
        Some(KeyChange::Bind(binding)) => Some(binding),
        Some(KeyChange::Settle(_)) | None => None,
    }
}

/// The change to a run that existed before this commit.
fn change_of(commit: &StepCommit) -> Option<RunChange<'_>> {
    if commit.open.is_some() {
        return None;
    }
    match (&commit.record, commit.status) {
        (Some(record), _) => Some(RunChange::End(record)),
        (None, Some(status)) => Some(RunChange::Status(commit.place.run_id, status)),
        (None, None) => None,
    }
}

/// A payload is stored from the opening to the record. Where both come in one commit, it is never written.
fn sealed_change_of<'a>(
    commit: &'a StepCommit,
    before: Option<&Trace>,
) -> Option<SealedChange<'a>> {
    let run_id = commit.place.run_id;
    let was_sealed = before.is_some_and(|trace| trace.is_sealed);
    match (&commit.record, &commit.sealed) {
        (Some(_), _) => was_sealed.then_some(SealedChange::Erase(run_id)),
        (None, Some(payload)) => Some(SealedChange::Keep(run_id, payload)),
        (None, None) => None,
    }
}

/// Links a commit into its session: one CLOSE, or one OPEN, or an EVENT for each event.
fn link_step<'a>(
    step: &'a Step,
    view: &mut impl View,
    links: &mut Linking,
    rows: &mut Rows<'a>,
) -> Result<()> {
    let commit = &step.commit;
    let run_id = commit.place.run_id;
    if let Some(record) = &commit.record {
        let link = links.add(LinkKind::Close, Some(run_id), record.digest);
        rows.record = Some((record, link));
        return Ok(());
    }
    let genesis =
        rows.entries.first_mut().filter(|(appended, _)| appended.entry.sequence_number == 1);
    if let Some((genesis, link)) = genesis {
        let (arrival, events) = match step.opening {
            Some(opening) => opening,
            None => {
                let run = view.run(run_id)?.ok_or_else(|| check::no_run(run_id))?;
                (run.arrival_digest(), event::digest_of(&commit.events))
            }
        };
        let body = session::open_body(genesis.entry.entry_digest, arrival, events);
        *link = Some(links.add(LinkKind::Open, Some(run_id), body));
        return Ok(());
    }
    for (event, link) in &mut rows.events {
        *link = Some(links.add(LinkKind::Event, event.run_id, Digest::of(event)));
    }
    Ok(())
}

fn plan_event<'a>(event: &'a Event, view: &mut impl View) -> Result<Rows<'a>> {
    let chain = known_chain(event.session_id, view)?;
    if let Some(run_id) = event.run_id
        && view.trace(run_id)?.is_none()
    {
        return Err(check::no_run(run_id));
    }
    Ok(event_rows(event, chain))
}

fn plan_session<'a>(
    session: &'a Session,
    event: &'a Event,
    view: &mut impl View,
) -> Result<Rows<'a>> {
    if let Some(there) = session_there(session, view)? {
        // To the caller, another principal's session does not exist.
        if there.principal_id != session.principal_id {
            return Err(StoreError::UnknownSession(session.session_id));
        }
        // The session's row lags behind its chain where earlier writes of the batch have changed it.
        let Chain { head, last_step_index } = known_chain(there.session_id, view)?;
        let answer = Some(Session { head, last_step_index, ..there });
        return Ok(Rows { answer, ..Rows::default() });
    }
    // The system session chains its own opening.
    let opens_itself = event.session_id == session.session_id;
    let chain = if opens_itself { Chain::EMPTY } else { known_chain(event.session_id, view)? };
    let rows = event_rows(event, chain);
    let head = match rows.chain {
        Some((_, chain)) if opens_itself => chain.head,
        Some(_) | None => Head::EMPTY,
    };
    let answer = Session { head, last_step_index: 0, ..session.clone() };
    Ok(Rows { session: Some(session), answer: Some(answer), ..rows })
}

fn plan_archive<'a>(commit: &'a ArchiveCommit, view: &mut impl View) -> Result<Rows<'a>> {
    let chain = chain_at(commit.expected, &commit.event, view)?;
    if let Some(run_id) = view.changed_run(&commit.runs)? {
        let detail = format!("run {run_id} is not as it was archived");
        return Err(refusal(StateCode::InvalidTransition, detail));
    }
    Ok(Rows { archived: &commit.runs, ..event_rows(&commit.event, chain) })
}

fn plan_erase<'a>(commit: &'a EraseCommit, view: &mut impl View) -> Result<Rows<'a>> {
    let chain = chain_at(commit.expected, &commit.event, view)?;
    Ok(Rows { erased: &commit.runs, ..event_rows(&commit.event, chain) })
}

/// The chain that an event goes into, where nothing was added since its end was read.
fn chain_at(expected: Head, event: &Event, view: &mut impl View) -> Result<Chain> {
    let chain = known_chain(event.session_id, view)?;
    if chain.head != expected {
        let detail = "the system session has gone on";
        return Err(refusal(StateCode::ConcurrentExecution, detail));
    }
    Ok(chain)
}

/// The existing session that answers a request to open one: the same, or the only one of its kind.
fn session_there(asked: &Session, view: &mut impl View) -> Result<Option<Session>> {
    match view.session(asked.session_id)? {
        Some(same) => Ok(Some(same)),
        None => view.only_session_like(asked),
    }
}

/// Whether an existing session prevents opening another: its kind is unique in the store, or for each
/// principal on each node.
pub(crate) fn is_only_one(there: &Session, asked: &Session) -> bool {
    there.kind == asked.kind
        && match asked.kind.uniqueness() {
            Uniqueness::InStore => true,
            Uniqueness::ForPrincipal => {
                there.principal_id == asked.principal_id && there.node_id == asked.node_id
            }
            Uniqueness::None => false,
        }
}

fn event_rows(event: &Event, chain: Chain) -> Rows<'_> {
    let mut links = Linking::new(event.session_id, chain.head);
    let link = links.add(LinkKind::Event, event.run_id, Digest::of(event));
    let after = Chain { head: links.head, ..chain };
    Rows {
        events: vec![(event, Some(link))],
        chain: Some((event.session_id, after)),
        ..Rows::default()
    }
}

fn known_chain(session_id: SessionId, view: &mut impl View) -> Result<Chain> {
    view.chain(session_id)?.ok_or(StoreError::UnknownSession(session_id))
}

/// The answer to a write: the session, where one was to be opened.
pub(crate) type WriteResult = Result<Option<Session>>;

/// A refusal with its code. Nothing was written.
pub(crate) fn refusal(code: StateCode, detail: impl Into<String>) -> StoreError {
    StoreError::State(StateError::new(code, detail))
}

/// The end of a session's chain while links are added to it.
struct Linking {
    session_id: SessionId,
    head: Head,
}

impl Linking {
    fn new(session_id: SessionId, head: Head) -> Self {
        Self { session_id, head }
    }

    fn add(&mut self, kind: LinkKind, run_id: Option<RunId>, body: Digest) -> Link {
        let link = Link::after(&self.head, self.session_id, kind, run_id, body);
        self.head = link.head();
        link
    }
}
