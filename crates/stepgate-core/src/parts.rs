//! Parts that need a person: tools, tool servers, policies, executors and disks.
//!
//! No store knows that a part is in trouble: each process finds out for itself and passes its findings. A
//! finding is told once, as an event of the system session. The events are read back, so neither a restart
//! nor another node repeats it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use crate::attention::{Kind, Need, Subject};
use crate::event::EventType;
use crate::event::payload::{self, PartNeedsPerson};
use crate::gate::{Fault, Gate};
use crate::lock;
use crate::ports::{PlacedEvent, StoreError};
use crate::system;
use crate::time::Timestamp;

/// Longest subject and reason, in characters: an event is kept for ever.
const SUBJECT_CHARS_MAX: usize = 256;
const REASON_CHARS_MAX: usize = 2000;
/// A finding must be absent for this long before it is told again, so that a server that goes up and down is
/// told once.
const RECOVERED_AFTER_MS: u64 = 10 * 60 * 1000;
/// Rate limit: at most this many findings are told within [`RATE_WINDOW_MS`], and each part at most once. A tool
/// server that changes its tools all the time must not fill the store.
const TOLD_MAX: usize = 100;
const RATE_WINDOW_MS: u64 = 60 * 1000;
/// At a start older events are ignored: the part may have recovered and failed again since.
const REMEMBERED_FOR_MS: u64 = 24 * 60 * 60 * 1000;

/// A part that needs a person, as a process found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    kind: Kind,
    subject: String,
    reason: String,
    since: Option<Timestamp>,
}

impl Finding {
    /// A finding. `since`: where it is known without having been told.
    pub fn new(kind: Kind, subject: &str, reason: &str, since: Option<Timestamp>) -> Self {
        let (subject, reason) = (cut(subject, SUBJECT_CHARS_MAX), cut(reason, REASON_CHARS_MAX));
        Self { kind, subject, reason, since }
    }

    /// Why it needs a person.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    fn key(&self) -> Key {
        key(self.kind, &self.subject, &self.reason)
    }

    fn need(&self, since: Timestamp) -> Need {
        let (subject, reason) = (Subject::Part(self.subject.clone()), self.reason.clone());
        Need { subject, kind: self.kind, reason, since }
    }
}

fn key(kind: Kind, subject: &str, reason: &str) -> Key {
    let reason = match kind {
        // The reason names the definition, or what is wrong in the files. Nodes may find different ones.
        Kind::ToolNew
        | Kind::ToolChanged
        | Kind::ToolUnusable
        | Kind::PolicyNotLoaded
        | Kind::ShadowNotLoaded => reason,
        // The reason may differ at each try.
        Kind::ServerOff
        | Kind::ExecutorUnreached
        | Kind::DiskLow
        | Kind::Approval
        | Kind::InDoubt
        | Kind::Stuck
        | Kind::Quarantined => "",
    };
    (kind, subject.to_owned(), reason.to_owned())
}

/// The beginning of a text.
fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => text.get(..end).into_iter().chain(["…"]).collect(),
        None => text.to_owned(),
    }
}

/// Kind, subject, and the reason where another reason is another finding.
type Key = (Kind, String, String);

/// Which findings were told. One for each process.
#[derive(Debug, Default)]
pub struct Parts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The position up to which events were read.
    position: u64,
    told: BTreeMap<Key, Told>,
}

#[derive(Debug)]
struct Told {
    since: Timestamp,
    /// Since when this process does not find it any more.
    gone: Option<Timestamp>,
}

impl Told {
    /// Whether this is the same finding: of an executor it is another one when runs wait that did not before.
    fn covers(&self, finding: &Finding) -> bool {
        finding.kind != Kind::ExecutorUnreached
            || finding.since.is_none_or(|since| since <= self.since)
    }
}

impl Parts {
    /// The findings as needs, each with the time since when it is known.
    pub async fn needs(&self, gate: &Gate, found: &[Finding]) -> Result<Vec<Need>, StoreError> {
        self.read_on(gate).await?;
        let (known, now) = (self.known(), gate.world.now());
        let since = |finding: &Finding| {
            let told = known.told.get(&finding.key()).filter(|told| told.covers(finding));
            finding.since.or_else(|| told.map(|told| told.since)).unwrap_or(now)
        };
        Ok(found.iter().map(|finding| finding.need(since(finding))).collect())
    }

    /// Tells the findings that were not told yet, and returns them.
    pub async fn tell(&self, gate: &Gate, found: &[Finding]) -> Result<Vec<Need>, Fault> {
        self.read_on(gate).await?;
        let fresh = self.known().fresh(found, gate.world.now());
        let mut needs = Vec::new();
        for finding in fresh {
            let Finding { kind, subject, reason, .. } = finding.clone();
            let payload = PartNeedsPerson { kind, reason, subject };
            let since = gate.note(EventType::PartNeedsPerson, payload).await?.ts;
            let told = Told { since, gone: None };
            self.known().told.insert(finding.key(), told);
            needs.push(finding.need(since));
        }
        Ok(needs)
    }

    /// Reads what this and other processes have told since the last read.
    async fn read_on(&self, gate: &Gate) -> Result<(), StoreError> {
        let position = self.known().position;
        // Read first: no event is added later at a smaller position, so events up to it need not be read again.
        let newest = gate.store.last_position().await?;
        if newest <= position {
            return Ok(());
        }
        let told =
            system::events_since(&*gate.store, &[EventType::PartNeedsPerson], position).await?;
        let (mut known, now) = (self.known(), gate.world.now());
        known.position = told.last().map_or(newest, |last| newest.max(last.position));
        for PlacedEvent { event, .. } in &told {
            let since = event.ts;
            if now.since_ms(since) <= REMEMBERED_FOR_MS
                && let Ok(PartNeedsPerson { kind, reason, subject }) = payload::read(&event.payload)
            {
                known.told.insert(key(kind, &subject, &reason), Told { since, gone: None });
            }
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock::locked(&self.0)
    }
}

impl Known {
    /// The findings that were not told yet. Notes which told ones are gone.
    fn fresh(&mut self, found: &[Finding], now: Timestamp) -> Vec<Finding> {
        let present: BTreeSet<Key> = found.iter().map(Finding::key).collect();
        self.told.retain(|key, told| {
            let gone = *told.gone.get_or_insert(now);
            if present.contains(key) {
                told.gone = None;
            }
            now.since_ms(gone) < RECOVERED_AFTER_MS
        });
        let recent = self.told.iter().filter(|(_, told)| now.since_ms(told.since) < RATE_WINDOW_MS);
        let mut told_parts: BTreeSet<(Kind, String)> =
            recent.map(|((kind, subject, _), _)| (*kind, subject.clone())).collect();
        let room = TOLD_MAX.saturating_sub(told_parts.len());
        let is_fresh = |finding: &&Finding| {
            let told = self.told.get(&finding.key());
            told.is_none_or(|told| !told.covers(finding))
                && told_parts.insert((finding.kind, finding.subject.clone()))
        };
        found.iter().filter(is_fresh).take(room).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
