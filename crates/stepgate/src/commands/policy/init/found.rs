//! The tools of the configured servers, as the servers describe them.

use serde_json::Value;
use stepgate_core::digest::Digest;
use stepgate_core::tool::ToolName;
use stepgate_exec::servers::{ServerState, Servers};

use crate::client::{Client, Role};
use crate::commands::tools::path_of;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::start;

pub(super) struct FoundTool {
    pub(super) name: ToolName,
    pub(super) description: Option<String>,
    pub(super) input_schema: Value,
    pub(super) hints: Hints,
    pub(super) definition_digest: Digest,
    /// Why it cannot be offered as it is configured, if it cannot.
    pub(super) trouble: Option<String>,
}

impl FoundTool {
    pub(super) fn arguments(&self) -> impl Iterator<Item = &str> {
        let properties = self.input_schema.get("properties").and_then(Value::as_object);
        properties.into_iter().flat_map(|it| it.keys().map(String::as_str))
    }
}

/// What a server says about a tool of its own (`annotations`). It is advice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    pub(super) read_only: Option<bool>,
    pub(super) destructive: Option<bool>,
    pub(super) open_world: Option<bool>,
}

impl Hints {
    pub(super) fn of(annotations: &Value) -> Self {
        let hint = |name: &str| annotations.get(name).and_then(Value::as_bool);
        Self {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            open_world: hint("openWorldHint"),
        }
    }
}

#[derive(Default)]
pub(super) struct Found {
    pub(super) tools: Vec<FoundTool>,
    /// Servers whose tools are not known, and tools that have no name that a proposal can spell, with the reason.
    pub(super) missing: Vec<String>,
}

/// The tools: from the process that holds the directory, or else from the servers, started now for this.
pub(super) async fn tools(data: &DataDir, config: &Config) -> anyhow::Result<Found> {
    let mut found = match Client::elsewhere(data, Role::Auditor).await? {
        Some(mut client) => of_gateway(&mut client, config).await?,
        None => {
            let servers = start::servers(data, config, Default::default()).await?;
            let found = of_servers(&servers);
            servers.shutdown().await;
            found
        }
    };
    found.tools.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn of_servers(servers: &Servers) -> Found {
    let mut found = Found::default();
    for server in servers.servers().into_iter().filter(|server| !server.is_known) {
        let why = match server.state {
            ServerState::Down(why) => why,
            ServerState::Up | ServerState::Resting => "it has not listed its tools".to_owned(),
        };
        found.missing.push(format!("the tools of `{}`: {why}", server.name));
    }
    for listed in servers.listing() {
        let Ok(name) = ToolName::of(&listed.server, &listed.tool) else {
            found.missing.push(unspellable(&listed.server, &listed.tool));
            continue;
        };
        let definition = servers.compared(&name).and_then(|compared| compared.present);
        let hints = definition.as_ref().and_then(|it| it.get("annotations")).map(Hints::of);
        found.tools.push(FoundTool {
            name,
            description: listed.description,
            input_schema: listed.input_schema,
            hints: hints.unwrap_or_default(),
            definition_digest: listed.bound_digest,
            trouble: listed.trouble,
        });
    }
    found
}

async fn of_gateway(client: &mut Client, config: &Config) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let reply = client.get("/v1/tools").await?;
    let all = |name: &str| reply.get(name).and_then(Value::as_array).into_iter().flatten();
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    for name in config.servers.keys() {
        let running = all("servers").find(|server| text(server, "name").as_ref() == Some(name));
        let is_known = running.is_some_and(|it| it.get("known") == Some(&Value::Bool(true)));
        let why = match running {
            None => "the running gateway does not know it: restart `stepgate serve`".to_owned(),
            Some(server) if text(server, "state").as_deref() == Some("off") => continue,
            Some(server) => text(server, "trouble").unwrap_or_default(),
        };
        if !is_known {
            found.missing.push(format!("the tools of `{name}`: {why}"));
        }
    }
    for tool in all("tools").filter(|tool| tool.get("server_state").is_some_and(Value::is_string)) {
        let Some(full) = text(tool, "name") else { continue };
        let Ok(name) = ToolName::parse(&full) else {
            let (server, tool) = full.split_once('.').unwrap_or((&full, ""));
            found.missing.push(unspellable(server, tool));
            continue;
        };
        let definition = client.get(&path_of(&name)).await?;
        let annotations = definition.get("present").and_then(|it| it.get("annotations"));
        let digest = text(tool, "definition_digest").and_then(|digest| digest.parse().ok());
        found.tools.push(FoundTool {
            description: text(tool, "description"),
            input_schema: tool.get("input_schema").cloned().unwrap_or_default(),
            hints: annotations.map(Hints::of).unwrap_or_default(),
            definition_digest: digest.unwrap_or(Digest::ZERO),
            trouble: text(tool, "trouble"),
            name,
        });
    }
    Ok(found)
}

fn unspellable(server: &str, tool: &str) -> String {
    format!("the tool `{tool}` of `{server}`: a proposal cannot spell its name")
}
