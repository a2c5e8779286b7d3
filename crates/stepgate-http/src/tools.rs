//! The tools that a proposal can name, and which of their definitions an operator has accepted.

use std::collections::BTreeSet;

use axum::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepgate_core::action::Action;
use stepgate_core::digest::Digest;
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::Label;
use stepgate_core::tool::{Mode, Standing, Tool, ToolName};
use stepgate_exec::servers::{ListedServer, ListedTool, Off, ServerState};
use stepgate_gateway::catalog;
use stepgate_gateway::control::Accepted;

use super::{App, Caller, Id, JsonBody, Operator, Problem, Reader, Watcher};

/// A tool as people see it.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
struct ToolObject {
    name: String,
    /// None for core actions, which only policy controls, and for tools that are not offered.
    mode: Option<Mode>,
    /// Whether the configuration turns the tool off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    off: bool,
    /// Why the tool cannot be offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
    /// None for a tool that is not offered.
    standing: Option<Standing>,
    definition_digest: Option<Digest>,
    title: Option<String>,
    description: Option<String>,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    /// Arguments that the journal records only as a digest, and that policies do not see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    redacted: Vec<String>,
    /// What its results bring into a session.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    reads: BTreeSet<Label>,
    /// What its calls carry out.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    sends: BTreeSet<Label>,
    /// Whether the configuration says neither `reads` nor `sends` of it: then it counts as one that does neither.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    undeclared: bool,
    /// The memory that its calls read or write.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
    /// The arguments that say where a call goes, or what it acts on; none where the configuration does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    targets: Option<Vec<String>>,
    /// The parts of its results whose values count as records, as JSON Pointers with `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trusted: Vec<String>,
    /// The texts in its results whose addresses may be opened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icons: Option<Value>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<Value>,
    /// Whether MCP clients get `_meta`; none if there is no `_meta`.
    #[serde(skip_serializing_if = "Option::is_none")]
    meta_accepted: Option<bool>,
    /// The state of the tool's server; none for core actions.
    server_state: Option<&'static str>,
    /// Why the server is down.
    server_trouble: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Tools")]
pub(super) struct ToolObjects {
    tools: Vec<ToolObject>,
    /// Only for callers that may see everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<Vec<ServerObject>>,
    /// What is off, and why. Only for callers that may see everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    off: Option<Vec<OffObject>>,
}

/// A tool server as operators see it.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "ToolServer")]
struct ServerObject {
    name: String,
    state: &'static str,
    /// Why it is down.
    trouble: Option<String>,
    /// Whether it has ever listed its tools.
    known: bool,
    /// Its instructions.
    instructions: Option<String>,
    /// Whether MCP clients get its instructions.
    instructions_accepted: bool,
}

/// A server, or a tool with a mode, that cannot be called.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Off")]
pub(super) struct OffObject {
    server: String,
    tool: Option<String>,
    reason: &'static str,
    message: String,
}

impl From<&Off> for OffObject {
    fn from(off: &Off) -> Self {
        Self {
            server: off.server.clone(),
            tool: off.tool.clone(),
            reason: off.reason.code(),
            message: off.to_string(),
        }
    }
}

pub(super) async fn list(Reader(app, caller): Reader) -> Json<ToolObjects> {
    let core = Action::ALL.into_iter().map(catalog::core).map(|offered| ToolObject {
        name: offered.name,
        standing: Some(Standing::Accepted),
        description: offered.description,
        input_schema: Some(offered.input_schema.into()),
        output_schema: offered.output_schema.map(Value::Object),
        ..ToolObject::default()
    });
    let control = app.service.control.as_ref();
    let of_servers = match control {
        Some(control) => listed(&control.servers.listing(), &caller),
        None => app.service.gate.tools.tools().iter().map(|tool| plain(tool)).collect(),
    };
    let for_all = control.filter(|_| caller.sees().is_none());
    Json(ToolObjects {
        tools: core.chain(of_servers).collect(),
        servers: for_all.map(|control| {
            let running = control.servers.servers().into_iter().map(server_object);
            running.chain(control.turned_off.iter().map(|name| turned_off(name))).collect()
        }),
        off: for_all.map(|control| control.off().iter().map(OffObject::from).collect()),
    })
}

/// A tool's present definition, next to the accepted one.
#[derive(Serialize, JsonSchema)]
pub(super) struct ComparedTool {
    name: String,
    accepted_digest: Option<Digest>,
    /// The accepted definition, if there is one and it was stored.
    accepted: Option<Value>,
    present_digest: Option<Digest>,
    /// The server's present definition; none where it has no such tool.
    present: Option<Value>,
    /// The server's instructions, where no operator has accepted them.
    unaccepted_instructions: Option<String>,
    /// The tool's `_meta`, where no operator has accepted it.
    unaccepted_meta: Option<Value>,
}

pub(super) async fn show(
    Watcher(app, _): Watcher,
    Id(name): Id<ToolName>,
) -> Result<Json<ComparedTool>, Problem> {
    let control = app.service.control.as_ref().ok_or_else(Problem::not_found)?;
    let compared = control.servers.compared(&name).ok_or_else(Problem::not_found)?;
    Ok(Json(ComparedTool {
        name: name.to_string(),
        accepted_digest: compared.accepted_digest,
        accepted: compared.accepted,
        present_digest: compared.present.as_ref().map(Digest::of),
        present: compared.present,
        unaccepted_instructions: compared.unaccepted_instructions,
        unaccepted_meta: compared.unaccepted_meta,
    }))
}

fn server_object(listed: ListedServer) -> ServerObject {
    let (state, trouble) = state_of(&listed.state);
    ServerObject {
        name: listed.name,
        state,
        trouble,
        known: listed.is_known,
        instructions: listed.instructions,
        instructions_accepted: listed.are_instructions_accepted,
    }
}

/// A server that the configuration turns off: it is not started.
fn turned_off(name: &str) -> ServerObject {
    ServerObject { name: name.to_owned(), state: "off", ..ServerObject::default() }
}

fn state_of(state: &ServerState) -> (&'static str, Option<String>) {
    match state {
        ServerState::Up => ("up", None),
        ServerState::Resting => ("resting", None),
        ServerState::Down(why) => ("down", Some(why.clone())),
    }
}

/// The tools of servers. An agent does not see tools that it cannot call, nor error details: those name programs,
/// files and addresses of the host.
fn listed(listing: &[ListedTool], caller: &Caller) -> Vec<ToolObject> {
    let sees_all = caller.sees().is_none();
    let is_shown = |listed: &&ListedTool| listed.mode.is_some() || sees_all;
    let shown = listing.iter().filter(is_shown).map(tool_object).map(|tool| match sees_all {
        true => tool,
        false => ToolObject { server_trouble: None, meta: None, meta_accepted: None, ..tool },
    });
    shown.collect()
}

fn tool_object(listed: &ListedTool) -> ToolObject {
    let (server_state, server_trouble) = state_of(&listed.server_state);
    ToolObject {
        name: format!("{}.{}", listed.server, listed.tool),
        mode: listed.mode,
        off: listed.is_off,
        trouble: listed.trouble.clone(),
        standing: listed.standing,
        definition_digest: Some(listed.definition_digest),
        title: listed.title.clone(),
        description: listed.description.clone(),
        input_schema: Some(listed.input_schema.clone()),
        output_schema: listed.output_schema.clone(),
        redacted: listed.redacted.clone(),
        reads: listed.flow.reads.clone(),
        sends: listed.flow.sends.clone(),
        undeclared: listed.flow.is_undeclared,
        memory: listed.flow.memory.clone(),
        targets: listed.flow.targets.clone(),
        trusted: listed.flow.trusted.iter().map(ToString::to_string).collect(),
        links: listed.flow.links.iter().map(ToString::to_string).collect(),
        icons: listed.icons.clone(),
        meta: listed.meta.clone(),
        meta_accepted: listed.meta.as_ref().map(|_| listed.is_meta_accepted),
        server_state: Some(server_state),
        server_trouble,
    }
}

fn plain(tool: &Tool) -> ToolObject {
    ToolObject {
        name: tool.name.to_string(),
        mode: Some(tool.mode),
        standing: Some(tool.standing),
        definition_digest: Some(tool.definition_digest),
        ..ToolObject::default()
    }
}

/// The definition that the operator has seen.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "SeenTool")]
#[serde(deny_unknown_fields)]
pub(super) struct Seen {
    definition_digest: Option<Digest>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct AcceptedTool {
    name: String,
    definition_digest: Digest,
}

pub(super) async fn accept(
    Operator(app, caller): Operator,
    Id(name): Id<ToolName>,
    JsonBody(Seen { definition_digest: seen }): JsonBody<Seen>,
) -> Result<Json<AcceptedTool>, Problem> {
    let definition_digest = accept_as(&app, &caller.principal_id, &name, seen).await?;
    Ok(Json(AcceptedTool { name: name.to_string(), definition_digest }))
}

/// Accepts the present definition of a tool, if it is still the one that the operator has seen.
pub(super) async fn accept_as(
    app: &App,
    operator: &PrincipalId,
    name: &ToolName,
    seen: Option<Digest>,
) -> Result<Digest, Problem> {
    let control = app.service.control.as_ref().ok_or_else(Problem::not_found)?;
    let gate = &app.service.gate;
    match control.accept(gate, name, operator, seen).await? {
        Accepted::As(digest) => {
            control.reload(gate).await;
            Ok(digest)
        }
        Accepted::Another(digest) => Err(Problem::conflict(format!(
            "the tool is another one by now, its definition is {digest}: look at it again"
        ))),
        Accepted::NoSuchTool => Err(Problem::not_found()),
    }
}

#[cfg(test)]
mod tests;
