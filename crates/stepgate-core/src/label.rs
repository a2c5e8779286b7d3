//! Labels: words for what a tool's results carry in (`untrusted`, `secret`) and what its calls carry out
//! (`egress`, `money`). A session, a file or a memory that took in a label keeps it.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::{ArtifactId, InvalidId, SessionId, checked_text};
use crate::result_pointer::ResultPointer;

/// A word that policies can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
#[schemars(inline)]
pub struct Label(String);

checked_text!(Label, 0);

impl Label {
    /// Longest label.
    pub const BYTES_MAX: usize = 32;

    /// Most labels of one configuration. Each is looked up for a session before a decision.
    pub const COUNT_MAX: usize = 16;

    /// The labels that exist in every configuration, so that a policy can name them before a tool has one.
    pub const COMMON: [&str; 10] = [
        "untrusted",
        "secret",
        "personal",
        "egress",
        "publish",
        "money",
        "delete",
        "message",
        "change",
        "account",
    ];

    /// Takes lower-case letters, digits, `_` and `-`, after a letter.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let is_of_label =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        let is_valid = text.len() <= Self::BYTES_MAX
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(is_of_label);
        match is_valid {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidId::new(
                text,
                "a label: a lower-case letter, then at most 31 lower-case letters, digits, `_` or `-`",
            )),
        }
    }
}

/// What a tool is, as the operator declares it. It is apart from the mode: a tool that only reads can still
/// send out what stands in its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Whether the operator says neither what it reads nor what it sends. It then counts as one that does neither, and
    /// policies that ask for labels are warned of it.
    pub is_undeclared: bool,
    /// What its results bring into a session.
    pub reads: BTreeSet<Label>,
    /// What its calls carry out.
    pub sends: BTreeSet<Label>,
    /// The memory that its calls read or write, by name. Sessions that use it pass labels on through it.
    pub memory: Option<String>,
    /// The arguments that say where a call goes, or what it acts on. None where the operator does not say which.
    pub targets: Option<Vec<String>>,
    /// The parts of its results that the system behind it makes, and no stranger can choose.
    pub trusted: Vec<ResultPointer>,
    /// The texts in its results that may name addresses to open.
    pub links: Vec<ResultPointer>,
}

/// What can have a label.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// A session.
    Session(SessionId),
    /// A file or directory of a sandbox.
    Path(PathInSandbox),
    /// A memory that tools keep, by the name that the configuration gives it.
    Memory(String),
}

/// A file or directory, and the sandbox that it is in.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct PathInSandbox {
    /// The sandbox.
    pub executor_id: String,
    /// The path in it.
    pub path: String,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(session_id) => write!(f, "session {session_id}"),
            Self::Path(file) => f.write_str(&file.path),
            Self::Memory(name) => write!(f, "memory {name}"),
        }
    }
}

impl Carrier {
    /// The id of the event that is the n-th change of a label here, from 1: odd ones add it, even ones
    /// remove it. A store accepts an event id once, so two processes cannot make the same change twice.
    pub(crate) fn change_id(&self, label: &Label, number: u64) -> ArtifactId {
        let named = match self {
            Self::Session(session_id) => ("session", session_id.to_string(), ""),
            Self::Path(file) => ("path", file.executor_id.clone(), file.path.as_str()),
            Self::Memory(name) => ("memory", name.clone(), ""),
        };
        ArtifactId::derived([0; 6], &Digest::of(&("stepgate label", named, label, number)))
    }
}

/// Whether a label is there after so many changes.
pub(crate) fn is_in_force(changes: u64) -> bool {
    changes % 2 == 1
}

#[cfg(test)]
mod tests;
