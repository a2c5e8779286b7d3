//! `verify`: everything recomputed, nothing trusted.
//!
//! Without saved heads it finds any change except a consistent rewrite of everything after it; with
//! heads that were saved elsewhere it finds that too.

mod chain;
pub(crate) mod run;

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::event::EventType;
use crate::gate::opening_payload;
use crate::ids::{RunId, SessionId};
use crate::ports::{Counts, Dossier, Store, StoreError};
use crate::session::{LinkKind, Session, Uniqueness};

use chain::Chains;

/// How many runs are read at a time.
const PAGE_RUNS: usize = 256;

/// How many keys with more than one run are named.
const SHARED_KEYS_MAX: usize = 100;

/// Something that does not follow from the rest.
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

/// What `verify` found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Runs that were read.
    pub runs: u64,
    /// Journal entries that were recomputed.
    pub entries: u64,
    /// The ends of all chains.
    pub heads: Vec<SavedHead>,
    /// What does not hold. Empty means that everything does.
    pub problems: Vec<Problem>,
}

/// Replays the whole store, and compares it with saved heads. `progress` is told the runs so far.
pub async fn verify(
    store: &dyn Store,
    saved: &[SavedHead],
    progress: impl FnMut(u64),
) -> Result<Report, StoreError> {
    let mut walk = Walk::default();
    // First: what is damaged may end the walk, and then this says where.
    for line in store.damage().await? {
        walk.problems.push(Problem::new("database", line));
    }
    match walk.everything(store, saved, progress).await {
        Ok(()) => {}
        Err(StoreError::Broken(why)) if !walk.problems.is_empty() => {
            walk.problems.push(Problem::new("database", format!("cannot be read on: {why}")));
        }
        Err(error) => return Err(error),
    }
    Ok(Report {
        runs: walk.seen.runs,
        entries: walk.seen.entries,
        heads: walk.heads,
        problems: walk.problems,
    })
}

#[derive(Default)]
struct Walk {
    seen: Counts,
    chains: Chains,
    /// What the runs of a session say of it.
    steps: HashMap<SessionId, Steps>,
    /// Openings that the system session tells of.
    openings: Vec<crate::json::Value>,
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
        saved: &[SavedHead],
        progress: impl FnMut(u64),
    ) -> Result<(), StoreError> {
        self.runs(store, progress).await?;
        self.keys(store).await?;
        self.loose_events(store).await?;
        self.sessions(store, saved).await?;
        match store.counts().await {
            Ok(counts) => self.compare_counts(&counts),
            Err(error) => self.unreadable("counts", error)?,
        }
        Ok(())
    }

    async fn runs(
        &mut self,
        store: &dyn Store,
        mut progress: impl FnMut(u64),
    ) -> Result<(), StoreError> {
        let mut before = None;
        loop {
            let page = match store.run_ids(before, PAGE_RUNS).await {
                Ok(page) => page,
                Err(error) => return self.unreadable("tool_runs", error),
            };
            let Some(last) = page.last() else { return Ok(()) };
            before = Some(*last);
            for run_id in page {
                match store.dossier(run_id).await {
                    Ok(Some(dossier)) => self.run(&dossier),
                    Ok(None) => {
                        self.problems.push(Problem::new(format!("run {run_id}"), "is gone"));
                    }
                    Err(error) => self.unreadable(&format!("run {run_id}"), error)?,
                }
                progress(self.seen.runs);
            }
        }
    }

    /// I2: a key has one trace. Each run names its key, so the keys themselves tell.
    async fn keys(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let shared = match store.shared_keys(SHARED_KEYS_MAX).await {
            Ok(shared) => shared,
            Err(error) => return self.unreadable("effects", error),
        };
        for key in shared {
            let what =
                format!("key `{key}` has more than one run: it may have been executed twice");
            self.problems.push(Problem::new("effects", what));
        }
        Ok(())
    }

    /// A row that cannot be read back was changed; a store that is away is another matter.
    fn unreadable(&mut self, place: &str, error: StoreError) -> Result<(), StoreError> {
        match error {
            StoreError::State(error) => {
                self.problems.push(Problem::new(place, error));
                Ok(())
            }
            StoreError::KeyTaken
            | StoreError::AlreadyDecided
            | StoreError::UnknownSession(_)
            | StoreError::Unavailable(_)
            | StoreError::AnswerLost(_)
            | StoreError::Broken(_) => Err(error),
        }
    }

    fn run(&mut self, dossier: &Dossier) {
        let count = |rows: usize| u64::try_from(rows).unwrap_or(u64::MAX);
        self.seen.runs += 1;
        self.seen.entries += count(dossier.entries.len());
        self.seen.records += u64::from(dossier.record.is_some());
        self.seen.checkpoints += count(dossier.checkpoints.len());
        self.seen.events += count(dossier.events.len());
        self.seen.approvals += u64::from(dossier.approval.is_some());
        self.seen.bindings += u64::from(dossier.binding.is_some());
        self.problems.extend(run::check(dossier));
        let run_id = dossier.run.arrival.run_id;
        let session_id = dossier.run.arrival.session_id;
        let links = run::links(dossier);
        self.step(dossier, links.iter().map(|(_, link, _)| link.number).min());
        for (kind, link, body) in links {
            let place = Some(run_id);
            self.problems.extend(self.chains.add(session_id, kind, place, body, link));
        }
    }

    /// A run comes into being with its first link, so within a session rows and links have one order.
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

    async fn loose_events(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let events = match store.loose_events().await {
            Ok(events) => events,
            Err(error) => return self.unreadable("events", error),
        };
        let mut before: HashMap<SessionId, u64> = HashMap::new();
        for linked in events {
            self.seen.events += 1;
            let event = &linked.event;
            if event.event_type == EventType::SessionOpened {
                self.openings.push(event.payload.clone());
            }
            let Some(link) = linked.link else {
                let place = format!("event {}", event.event_id);
                self.problems.push(Problem::new(place, "has no link"));
                continue;
            };
            if before.insert(event.session_id, link.number).is_some_and(|it| it >= link.number) {
                let place = format!("event {}", event.event_id);
                self.problems.push(Problem::new(place, "position does not follow from the links"));
            }
            let body = Digest::of(event);
            let added =
                self.chains.add(event.session_id, LinkKind::Event, event.run_id, body, link);
            self.problems.extend(added);
        }
        Ok(())
    }

    async fn sessions(&mut self, store: &dyn Store, saved: &[SavedHead]) -> Result<(), StoreError> {
        let sessions = match store.sessions().await {
            Ok(sessions) => sessions,
            Err(error) => return self.unreadable("sessions", error),
        };
        self.seen.sessions = u64::try_from(sessions.len()).unwrap_or(u64::MAX);
        let mut sole = HashSet::new();
        for session in &sessions {
            self.session(session);
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
        let known: Vec<SessionId> = sessions.iter().map(|session| session.session_id).collect();
        self.problems.extend(self.chains.outside(&known));
        for opening in &self.openings {
            let named = opening.get("session_id").and_then(|id| id.as_str());
            if !known.iter().any(|id| named == Some(id.to_string().as_str())) {
                let place = format!("session {}", named.unwrap_or("?"));
                self.problems.push(Problem::new(place, "was opened and is gone"));
            }
        }
        self.problems.extend(self.chains.against(saved));
        Ok(())
    }

    fn session(&mut self, session: &Session) {
        self.problems.extend(self.chains.check(session));
        if !self.openings.contains(&opening_payload(session)) {
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
    }

    /// Rows that belong to no run are rows that somebody put there.
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

/// Where a problem of a run stands.
pub(crate) fn place_of(table: &str, run_id: RunId) -> String {
    format!("{table} of run {run_id}")
}
