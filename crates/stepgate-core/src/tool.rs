//! Tools of tool servers in the core: a name, a mode, a contract, and what happens when it is unknown
//! whether a call was done.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::action::{CORE_SERVER, InvalidArgs};
use crate::digest::Digest;
use crate::ids::{InvalidId, checked_text};
use crate::journal::artifact::{Guarantee, RiskLevel, ToolClass};
use crate::json::{Map, Value};
use crate::label::Flow;
use crate::spelled::spelled;

/// A tool of a tool server: `server.tool`, split at the first dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolName {
    text: String,
    dot: usize,
}

checked_text!(ToolName, text);

impl ToolName {
    /// Longest name.
    pub const BYTES_MAX: usize = 128;

    /// The name that a proposal's action spells, if it spells one.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId::new(text, "a tool: `server.tool`");
        let (server, tool) = text.split_once('.').ok_or_else(invalid)?;
        let is_tool_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
        let is_valid = is_server_name(server)
            && !tool.is_empty()
            && tool.bytes().all(is_tool_byte)
            && text.len() <= Self::BYTES_MAX
            && !starts_processes(tool);
        if is_valid {
            Ok(Self { dot: server.len(), text: text.to_owned() })
        } else {
            Err(invalid())
        }
    }

    /// A tool of this server, as the server itself calls it.
    pub fn of(server: &str, tool: &str) -> Result<Self, InvalidId> {
        Self::parse(&format!("{server}.{tool}"))
    }

    /// The server.
    pub fn server(&self) -> &str {
        self.text.get(..self.dot).unwrap_or_default()
    }

    /// The tool, as the server calls it.
    pub fn tool(&self) -> &str {
        self.text.get(self.dot + 1..).unwrap_or_default()
    }
}

/// Whether a server can have this name: it must not be confused with the core, and must not contain a dot.
pub fn is_server_name(name: &str) -> bool {
    const BYTES_MAX: usize = 32;
    let is_name_byte =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    (1..=BYTES_MAX).contains(&name.len()) && name.bytes().all(is_name_byte) && name != CORE_SERVER
}

/// Whether a tool's name is one that no configuration can enable, in upper or lower case (decision 5).
fn starts_processes(tool: &str) -> bool {
    ["run_command", "spawn_process"].iter().any(|name| tool.eq_ignore_ascii_case(name))
}

spelled! {
    /// What a tool does, as the operator configured it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Mode {
        /// Reads, and changes nothing.
        ReadOnly = "read_only",
        /// Prepares something that a person sends later.
        Draft = "draft",
        /// Changes something outside Stepgate.
        ExecuteGated = "execute_gated",
    }
}

/// What happens to a call that was sent, or was about to be sent, when the gateway stopped (decision 12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The server honours the idempotency key: a call that is sent again acts once.
    HonoursKey,
    /// It is sent again, with the same call and key.
    Redispatch,
    /// A read-only tool says whether it was done.
    Query(ToolName),
    /// A person says what became of it.
    Ask,
}

impl Delivery {
    /// How often the effect of a call with this delivery can have happened.
    pub fn guarantee(&self) -> Guarantee {
        match self {
            Self::HonoursKey | Self::Query(_) => Guarantee::ExactlyOnce,
            Self::Redispatch => Guarantee::AtLeastOnce,
            Self::Ask => Guarantee::AtMostOnce,
        }
    }
}

/// Whether an operator has accepted a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Its definition is the pinned one.
    Accepted,
    /// Its definition has changed, and no operator has accepted the new one.
    Changed,
    /// The tool was added after its server was first known, and no operator has accepted it.
    New,
    /// The configuration or the server no longer has it.
    Gone,
}

/// The schema of a tool's arguments.
pub trait Contract: Send + Sync {
    /// Succeeds, or names the argument and the rule that it breaks.
    fn check(&self, args: &Map<String, Value>) -> Result<(), InvalidArgs>;
}

/// A tool that a proposal can name.
#[derive(Clone)]
pub struct Tool {
    /// Its name.
    pub name: ToolName,
    /// What it does, from the configuration.
    pub mode: Mode,
    /// What happens to a call in doubt.
    pub delivery: Delivery,
    /// Digest of the pinned definition, or of the server's current one where that differs.
    pub definition_digest: Digest,
    /// Whether an operator has accepted this definition.
    pub standing: Standing,
    /// Arguments that the journal has only as their digest.
    pub redacted: Vec<String>,
    /// Those of them that the store keeps apart until they are erased.
    pub erasable: Vec<String>,
    /// What its calls bring into a session and carry out, from the configuration.
    pub flow: Flow,
    /// The schema of its arguments.
    pub contract: Arc<dyn Contract>,
}

impl Tool {
    /// A tool that a journal names and that no longer exists. It cannot be called.
    pub fn gone(name: ToolName) -> Self {
        struct Nothing;
        impl Contract for Nothing {
            fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
                Err(InvalidArgs::new("tool", "is gone"))
            }
        }
        Self {
            definition_digest: Digest::of_bytes(b""),
            name,
            mode: Mode::ExecuteGated,
            delivery: Delivery::Ask,
            standing: Standing::Gone,
            redacted: Vec::new(),
            erasable: Vec::new(),
            flow: Flow::default(),
            contract: Arc::new(Nothing),
        }
    }

    /// Whether a call changes anything.
    pub fn class(&self) -> ToolClass {
        match self.mode {
            Mode::ReadOnly => ToolClass::Read,
            Mode::Draft | Mode::ExecuteGated => ToolClass::Write,
        }
    }

    /// How much a call can change.
    pub fn risk_level(&self) -> RiskLevel {
        match self.mode {
            Mode::ReadOnly => RiskLevel::Read,
            Mode::Draft => RiskLevel::Write,
            Mode::ExecuteGated => RiskLevel::HighRisk,
        }
    }

    /// The tool with these arguments redacted, too.
    pub fn redacting<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Self {
        let mut tool = self.clone();
        for name in names {
            if !tool.redacted.contains(name) {
                tool.redacted.push(name.clone());
            }
        }
        tool
    }

    /// The tool with these arguments erasable, too. One that the configuration redacts, without calling it erasable, is
    /// not kept.
    pub fn erasing<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Self {
        let names = names.into_iter().filter(|name| !self.redacted.contains(name));
        let names: Vec<String> = names.cloned().collect();
        let mut tool = self.redacting(&names);
        tool.erasable.extend(names);
        tool
    }

    /// The arguments in their stored form: each redacted one as its digest.
    pub fn redact(&self, args: &Map<String, Value>) -> Map<String, Value> {
        let is_redacted = |name: &str| self.redacted.iter().any(|redacted| redacted == name);
        args.iter()
            .map(|(name, value)| match is_redacted(name) {
                true => (name.clone(), serde_json::json!({ "sha256": Digest::of(value) })),
                false => (name.clone(), value.clone()),
            })
            .collect()
    }

    /// The arguments that the store keeps apart; none where the call has no such argument.
    pub fn erasable_of(&self, args: &Map<String, Value>) -> Option<Map<String, Value>> {
        let is_erasable = |name: &String| self.erasable.contains(name);
        let erasable = args.iter().filter(|(name, _)| is_erasable(name));
        let erasable: Map<_, _> =
            erasable.map(|(name, value)| (name.clone(), value.clone())).collect();
        (!erasable.is_empty()).then_some(erasable)
    }
}

/// Whether each of these arguments is written as its digest.
pub(crate) fn are_written_as_digests(
    args: &Map<String, Value>,
    written: &Map<String, Value>,
) -> bool {
    let is_written = |(name, value): (&String, &Value)| {
        written.get(name) == Some(&serde_json::json!({ "sha256": Digest::of(value) }))
    };
    args.iter().all(is_written)
}

/// Whether `written` is a stored form of these arguments: the same names, each with its value or its digest.
pub(crate) fn is_written_as(args: &Map<String, Value>, written: &Map<String, Value>) -> bool {
    let is_written = |(name, value): (&String, &Value)| {
        let as_digest = serde_json::json!({ "sha256": Digest::of(value) });
        let found = written.get(name).map(Digest::of);
        found == Some(Digest::of(value)) || found == Some(Digest::of(&as_digest))
    };
    args.len() == written.len() && args.iter().all(is_written)
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
