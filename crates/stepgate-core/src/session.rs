//! Sessions and their chains: a sequence of links without gaps, so that a missing trace is detected.
//!
//! A link is stored in the row that it links: OPEN in the genesis entry, CLOSE in the record, EVENT in an
//! event that no OPEN or CLOSE covers. The store numbers links when it commits them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::{PrincipalId, RunId, SessionId};
use crate::spelled::spelled;
use crate::time::Timestamp;

spelled! {
    /// What a session is for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum SessionKind {
        /// Chains the acts of operators, and the openings of all other sessions. One per store.
        System = "system",
        /// The session of a principal that names no session. Where several nodes share the store, each node has
        /// its own, so that nodes do not contend for the end of one chain.
        Default = "default",
        /// A session that a principal named.
        Named = "named",
    }
}

/// How many sessions of a kind may exist. A principal that names no session always joins the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uniqueness {
    /// One in the store.
    InStore,
    /// One for each principal, on each node.
    ForPrincipal,
    /// Any number.
    None,
}

impl SessionKind {
    /// How many of this kind there may be.
    pub fn uniqueness(self) -> Uniqueness {
        match self {
            Self::System => Uniqueness::InStore,
            Self::Default => Uniqueness::ForPrincipal,
            Self::Named => Uniqueness::None,
        }
    }
}

/// A row of `sessions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub session_id: SessionId,
    /// The principal that it belongs to.
    pub principal_id: PrincipalId,
    /// What it is for.
    pub kind: SessionKind,
    /// The node whose callers join it by default, where several nodes share the store.
    pub node_id: Option<String>,
    /// When it was opened.
    pub ts: Timestamp,
    /// The end of its chain.
    pub head: Head,
    /// The highest step index that a run in it has; 0 before the first.
    pub last_step_index: u64,
}

/// The end of a session's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the last link; 0 before the first.
    pub number: u64,
    /// Digest of the last link; zeros before the first.
    pub digest: Digest,
}

impl Head {
    /// The end of a chain without links.
    pub const EMPTY: Self = Self { number: 0, digest: Digest::ZERO };
}

/// What a link is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LinkKind {
    /// A trace opened.
    Open,
    /// A step was recorded.
    Close,
    /// Something happened outside both.
    Event,
}

/// A link of a session's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its number, from 1, without gaps.
    pub number: u64,
    /// Digest of the link before.
    pub prev: Digest,
    /// SHA-256 of the RFC 8785 form of the link.
    pub digest: Digest,
}

/// What the link digest covers.
#[derive(Serialize)]
struct Covered {
    body_digest: Digest,
    kind: LinkKind,
    number: u64,
    prev: Digest,
    run_id: Option<RunId>,
    session_id: SessionId,
}

impl Link {
    /// The link that continues a chain.
    pub fn after(
        head: &Head,
        session_id: SessionId,
        kind: LinkKind,
        run_id: Option<RunId>,
        body_digest: Digest,
    ) -> Self {
        let (number, prev) = (head.number + 1, head.digest);
        let covered = Covered { body_digest, kind, number, prev, run_id, session_id };
        Self { number, prev, digest: Digest::of(&covered) }
    }

    /// Whether this is the link of a body: its digest follows from what it links.
    pub(crate) fn links(
        &self,
        session_id: SessionId,
        kind: LinkKind,
        run_id: Option<RunId>,
        body_digest: Digest,
    ) -> bool {
        let Some(number) = self.number.checked_sub(1) else { return false };
        let before = Head { number, digest: self.prev };
        Self::after(&before, session_id, kind, run_id, body_digest) == *self
    }

    /// The end of the chain that this link ends.
    pub fn head(&self) -> Head {
        Head { number: self.number, digest: self.digest }
    }
}

/// What an OPEN link covers: the genesis entry, the arrival, and the events of the opening commit.
#[derive(Serialize)]
struct Opening {
    arrival_digest: Digest,
    entry_digest: Digest,
    events_digest: Digest,
}

/// The body digest of an OPEN link.
pub fn open_body(entry_digest: Digest, arrival_digest: Digest, events_digest: Digest) -> Digest {
    Digest::of(&Opening { arrival_digest, entry_digest, events_digest })
}

#[cfg(test)]
mod tests;
