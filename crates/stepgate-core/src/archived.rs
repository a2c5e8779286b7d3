//! What is known of runs that have left the store for an archive: the store's rows, and the event that names the file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::{Account, AccountKey, BudgetName, Window};
use crate::decimal::Decimal;
use crate::digest::Digest;
use crate::event::{Event, EventType, payload};
use crate::idempotency::Binding;
use crate::ids::{ArtifactId, IdempotencyKey, RunId, SessionId};
use crate::ports::{Dossier, LinkedEvent};
use crate::session::{Head, Link, LinkKind};
use crate::time::Timestamp;

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
    Digest::of(&BindingObject::of(binding))
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
    /// The events of these runs. Archives that were made before their positions were kept do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<ArchivedEvents>,
    /// The name of the file.
    pub file: String,
    /// How many bytes it has.
    pub file_bytes: u64,
    /// SHA-256 of the file.
    pub file_digest: Digest,
    /// The grants that these runs have used. They permit nothing from now on, because the events that count their uses
    /// have left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<ArtifactId>,
    /// Digest of what the store keeps of the runs.
    pub kept_digest: Digest,
    /// How many runs there are.
    pub runs: u64,
}

/// The events of archived runs: how many there are, and which positions they had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchivedEvents {
    /// How many.
    pub count: u64,
    /// The first position; 0 where there is no event.
    pub first: u64,
    /// The last position; 0 where there is no event.
    pub last: u64,
}

impl ArchivedEvents {
    /// Those of these runs.
    pub(crate) fn of<'a>(dossiers: impl IntoIterator<Item = &'a Dossier>) -> Self {
        let events = dossiers.into_iter().flat_map(|dossier| &dossier.events);
        events.fold(Self::default(), |Self { count, first, last }, LinkedEvent { position, .. }| {
            let first = if count == 0 { *position } else { first.min(*position) };
            Self { count: count + 1, first, last: last.max(*position) }
        })
    }
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
}

/// An archive, as the system session names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedArchive {
    /// Its id.
    pub archive_id: ArtifactId,
    /// What the event says.
    pub archived: RunsArchived,
    /// When the runs left the store.
    pub ts: Timestamp,
}

impl NamedArchive {
    /// What an event says; none where it names no archive, or cannot be read. The name of the file follows from the id:
    /// any other could be a path to somewhere else.
    pub fn read(event: &Event) -> Option<Self> {
        if event.event_type != EventType::RunsArchived {
            return None;
        }
        let archived: RunsArchived = payload::read(&event.payload).ok()?;
        let is_its_file = archived.file == file_name(event.event_id);
        is_its_file.then_some(Self { archive_id: event.event_id, archived, ts: event.ts })
    }
}

/// The end of the names of archives.
pub const FILE_END: &str = ".archive.jsonl";

/// The name of an archive's file.
pub fn file_name(archive_id: ArtifactId) -> String {
    format!("{archive_id}{FILE_END}")
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BindingObject {
    asked_digest: Digest,
    idempotency_key: IdempotencyKey,
    settled: bool,
    tool_name: String,
    tool_server: String,
    trace_id: RunId,
}

impl BindingObject {
    pub(crate) fn of(binding: &Binding) -> Self {
        let Binding { idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled } =
            binding.clone();
        Self { asked_digest, idempotency_key, settled, tool_name, tool_server, trace_id }
    }

    pub(crate) fn read(self) -> Binding {
        let Self { asked_digest, idempotency_key, settled, tool_name, tool_server, trace_id } =
            self;
        Binding { idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled }
    }
}
