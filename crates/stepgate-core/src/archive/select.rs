//! Which runs may leave the store, and how they leave it.

use std::collections::{BTreeMap, BTreeSet};

use super::file::{self, Archive};
use crate::archived::{
    ArchivedCharge, ArchivedEvents, Kept, NamedArchive, RunsArchived, file_name,
};
use crate::budget::Account;
use crate::consent_cache::Recorded;
use crate::decimal::Decimal;
use crate::event::{EventType, payload};
use crate::gate::{Fault, Gate};
use crate::hold::{self, Held};
use crate::ids::{ArtifactId, RunId};
use crate::journal::{StateCode, StateError};
use crate::ports::{ArchiveCommit, Dossier, EndedQuery, EndedRun, Store, StoreError};
use crate::run::{Run, Status};
use crate::system;
use crate::time::Timestamp;
use crate::verify::budgets::net_charges;
use crate::verify::run::check;

/// Most runs in one archive: so many leave the store in one transaction.
pub const RUNS_MAX: usize = 256;
/// Most bytes of the lines of one archive, unless a single run has more.
pub const BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long a run stays that would leave as soon as it is over: callers that wait for its end are woken, and then read it.
const SETTLE_MS: i64 = 1_000;
/// How often a commit is tried, where others write into the system session at the same time.
const TRIES_MAX: usize = 16;

/// For how many days runs stay in the store after they ended. None: for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Those that succeeded.
    pub ok_days: Option<u32>,
    /// Those that failed, or were not valid.
    pub error_days: Option<u32>,
    /// Those that timed out.
    pub timeout_days: Option<u32>,
    /// Those that were denied.
    pub denied_days: Option<u32>,
    /// Those of a tool, whatever their status: instead of the days above.
    pub tool_days: BTreeMap<String, u32>,
}

impl Retention {
    fn days(&self, status: Status, tool: Option<&str>) -> Option<u32> {
        let of_status = match status {
            Status::Ok => self.ok_days,
            Status::Error => self.error_days,
            Status::Timeout => self.timeout_days,
            Status::Denied => self.denied_days,
            Status::Started | Status::ApprovalRequired | Status::Approved => return None,
        };
        tool.and_then(|tool| self.tool_days.get(tool)).copied().or(of_status)
    }

    /// The fewest days that any run stays; none where every run stays for ever.
    fn least_days(&self) -> Option<u32> {
        let by_status = [self.ok_days, self.error_days, self.timeout_days, self.denied_days];
        by_status.into_iter().flatten().chain(self.tool_days.values().copied()).min()
    }

    /// Whether every run stays for ever.
    pub fn is_endless(&self) -> bool {
        self.least_days().is_none()
    }
}

/// How old runs must be to leave the store.
#[derive(Clone, Copy, Debug)]
pub enum Age<'a> {
    /// As old as is configured.
    Kept(&'a Retention),
    /// Ended before this time, whatever is configured.
    Before(Timestamp),
}

impl Age<'_> {
    /// The time before which a run of this status and tool must have ended; none where it stays.
    fn cutoff(self, status: Status, tool: Option<&str>, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Before(before) => status.is_final().then_some(before),
            Self::Kept(retention) => Some(kept_from(now, retention.days(status, tool)?)),
        }
    }

    /// Whether a run can be old enough, as far as its row says: a run that came later cannot have ended before. So the
    /// runs that are kept for long are not read again each time.
    fn may_cover(self, run: &EndedRun, now: Timestamp) -> bool {
        let cutoff = self.cutoff(run.status, run.tool_name.as_deref(), now);
        cutoff.is_some_and(|cutoff| run.received_at < cutoff)
    }

    /// The latest of these times; none where every run stays.
    fn latest_cutoff(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Before(before) => Some(before),
            Self::Kept(retention) => Some(kept_from(now, retention.least_days()?)),
        }
    }
}

/// When the runs ended that stay for so many days.
fn kept_from(now: Timestamp, days: u32) -> Timestamp {
    let kept_ms = (i64::from(days) * 24 * 60 * 60 * 1000).max(SETTLE_MS);
    Timestamp::from_millisecond(now.as_millisecond().saturating_sub(kept_ms))
}

/// Why runs that are old enough stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stay {
    /// A hold covers them.
    pub held: u64,
    /// A reader of the events has not come so far.
    pub unread: u64,
    /// They used a grant that can still be used: their events count its uses.
    pub granted: u64,
    /// They do not verify, or would not come back from the file as they are.
    pub unsound: u64,
}

/// Runs that may leave the store together; none where all of those that were looked at stay.
#[derive(Clone, Debug)]
pub struct Batch {
    lines: Vec<String>,
    /// Where the next batch begins.
    pub last: RunId,
}

impl Batch {
    /// Whether there is nothing to archive.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The text of its file.
    pub fn text(&self, archive_id: ArtifactId, made_at: Timestamp) -> String {
        file::text(archive_id, made_at, &self.lines)
    }
}

/// What decides about every run of a batch.
struct Judge<'a> {
    age: Age<'a>,
    now: Timestamp,
    held: Held,
    /// The position that every reader of the events has reached.
    read_to: u64,
    consents: Recorded,
}

/// Looks at the next runs that are over, after this one, oldest first; none where there are no more. Counts those that
/// are old enough and stay. `readers` have cursors, and runs whose events one of them has not read stay.
pub async fn next(
    store: &dyn Store,
    age: Age<'_>,
    readers: &[String],
    now: Timestamp,
    after: Option<RunId>,
    stay: &mut Stay,
) -> Result<Option<Batch>, StoreError> {
    let Some(until) = age.latest_cutoff(now) else { return Ok(None) };
    let mut page = store.ended(EndedQuery { after, until, limit: RUNS_MAX }).await?;
    let Some(last) = page.last().map(|run| run.run_id) else { return Ok(None) };
    page.retain(|run| age.may_cover(run, now));
    if page.is_empty() {
        return Ok(Some(Batch { lines: Vec::new(), last }));
    }
    let read_to = read_by_all(store, readers).await?;
    let held = hold::in_force(store).await?;
    let consents = Recorded::of(store).await?;
    let judge = Judge { age, now, held, read_to, consents };
    judge.batch(store, page, last, stay).await.map(Some)
}

/// The position that every reader has come to. One that has not begun has read nothing.
async fn read_by_all(store: &dyn Store, readers: &[String]) -> Result<u64, StoreError> {
    let cursors = store.cursors().await?;
    let of = |reader: &String| cursors.iter().find(|cursor| cursor.name == *reader);
    let reached = |reader| of(reader).map_or(0, |cursor| cursor.reached);
    Ok(readers.iter().map(reached).min().unwrap_or(u64::MAX))
}

impl Judge<'_> {
    async fn batch(
        &self,
        store: &dyn Store,
        page: Vec<EndedRun>,
        last: RunId,
        stay: &mut Stay,
    ) -> Result<Batch, StoreError> {
        let mut batch = Batch { lines: Vec::new(), last };
        let mut bytes = 0;
        for run in page {
            let Some(line) = self.line(store, &run, stay).await? else { continue };
            bytes += line.len();
            batch.lines.push(line);
            if bytes >= BYTES_MAX {
                batch.last = run.run_id;
                break;
            }
        }
        Ok(batch)
    }

    /// The line of a run that may leave the store; none where it stays.
    async fn line(
        &self,
        store: &dyn Store,
        run: &EndedRun,
        stay: &mut Stay,
    ) -> Result<Option<String>, StoreError> {
        let dossier = match store.dossier(run.run_id).await {
            Ok(Some(dossier)) => dossier,
            Ok(None) => return Ok(None),
            Err(StoreError::State(_)) => {
                stay.unsound += 1;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Run { status, tool_name, .. } = &dossier.run;
        let cutoff = self.age.cutoff(*status, tool_name.as_deref(), self.now);
        if !cutoff.is_some_and(|cutoff| is_older(&dossier, cutoff)) {
            return Ok(None);
        }
        let reason = if self.held.covers_run(&dossier.run) {
            &mut stay.held
        } else if run.last_event > self.read_to {
            &mut stay.unread
        } else if self.is_counted(&dossier) {
            &mut stay.granted
        } else {
            match file::line(&dossier) {
                Ok(line) if check(&dossier).is_empty() => return Ok(Some(line)),
                Ok(_) | Err(_) => &mut stay.unsound,
            }
        };
        *reason += 1;
        Ok(None)
    }

    /// Whether a run has used a grant that can still be used.
    fn is_counted(&self, dossier: &Dossier) -> bool {
        used_grants(dossier).any(|grant_id| {
            let Some(grant_id) = grant_id else { return true };
            let made = self.consents.grants.get(&grant_id);
            !made.is_some_and(|made| self.consents.has_ended(&grant_id, made, self.now))
        })
    }
}

/// The grants that a run has used; none for one that cannot be read.
fn used_grants(dossier: &Dossier) -> impl Iterator<Item = Option<ArtifactId>> {
    let events = dossier.events.iter().map(|linked| &linked.event);
    let uses = events.filter(|event| event.event_type == EventType::GrantUsed);
    uses.map(|event| {
        let grant_id = event.payload.get("grant_id").and_then(|id| id.as_str());
        grant_id.and_then(|id| id.parse().ok())
    })
}

/// Whether a run ended, and its last event happened, before this time.
fn is_older(dossier: &Dossier, cutoff: Timestamp) -> bool {
    let ended = dossier.record.as_ref().and_then(|(record, _)| record.body().ok());
    let last = dossier.events.iter().map(|linked| linked.event.ts).max();
    // A record that cannot be read does not verify: that is found later.
    ended.is_none_or(|body| body.completed_at < cutoff) && last.is_none_or(|ts| ts < cutoff)
}

/// What became of an archive whose file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Its runs have left the store.
    Gone(Box<NamedArchive>),
    /// Nothing has changed: a run got a hold or another event since it was read, or too much was written at the same time.
    Stayed,
}

/// Takes the runs of an archive out of the store. Its file must be durable. In one commit: the event that names the file,
/// what is kept of each run, and the end of the rows. The commit is refused where the system session has gone on since
/// the holds were read, so a hold that was made before it keeps its runs.
pub async fn leave(gate: &Gate, archive: &Archive) -> Result<Left, Fault> {
    let runs = archive.kept();
    let kept = Kept::of(&runs);
    let grants: BTreeSet<_> = archive.dossiers.iter().flat_map(used_grants).flatten().collect();
    let archived = RunsArchived {
        charges: charges_of(&archive.dossiers),
        events: Some(ArchivedEvents::of(&archive.dossiers)),
        file: file_name(archive.archive_id),
        file_bytes: archive.bytes,
        file_digest: archive.digest,
        grants: grants.into_iter().collect(),
        kept_digest: kept.digest,
        runs: kept.runs,
    };
    for _ in 0..TRIES_MAX {
        let system = gate.system_session().await?;
        let held = hold::in_force(&*gate.store).await?;
        if archive.dossiers.iter().any(|dossier| held.covers_run(&dossier.run)) {
            return Ok(Left::Stayed);
        }
        let (archive_id, payload) = (archive.archive_id, payload::value(&archived));
        let event = gate.event(archive_id, EventType::RunsArchived, payload, system.session_id);
        let ts = event.ts;
        let commit = ArchiveCommit { expected: system.head, event, runs: runs.clone() };
        match gate.store.archive(commit).await {
            Ok(()) => {
                let named = NamedArchive { archive_id, archived, ts };
                return Ok(Left::Gone(Box::new(named)));
            }
            Err(StoreError::State(StateError { code: StateCode::ConcurrentExecution, .. })) => {}
            Err(StoreError::State(_)) => return Ok(Left::Stayed),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Left::Stayed)
}

/// What these runs took together.
fn charges_of<'a>(dossiers: impl IntoIterator<Item = &'a Dossier>) -> Vec<ArchivedCharge> {
    let mut sums: BTreeMap<Account, i64> = BTreeMap::new();
    for (account, units) in dossiers.into_iter().flat_map(net_charges) {
        let sum = sums.entry(account).or_default();
        *sum = sum.saturating_add(units);
    }
    let charge = |(account, units): (Account, i64)| {
        let Account { budget, window, key } = account;
        ArchivedCharge { amount: Decimal::from_units(units), budget, key, window }
    };
    sums.into_iter().map(charge).collect()
}

/// The archives that the system session names, oldest first.
pub async fn named(store: &dyn Store) -> Result<Vec<NamedArchive>, StoreError> {
    named_since(store, 0).await
}

/// Those that events after this position name.
pub async fn named_since(
    store: &dyn Store,
    position: u64,
) -> Result<Vec<NamedArchive>, StoreError> {
    let events = system::events_since(store, &[EventType::RunsArchived], position).await?;
    let read = |placed: &crate::ports::PlacedEvent| {
        NamedArchive::read(&placed.event).ok_or_else(|| {
            let detail = format!("event {} cannot be read", placed.event.event_id);
            StoreError::State(StateError::checksum(detail))
        })
    };
    events.iter().map(read).collect()
}
