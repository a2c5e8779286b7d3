//! What operators look at and change beside the gate while it runs: the tool servers, which of their tools
//! are accepted, and the policies.

mod mcp_names;
pub mod pins;
mod reload;
mod shapes;
mod writable;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use stepgate_core::digest::Digest;
use stepgate_core::event::EventType;
use stepgate_core::gate::Gate;
use stepgate_core::ids::PrincipalId;
use stepgate_core::json::Value;
use stepgate_core::tool::ToolName;
use stepgate_exec::Sandbox;
use stepgate_exec::servers::{News, Off, Servers};
use stepgate_policy::{Finding, LivePolicy, Severity};
use tracing::{error, info, warn};

pub(crate) use mcp_names::McpNames;
pub(crate) use reload::Look;
pub use reload::keep_reloading;
pub use shapes::{off, offered, shapes};
pub use writable::{mode_of, refuse_writable, refuse_writable_policies};

/// What came of accepting a tool.
pub enum Accepted {
    /// Its present definition, which has this digest.
    As(Digest),
    /// The tool is another one than was seen.
    Another(Digest),
    /// No server has a tool of this name.
    NoSuchTool,
}

/// What operators look at and change beside the gate.
pub struct Control {
    /// Where core actions act.
    pub sandbox: Arc<Sandbox>,
    /// The tool servers.
    pub servers: Arc<Servers>,
    /// The policies in force.
    pub policy: Arc<LivePolicy>,
    /// The data directory.
    pub(crate) root: PathBuf,
    /// Where the policies are.
    pub(crate) policies: PathBuf,
    /// The servers that the configuration turns off.
    pub(crate) turned_off: Vec<String>,
    /// The server whose tools keep their own names over MCP.
    pub(crate) own_names: Option<String>,
    /// What they and the tools looked like when they were loaded first.
    pub(crate) loaded: Look,
    /// How far it is known which tools operators have accepted.
    pub(crate) accepted: pins::Reading,
}

impl Control {
    /// Makes the present definition of a tool the accepted one, here and on every other node; where an
    /// operator says which one was seen, only that.
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

    /// Loads the policies for the tools as they are now: after a tool was accepted, they are about another one.
    pub async fn reload(self: &Arc<Self>, gate: &Gate) {
        let look = Look::at(&self.policies, &self.servers, &self.turned_off);
        reload::reload(gate, self, look.tools()).await;
    }

    /// Every server, and every tool with a mode, that cannot be called.
    pub fn off(&self) -> Vec<Off> {
        off_of(&self.servers, self.own_names.as_deref())
    }

    /// The servers that the configuration turns off.
    pub fn turned_off(&self) -> &[String] {
        &self.turned_off
    }

    /// Accepts the tools of servers that are seen for the first time.
    pub(crate) async fn accept_first_seen(&self, gate: &Gate) -> anyhow::Result<()> {
        let _accepting = self.accepted.hold().await;
        accept_first_seen(gate, &self.servers).await
    }

    /// Reads what operators have accepted on other nodes.
    pub(crate) async fn read_on(&self, gate: &Gate) -> anyhow::Result<()> {
        Ok(self.accepted.go_on(gate, &self.servers).await?)
    }
}

/// What cannot be called, also for want of a name over MCP.
pub fn off_of(servers: &Servers, own_names: Option<&str>) -> Vec<Off> {
    let mut off = servers.off();
    off.extend(McpNames::of(&servers.listing(), own_names).off);
    off
}

/// Tells an operator what is off, or up again.
pub fn tell(news: &News) {
    match news {
        News::Off(off) => error!(server = off.server, "tool servers: {news}"),
        News::Up(_) => info!("tool servers: {news}"),
    }
}

/// Tells an operator what is doubtful in the policies. Notes are for `policy check` alone.
pub fn warn_of(findings: &[Finding]) {
    for finding in findings {
        match finding.severity {
            Severity::Warning => warn!("{finding}"),
            Severity::Error | Severity::Note => {}
        }
    }
}

/// Trusts servers that no operator knows any tool of, on their first use.
pub(crate) async fn accept_first_seen(gate: &Gate, servers: &Servers) -> anyhow::Result<()> {
    for name in servers.first_seen() {
        accept(gate, servers, &name, None, None).await?;
    }
    Ok(())
}

/// Makes the present definition of a tool the accepted one, durably first. Nobody accepted it where it
/// was seen for the first time. What is accepted is what was written down, whatever the tool is by then.
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
        // That digest says nothing of what the server says beside the definition.
        Some(_) => pin.beside_that_of(servers.accepted(name).as_ref()),
        None => pin,
    };
    let payload = json!({
        "accepted_by": accepted_by,
        "definition": pin.definition(),
        "definition_digest": digest,
        "instructions_digest": pin.beside().instructions,
        "meta_digest": pin.beside().meta,
        "tool": name,
    });
    gate.note(EventType::ToolAccepted, payload).await?;
    servers.pin(name, pin);
    Ok(Accepted::As(digest))
}

/// Notes which policies are in force, where they are others than before.
pub(crate) async fn note_policy(gate: &Gate, policy_hash: Digest) -> anyhow::Result<()> {
    gate.store.tell_policy(policy_hash).await?;
    if last_noted_policy(gate).await? != Some(policy_hash.to_string()) {
        gate.note(EventType::PolicyLoaded, json!({ "policy_hash": policy_hash })).await?;
    }
    Ok(())
}

/// The digest of the policies that were loaded last, by any process.
pub(crate) async fn last_noted_policy(gate: &Gate) -> anyhow::Result<Option<String>> {
    let noted = gate.noted(&[EventType::PolicyLoaded]).await?;
    let last = noted.last().and_then(|event| event.payload.get("policy_hash"));
    Ok(last.and_then(Value::as_str).map(str::to_owned))
}
