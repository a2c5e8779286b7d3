//! What operators inspect and change while the gate runs: the tool servers, which of their tools are accepted,
//! and the policies.

mod findings;
mod mcp_names;
pub mod pins;
mod reload;
mod shadow;
mod shapes;
mod writable;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use stepgate_core::digest::Digest;
use stepgate_core::event::{EventType, payload};
use stepgate_core::gate::Gate;
use stepgate_core::ids::PrincipalId;
use stepgate_core::json::Value;
use stepgate_core::lock::locked;
use stepgate_core::time::Timestamp;
use stepgate_core::tool::ToolName;
use stepgate_exec::Sandbox;
use stepgate_exec::servers::{News, Off, Servers};
use stepgate_policy::{Finding, LivePolicy, LoadError, Nameable, PolicySet, Severity};
use tracing::{error, info, warn};

use crate::disk::Disk;
use crate::service::ArchiveSettings;
use crate::text::printable;

pub(crate) use mcp_names::McpNames;
pub(crate) use reload::Look;
pub use reload::keep_reloading;
pub(crate) use shadow::Policies;
pub use shadow::{Candidate, DifferenceKind, Shadow, ShadowCounts};
pub use shapes::{off, offered, shapes};
pub use writable::{mode_of, refuse_writable, refuse_writable_policies};

/// Outcome of accepting a tool.
pub enum Accepted {
    /// Accepted: the present definition, which has this digest.
    As(Digest),
    /// Not accepted: the present definition is not the one that the operator saw. Its digest.
    Another(Digest),
    /// No server has a tool of this name.
    NoSuchTool,
}

/// The parts beside the gate that operators inspect and change.
pub struct Control {
    /// Where core actions act.
    pub sandbox: Arc<Sandbox>,
    /// The tool servers.
    pub servers: Arc<Servers>,
    /// The policies in force.
    pub policy: Arc<LivePolicy>,
    /// The shadow policies, where the configuration names some.
    pub shadow: Option<Arc<Shadow>>,
    /// The disk of the data directory.
    pub disk: Disk,
    /// Which runs leave the store, and for where.
    pub archives: ArchiveSettings,
    /// The data directory.
    pub(crate) root: PathBuf,
    /// Where the policies are.
    pub(crate) policies: PathBuf,
    /// The servers that the configuration turns off.
    pub turned_off: Vec<String>,
    /// The server whose tools keep their own names over MCP.
    pub(crate) own_names: Option<String>,
    /// The policy files and the tools when the policies were first loaded.
    pub(crate) loaded: Look,
    /// How far the `tool_accepted` events of all nodes were read.
    pub(crate) accepted: pins::Reading,
    /// Why the policy files are not in force, if they are not.
    pub(crate) policy_trouble: Mutex<Option<String>>,
    /// Since when the policies in force are.
    pub(crate) policy_since: Mutex<Timestamp>,
}

impl Control {
    /// Makes the present definition of a tool the accepted one, on this node and every other node. If the
    /// operator names the digest that was seen, accepts only that definition.
    pub async fn accept(
        &self,
        gate: &Gate,
        name: &ToolName,
        accepted_by: &PrincipalId,
        seen: Option<Digest>,
    ) -> anyhow::Result<Accepted> {
        let _accepting = self.accepted.hold().await;
        accept(gate, &self.servers, name, Some(accepted_by), seen).await
    }

    /// The policies of a text, for the present tools. They are not put in force.
    pub fn compiled(&self, gate: &Gate, text: &str) -> Result<PolicySet, LoadError> {
        let facts = &gate.facts.names(&gate.groups);
        self.policy.current().with_text(text, Nameable { tools: &self.look().tools, facts })
    }

    /// Reloads the policies for the present tools. Needed after a tool was accepted: its definition has changed.
    pub async fn reload(self: &Arc<Self>, gate: &Gate) {
        // If a file is being changed, the next look of `keep_reloading` sees the tools too.
        reload::reload(gate, self, &self.look()).await;
        self.look_at_shadow(gate).await;
    }

    /// The policy files and the tools as they are now.
    fn look(&self) -> Look {
        Look::at(&self.policies, &self.servers, &self.turned_off)
    }

    /// Loads the shadow policies, if they or the tools have changed.
    pub(crate) async fn look_at_shadow(&self, gate: &Gate) {
        if let Some(shadow) = &self.shadow
            && shadow.look_again(&self.servers, &self.turned_off, gate.world.now()).await
        {
            shadow.tell();
        }
    }

    /// Since when the policies in force are, and whether the policy files are others that cannot be loaded.
    pub fn policy_standing(&self) -> (Timestamp, bool) {
        (*locked(&self.policy_since), locked(&self.policy_trouble).is_some())
    }

    /// Every server that cannot be called, and every tool with a mode that cannot be called.
    pub fn off(&self) -> Vec<Off> {
        off_of(&self.servers, self.own_names.as_deref())
    }

    /// Accepts the tools of servers that are seen for the first time.
    pub(crate) async fn accept_first_seen(&self, gate: &Gate) -> anyhow::Result<()> {
        let _accepting = self.accepted.hold().await;
        accept_first_seen(gate, &self.servers).await
    }

    /// Reads which tools operators have accepted on other nodes.
    pub(crate) async fn read_on(&self, gate: &Gate) -> anyhow::Result<()> {
        Ok(self.accepted.go_on(gate, &self.servers).await?)
    }
}

/// What cannot be called, including tools that have no MCP name because another tool has it.
pub fn off_of(servers: &Servers, own_names: Option<&str>) -> Vec<Off> {
    let mut off = servers.off();
    off.extend(McpNames::of(&servers.listing(), own_names).off);
    off
}

/// Logs for the operator which server or tool went off or came back.
pub fn tell(news: &News) {
    match news {
        // A line break in the name of a tool must not look like another line.
        News::Off(off) => {
            error!(server = off.server, "tool servers: {}", printable(&news.to_string()));
        }
        News::Up(_) => info!("tool servers: {news}"),
    }
}

/// Logs the warnings about the policies. Notes appear only in `policy check`.
pub(crate) fn warn_of(findings: &[Finding]) {
    let warnings = findings.iter().filter(|finding| finding.severity == Severity::Warning);
    warnings.for_each(|finding| warn!("{finding}"));
}

/// Accepts the tools of servers on first use, if no tool of theirs was ever accepted.
pub(crate) async fn accept_first_seen(gate: &Gate, servers: &Servers) -> anyhow::Result<()> {
    for name in servers.first_seen() {
        accept(gate, servers, &name, None, None).await?;
    }
    Ok(())
}

/// Makes the present definition of a tool the accepted one; the event is durable first. `accepted_by` is none
/// for a tool that is accepted on first use. The definition in the event is the one that gets pinned, even if
/// the server changes the tool meanwhile.
async fn accept(
    gate: &Gate,
    servers: &Servers,
    name: &ToolName,
    accepted_by: Option<&PrincipalId>,
    seen: Option<Digest>,
) -> anyhow::Result<Accepted> {
    let Some(pin) = servers.acceptable(name) else { return Ok(Accepted::NoSuchTool) };
    let digest = pin.digest();
    if seen.is_some_and(|seen| seen != digest) {
        return Ok(Accepted::Another(digest));
    }
    let pin = match seen {
        // The operator saw only the digest of the definition. It does not cover the instructions and metadata.
        Some(_) => pin.beside_that_of(servers.accepted(name).as_ref()),
        None => pin,
    };
    let payload = payload::ToolAccepted {
        accepted_by: accepted_by.cloned(),
        definition: pin.definition().cloned(),
        definition_digest: digest,
        instructions_digest: pin.beside().instructions,
        meta_digest: pin.beside().meta,
        tool: name.to_string(),
    };
    gate.note(EventType::ToolAccepted, payload).await?;
    servers.pin(name, pin);
    Ok(Accepted::As(digest))
}

/// Records which policies are in force, if they differ from the last recorded ones.
pub(crate) async fn note_policy(gate: &Gate, policy_hash: Digest) -> anyhow::Result<()> {
    gate.store.tell_policy(policy_hash).await?;
    if last_noted_policy(gate).await? != Some(policy_hash.to_string()) {
        gate.note(EventType::PolicyLoaded, payload::PolicyLoaded { policy_hash }).await?;
    }
    Ok(())
}

/// The digest of the policies that any process loaded last.
pub(crate) async fn last_noted_policy(gate: &Gate) -> anyhow::Result<Option<String>> {
    let noted = gate.noted(&[EventType::PolicyLoaded]).await?;
    let last = noted.last().and_then(|event| event.payload.get("policy_hash"));
    Ok(last.and_then(Value::as_str).map(str::to_owned))
}
