//! Archives: runs that are over leave the store for a file that verifies alone.
//!
//! What the store keeps of such a run is small: its links, so that no chain gets a gap, and the binding of its key, so
//! that the key never acts again. An event of the system session names the file and has the digests of both.

pub mod file;
pub mod select;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::{Account, AccountKey, BudgetName, Window};
use crate::decimal::Decimal;
use crate::digest::Digest;
use crate::event::{Event, EventType};
use crate::idempotency::Binding;
use crate::ids::{ArtifactId, RunId, SessionId};
use crate::ports::Dossier;
use crate::session::{Head, Link, LinkKind};
use crate::verify::budgets::net_charges;
use crate::verify::run::links;

/// What the store keeps of an archived run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArchivedRun {
    /// The event that names the file.
    pub archive_id: ArtifactId,
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// Its step index.
    pub step_index: u64,
    /// How many events left with it.
    pub events: u64,
    /// How many approvals left with it.
    pub approvals: u64,
    /// Digest of its key's binding, which stays.
    pub binding_digest: Option<Digest>,
    /// Its links in the chain of its session.
    pub links: Vec<ArchivedLink>,
}

/// A link whose row has left the store: everything that its digest covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ArchivedLink {
    /// What it is about.
    pub kind: LinkKind,
    /// Its number.
    pub number: u64,
    /// Digest of the link before.
    pub prev: Digest,
    /// Digest of what it links.
    pub body: Digest,
}

impl ArchivedRun {
    /// What the store keeps of a run.
    pub fn of(dossier: &Dossier, archive_id: ArtifactId) -> Self {
        let arrival = &dossier.run.arrival;
        let kept = |(kind, link, body): (LinkKind, Link, Digest)| ArchivedLink {
            kind,
            number: link.number,
            prev: link.prev,
            body,
        };
        Self {
            archive_id,
            run_id: arrival.run_id,
            session_id: arrival.session_id,
            step_index: arrival.step_index,
            events: u64::try_from(dossier.events.len()).unwrap_or(u64::MAX),
            approvals: u64::from(dossier.approval.is_some()),
            binding_digest: dossier.binding.as_ref().map(binding_digest),
            links: links(dossier).into_iter().map(kept).collect(),
        }
    }

    /// The links themselves: their digests follow from what is kept.
    pub(crate) fn chained(&self) -> impl Iterator<Item = (ArchivedLink, Link)> {
        self.links.iter().map(|kept| {
            let before = Head { number: kept.number.saturating_sub(1), digest: kept.prev };
            let run_id = Some(self.run_id);
            (*kept, Link::after(&before, self.session_id, kept.kind, run_id, kept.body))
        })
    }
}

/// The digest of a key's binding.
pub(crate) fn binding_digest(binding: &Binding) -> Digest {
    Digest::of(&file::BindingObject::of(binding))
}

/// The digest of what the store keeps of the runs of an archive, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) runs: u64,
    pub(crate) digest: Digest,
}

impl Kept {
    pub(crate) const NONE: Self = Self { runs: 0, digest: Digest::ZERO };

    /// With one more run.
    pub(crate) fn and(self, run: &ArchivedRun) -> Self {
        Self { runs: self.runs + 1, digest: Digest::of(&(self.digest, run)) }
    }

    /// Of all these runs.
    pub(crate) fn of<'a>(runs: impl IntoIterator<Item = &'a ArchivedRun>) -> Self {
        runs.into_iter().fold(Self::NONE, Self::and)
    }
}

/// `runs_archived`: these runs have left the store. The event's id is that of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunsArchived {
    /// What the calls of these runs took from budgets, account by account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<ArchivedCharge>,
    /// The name of the file.
    pub file: String,
    /// How many bytes it has.
    pub file_bytes: u64,
    /// SHA-256 of the file.
    pub file_digest: Digest,
    /// Digest of what the store keeps of the runs.
    pub kept_digest: Digest,
    /// How many runs there are.
    pub runs: u64,
}

/// What archived runs took from an account of a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchivedCharge {
    /// How much.
    pub amount: Decimal,
    /// The budget.
    pub budget: BudgetName,
    /// Whose account it is.
    pub key: AccountKey,
    /// The window.
    pub window: Window,
}

impl ArchivedCharge {
    pub(crate) fn account(&self) -> Account {
        Account { budget: self.budget.clone(), key: self.key.clone(), window: self.window }
    }

    /// What these runs took together.
    pub(crate) fn of<'a>(dossiers: impl IntoIterator<Item = &'a Dossier>) -> Vec<Self> {
        let mut sums: BTreeMap<Account, i64> = BTreeMap::new();
        for (account, units) in dossiers.into_iter().flat_map(net_charges) {
            let sum = sums.entry(account).or_default();
            *sum = sum.saturating_add(units);
        }
        let charge = |(account, units): (Account, i64)| {
            let Account { budget, window, key } = account;
            Self { amount: Decimal::from_units(units), budget, key, window }
        };
        sums.into_iter().map(charge).collect()
    }
}

/// An archive, as the system session names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedArchive {
    /// Its id.
    pub archive_id: ArtifactId,
    /// What the event says.
    pub archived: RunsArchived,
    /// When the runs left the store.
    pub ts: crate::time::Timestamp,
}

impl NamedArchive {
    /// What an event says; none where it names no archive, or cannot be read.
    pub fn read(event: &Event) -> Option<Self> {
        if event.event_type != EventType::RunsArchived {
            return None;
        }
        let archived = serde_json::from_value(event.payload.clone()).ok()?;
        Some(Self { archive_id: event.event_id, archived, ts: event.ts })
    }
}

/// The end of the names of archives.
pub const FILE_END: &str = ".archive.jsonl";

/// The name of an archive's file.
pub fn file_name(archive_id: ArtifactId) -> String {
    format!("{archive_id}{FILE_END}")
}
