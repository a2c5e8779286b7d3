//! `verify`: recomputes everything and trusts nothing.
//!
//! Without saved heads it finds any change except a consistent rewrite of everything after it; with
//! heads that were saved elsewhere it finds that too.

mod archives;
pub(crate) mod budgets;
pub(crate) mod chain;
mod consents;
mod erasable;
mod labels;
pub(crate) mod run;

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::task::Poll;

use serde::{Deserialize, Serialize};

use crate::consent_cache::Recorded;
use crate::digest::Digest;
use crate::event::{Event, EventType};
use crate::gate::opening_payload;
use crate::idempotency::Binding;
use crate::ids::{RunId, SessionId};
use crate::json::Value;
use crate::ports::{Audited, Counts, Dossier, LinkedEvent, Moment, Store, StoreError};
use crate::session::{LinkKind, Session, Uniqueness};
use crate::system;

use archives::Archives;
use chain::Chains;
use erasable::Erasable;

pub use archives::{Archive, ArchiveFiles};

/// How often everything is read, where runs leave the store meanwhile.
const WALKS_MAX: usize = 5;
/// How many runs are read at a time.
const PAGE_RUNS: usize = 256;

/// How many events that belong to no run are read at a time.
const PAGE_EVENTS: usize = 1024;

/// Limit of the keys with more than one run that are reported.
const SHARED_KEYS_MAX: usize = 100;

/// A value that does not follow from the rest of the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where: table, run, entry.
    pub place: String,
    /// What.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(place: impl Into<String>, what: impl ToString) -> Self {
        Self { place: place.into(), what: what.to_string() }
    }
}

/// The end of a session's chain, as it is saved and compared later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedHead {
    /// The session.
    pub session_id: SessionId,
    /// Number of its last link.
    pub number: u64,
    /// Digest of its last link.
    pub digest: Digest,
}

/// The result of `verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Runs that were read.
    pub runs: u64,
    /// Journal entries that were recomputed.
    pub entries: u64,
    /// Runs that have left the store for archives.
    pub archived_runs: u64,
    /// Archives that the system session names.
    pub archives: u64,
    /// Archives whose files were read.
    pub archives_read: u64,
    /// Archives whose files are not there, where files were asked for.
    pub archives_missing: Vec<String>,
    /// The ends of all chains.
    pub heads: Vec<SavedHead>,
    /// The problems found. Empty means that everything verifies.
    pub problems: Vec<Problem>,
}

/// Replays the whole store as it was at the start, and compares it with saved heads. `progress` gets the
/// number of runs so far.
///
/// The store may be written to meanwhile. Rows are counted, and chains followed, up to the moment of the
/// start; later additions are left to the next `verify`. A run that went on since then is checked as it is
/// when it is read.
pub async fn verify(
    store: &dyn Store,
    saved: &[SavedHead],
    progress: impl FnMut(u64),
) -> Result<Report, StoreError> {
    verify_with(store, None, saved, progress).await
}

/// The same, with the files of archives. Where runs leave the store meanwhile, what was read before and after does not
/// fit together: then everything is read again.
pub async fn verify_with(
    store: &dyn Store,
    files: Option<&dyn ArchiveFiles>,
    saved: &[SavedHead],
    mut progress: impl FnMut(u64),
) -> Result<Report, StoreError> {
    for _ in 0..WALKS_MAX {
        let archives = archives_named(store).await;
        let report = walk(store, files, saved, &mut progress).await?;
        if report.problems.is_empty() || archives_named(store).await == archives {
            return Ok(report);
        }
    }
    let why = "runs left the store for archives while it was verified: verify again later";
    Err(StoreError::Unavailable(why.into()))
}

/// How many archives the system session names; none where that cannot be read.
async fn archives_named(store: &dyn Store) -> Option<usize> {
    let events = system::events_since(store, &[EventType::RunsArchived], 0).await;
    events.ok().map(|events| events.len())
}

async fn walk(
    store: &dyn Store,
    files: Option<&dyn ArchiveFiles>,
    saved: &[SavedHead],
    progress: impl FnMut(u64),
) -> Result<Report, StoreError> {
    let mut walk = Walk::default();
    // First: damage may end the walk, and this report then says where it is.
    for line in store.damage().await? {
        walk.problems.push(Problem::new("database", line));
    }
    match walk.everything(store, files, saved, progress).await {
        Ok(()) => {}
        // A missing index, for example, is a problem that ends the walk.
        Err(StoreError::Broken(why) | StoreError::Unavailable(why))
            if !walk.problems.is_empty() =>
        {
            walk.problems.push(Problem::new("database", format!("cannot be read on: {why}")));
        }
        Err(error) => return Err(error),
    }
    Ok(Report {
        runs: walk.seen.runs,
        entries: walk.seen.entries,
        archived_runs: walk.archives.runs(),
        archives: walk.archives.len(),
        archives_read: walk.archives.read,
        archives_missing: walk.archives.missing,
        heads: walk.heads,
        problems: walk.problems,
    })
}

#[derive(Default)]
struct Walk {
    seen: Counts,
    chains: Chains,
    /// What the runs of a session imply about it.
    steps: HashMap<SessionId, Steps>,
    /// Hashes of the keys, 8 bytes a run. Equal hashes are compared by the full key.
    keys: Vec<u64>,
    /// Grants and votes that the system session records.
    consents: Recorded,
    /// Labels that events added and removed.
    labels: labels::Changes,
    /// What calls took from budgets.
    ledger: budgets::Ledger,
    /// Runs that do not follow from those. They may have gone on since the events were read.
    suspects: Vec<RunId>,
    /// Session openings recorded in the system session, by session id.
    openings: HashMap<String, Vec<Value>>,
    archives: Archives,
    erasable: Erasable,
    heads: Vec<SavedHead>,
    problems: Vec<Problem>,
}

/// The runs of one session, walked from the newest.
#[derive(Default)]
struct Steps {
    /// The number of the first link of the run that was walked last.
    first_link: Option<u64>,
    /// The highest step index.
    last_index: u64,
}

impl Walk {
    async fn everything(
        &mut self,
        store: &dyn Store,
        files: Option<&dyn ArchiveFiles>,
        saved: &[SavedHead],
        progress: impl FnMut(u64),
    ) -> Result<(), StoreError> {
        let Moment { sessions, counts, balances, last } = store.moment().await?;
        if let Some(consents) = self.readable("events", Recorded::of(store).await)? {
            self.consents = consents;
        }
        if let Some(labels) = self.readable("events", labels::Changes::of(store).await)? {
            self.labels = labels;
        }
        if let Some(erasable) = self.readable("events", Erasable::of(store).await)? {
            self.erasable = erasable;
        }
        self.runs(store, &last, progress).await?;
        self.suspects(store).await?;
        self.kept_runs(store).await?;
        self.shared_keys(store).await?;
        self.loose_events(store, last.events).await?;
        self.archives(files);
        self.erasable(store).await?;
        if let Some(sessions) = self.readable("sessions", sessions)? {
            self.sessions(store, &sessions, saved).await?;
        }
        if let Some(balances) = self.readable("budget_accounts", balances)? {
            let ledger = std::mem::take(&mut self.ledger);
            self.problems.extend(ledger.against(&balances));
        }
        if let Some(counts) = self.readable("counts", counts)? {
            self.compare_counts(&counts);
        }
        Ok(())
    }

    async fn runs(
        &mut self,
        store: &dyn Store,
        last: &Counts,
        mut progress: impl FnMut(u64),
    ) -> Result<(), StoreError> {
        let mut page = store.audit(last, None, PAGE_RUNS).await;
        loop {
            let Some(runs) = self.readable("tool_runs", page)? else { return Ok(()) };
            let Some(before) = runs.last().map(|audited| audited.run_id) else { return Ok(()) };
            let mut checked: Result<(), StoreError> = Ok(());
            page = while_reading(store.audit(last, Some(before), PAGE_RUNS), || {
                checked = runs.into_iter().try_for_each(|audited| {
                    self.audited(audited)?;
                    progress(self.seen.runs);
                    Ok(())
                });
            })
            .await;
            checked?;
        }
    }

    fn audited(&mut self, audited: Audited) -> Result<(), StoreError> {
        let Audited { run_id, dossier, rows } = audited;
        let place = format!("run {run_id}");
        match self.readable(&place, dossier)? {
            Some(Some(dossier)) => self.run(&dossier, &rows),
            Some(None) => self.problems.push(Problem::new(place, "is gone")),
            None => {}
        }
        Ok(())
    }

    /// Checks the suspects against the grants, votes and labels of now.
    async fn suspects(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        self.problems.append(&mut self.labels.problems);
        if self.suspects.is_empty() {
            return Ok(());
        }
        let consents = self.readable("events", Recorded::of(store).await)?;
        let labels = self.readable("events", labels::Changes::of(store).await)?;
        let (Some(consents), Some(labels)) = (consents, labels) else { return Ok(()) };
        for run_id in std::mem::take(&mut self.suspects) {
            let dossier = self.readable(&format!("run {run_id}"), store.dossier(run_id).await)?;
            if let Some(Some(dossier)) = dossier {
                self.problems.extend(consents::check(&dossier, &consents));
                self.problems.extend(labels::check(&dossier, &labels));
            }
        }
        Ok(())
    }

    /// I2: a key has one trace. Each run names its key, so duplicates show among the keys themselves.
    async fn shared_keys(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        self.keys.sort_unstable();
        if self.keys.is_sorted_by(|key, next| key < next) {
            return Ok(());
        }
        let shared = self.readable("bindings", store.shared_keys(SHARED_KEYS_MAX).await)?;
        for key in shared.unwrap_or_default() {
            let what =
                format!("key `{key}` has more than one run: it may have been executed twice");
            self.problems.push(Problem::new("bindings", what));
        }
        Ok(())
    }

    /// A row that cannot be read back was changed: that is a problem. An unavailable store is an error.
    fn readable<T>(
        &mut self,
        place: &str,
        read: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match read {
            Err(StoreError::State(error)) => {
                self.problems.push(Problem::new(place, error));
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    fn run(&mut self, dossier: &Dossier, rows: &Counts) {
        self.seen.runs += rows.runs;
        self.seen.entries += rows.entries;
        self.seen.records += rows.records;
        self.seen.checkpoints += rows.checkpoints;
        self.seen.events += rows.events;
        self.seen.approvals += rows.approvals;
        self.seen.bindings += rows.bindings;
        if let Some(binding) = &dossier.binding {
            self.key(binding);
        }
        self.ledger.add(dossier, rows.events);
        self.erasable.add(dossier);
        self.problems.extend(run::check(dossier));
        let mut suspicious = consents::check(dossier, &self.consents);
        suspicious.extend(labels::check(dossier, &self.labels));
        if !suspicious.is_empty() {
            self.suspects.push(dossier.run.arrival.run_id);
        }
        let run_id = dossier.run.arrival.run_id;
        let session_id = dossier.run.arrival.session_id;
        let links = run::links(dossier);
        self.step(dossier, links.iter().map(|(_, link, _)| link.number).min());
        for (kind, link, body) in links {
            let place = Some(run_id);
            self.problems.extend(self.chains.add(session_id, kind, place, body, link));
        }
    }

    fn key(&mut self, binding: &Binding) {
        let mut hasher = DefaultHasher::new();
        binding.idempotency_key.hash(&mut hasher);
        self.keys.push(hasher.finish());
    }

    /// A run is created with its first link, so within a session rows and links have the same order.
    fn step(&mut self, dossier: &Dossier, first_link: Option<u64>) {
        let arrival = &dossier.run.arrival;
        let steps = self.steps.entry(arrival.session_id).or_default();
        steps.last_index = steps.last_index.max(arrival.step_index);
        if let (Some(newer), Some(older)) = (steps.first_link, first_link)
            && older >= newer
        {
            let place = place_of("tool_runs", arrival.run_id);
            self.problems.push(Problem::new(place, "position does not follow from the links"));
        }
        steps.first_link = first_link.or(steps.first_link);
    }

    async fn loose_events(&mut self, store: &dyn Store, last: u64) -> Result<(), StoreError> {
        let mut before: HashMap<SessionId, u64> = HashMap::new();
        let mut after = 0;
        while after < last {
            let page = self.readable("events", store.loose_page(after, PAGE_EVENTS).await)?;
            let page = page.unwrap_or_default();
            let Some(newest) = page.last() else { return Ok(()) };
            after = newest.position;
            for linked in page.into_iter().take_while(|linked| linked.position <= last) {
                self.loose_event(linked, &mut before);
            }
        }
        Ok(())
    }

    fn loose_event(&mut self, linked: LinkedEvent, before: &mut HashMap<SessionId, u64>) {
        self.seen.events += 1;
        let LinkedEvent { position: _, event, link } = linked;
        let place = || format!("event {}", event.event_id);
        let Some(link) = link else {
            self.problems.push(Problem::new(place(), "has no link"));
            return self.opening(event);
        };
        if before.insert(event.session_id, link.number).is_some_and(|it| it >= link.number) {
            self.problems.push(Problem::new(place(), "position does not follow from the links"));
        }
        let body = Digest::of(&event);
        let added = self.chains.add(event.session_id, LinkKind::Event, event.run_id, body, link);
        self.problems.extend(added);
        self.opening(event);
    }

    fn opening(&mut self, event: Event) {
        self.archive_event(&event);
        if event.event_type == EventType::SessionOpened {
            let named = event.payload.get("session_id").and_then(|id| id.as_str()).unwrap_or("?");
            self.openings.entry(named.to_owned()).or_default().push(event.payload);
        }
    }

    async fn sessions(
        &mut self,
        store: &dyn Store,
        sessions: &[Session],
        saved: &[SavedHead],
    ) -> Result<(), StoreError> {
        self.seen.sessions = u64::try_from(sessions.len()).unwrap_or(u64::MAX);
        let mut sole = HashSet::new();
        let mut ahead = Vec::new();
        for session in sessions {
            ahead.extend(self.session(session));
            let is_another = match session.kind.uniqueness() {
                Uniqueness::InStore => !sole.insert((session.kind, None)),
                Uniqueness::ForPrincipal => {
                    let whose = (&session.principal_id, session.node_id.as_deref());
                    !sole.insert((session.kind, Some(whose)))
                }
                Uniqueness::None => false,
            };
            if is_another {
                let place = format!("session {}", session.session_id);
                let what = format!("is another {} session", session.kind.as_str());
                self.problems.push(Problem::new(place, what));
            }
        }
        let known: HashSet<SessionId> = sessions.iter().map(|session| session.session_id).collect();
        self.problems.extend(self.chains.outside(&known));
        for named in self.openings.keys() {
            if !named.parse().is_ok_and(|session_id| known.contains(&session_id)) {
                let place = format!("session {named}");
                self.problems.push(Problem::new(place, "was opened and is gone"));
            }
        }
        self.problems.extend(self.chains.against(saved));
        self.ahead(store, ahead).await
    }

    /// The links of these sessions go beyond the end that their row had at the start. If the chain has grown
    /// since, the session's row says so now.
    async fn ahead(
        &mut self,
        store: &dyn Store,
        ahead: Vec<(SessionId, u64)>,
    ) -> Result<(), StoreError> {
        if ahead.is_empty() {
            return Ok(());
        }
        let sessions = self.readable("sessions", store.sessions().await)?;
        let Some(sessions) = sessions else { return Ok(()) };
        let ends: HashMap<SessionId, u64> =
            sessions.iter().map(|session| (session.session_id, session.head.number)).collect();
        for (session_id, number) in ahead {
            let end = ends.get(&session_id).copied().unwrap_or(0);
            if number > end {
                let what = format!("ends at link {end} and its links end at {number}");
                self.problems.push(Problem::new(format!("session {session_id}"), what));
            }
        }
        Ok(())
    }

    /// Checks a session. Returns the number of its last link, where that is after the end that its row had.
    fn session(&mut self, session: &Session) -> Option<(SessionId, u64)> {
        let (problems, ahead) = self.chains.check(session);
        self.problems.extend(problems);
        let told = self.openings.get(&session.session_id.to_string());
        if !told.is_some_and(|told| told.contains(&opening_payload(session))) {
            let place = format!("session {}", session.session_id);
            self.problems.push(Problem::new(place, "is not as the system session says"));
        }
        let last_index = self.steps.get(&session.session_id).map_or(0, |steps| steps.last_index);
        if session.last_step_index != last_index {
            let place = format!("session {}", session.session_id);
            let what = format!(
                "last_step_index is {} and that of its runs {last_index}",
                session.last_step_index
            );
            self.problems.push(Problem::new(place, what));
        }
        self.heads.push(SavedHead {
            session_id: session.session_id,
            number: session.head.number,
            digest: session.head.digest,
        });
        ahead.map(|number| (session.session_id, number))
    }

    /// Rows that belong to no run were not written by Stepgate.
    fn compare_counts(&mut self, counts: &Counts) {
        let pairs = [
            ("tool_runs", self.seen.runs, counts.runs),
            ("journal", self.seen.entries, counts.entries),
            ("records", self.seen.records, counts.records),
            ("checkpoints", self.seen.checkpoints, counts.checkpoints),
            ("events", self.seen.events, counts.events),
            ("approvals", self.seen.approvals, counts.approvals),
            ("effects", self.seen.bindings, counts.bindings),
            ("sessions", self.seen.sessions, counts.sessions),
        ];
        for (table, seen, stored) in pairs {
            if seen != stored {
                let what = format!("{stored} rows, of which {seen} are accounted for");
                self.problems.push(Problem::new(table, what));
            }
        }
    }
}

/// Does the work while the store reads on its own threads.
async fn while_reading<T>(reading: impl Future<Output = T>, work: impl FnOnce()) -> T {
    let mut reading = pin!(reading);
    // The first poll starts the read.
    let begun = poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await;
    work();
    match begun {
        Poll::Ready(read) => read,
        Poll::Pending => reading.await,
    }
}

/// The place of a problem in a run.
pub(crate) fn place_of(table: &str, run_id: RunId) -> String {
    format!("{table} of run {run_id}")
}
