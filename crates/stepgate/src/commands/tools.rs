//! `stepgate tools`: the tools that a proposal can name, and which definitions are accepted.

mod diff;

use anyhow::{Context, ensure};
use axum::http::Method;
use serde_json::{Value, json};
use stepgate_core::tool::ToolName;

use super::{confirm, print_one, rows, text};
use crate::cli::ToolsCommand;
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show::{self, Cell, DIM, ERROR, Table};

/// Characters of a definition's digest that are shown, and that are enough to name it.
const DEFINITION_CHARS: usize = 12;

pub(super) async fn tools(data: &DataDir, command: Option<ToolsCommand>) -> anyhow::Result<()> {
    match command {
        None => {
            let mut client = Client::of(data, Role::Auditor).await?;
            list(&client.get("/v1/tools").await?, data.global.json)
        }
        Some(ToolsCommand::Diff { name }) => {
            let mut client = Client::of(data, Role::Auditor).await?;
            let compared = client.ask(Method::GET, &path_of(&name), None).await?;
            let compared = compared.json().with_context(|| format!("there is no tool `{name}`"))?;
            match data.global.json {
                true => show::json(&compared),
                false => tell_diff(&name, &compared),
            }
        }
        Some(ToolsCommand::Accept { names, definition }) => {
            let listed: Vec<_> = names.iter().map(ToolName::as_str).collect();
            let question =
                format!("accept {} as `stepgate tools diff` shows it?", listed.join(", "));
            let mut client = confirm::operator(data, &question).await?;
            for name in names {
                let path = format!("{}/accept", path_of(&name));
                let seen = match &definition {
                    Some(definition) => Some(seen(&mut client, &name, definition).await?),
                    None => None,
                };
                let accepted = client.ask(Method::POST, &path, seen.as_ref()).await?;
                let accepted =
                    accepted.json().with_context(|| format!("`{name}` is not accepted"))?;
                let digest = accepted.get("definition_digest").and_then(Value::as_str);
                let words = || format!("accepted {name}, definition {}", digest.unwrap_or("-"));
                print_one(&accepted, &data.global, words)?;
            }
            Ok(())
        }
    }
}

pub(super) fn path_of(name: &ToolName) -> String {
    format!("/v1/tools/{}", name.as_str().replace('/', "%2F"))
}

/// Finds the definition whose digest begins like this. The gateway compares the whole digest.
async fn seen(client: &mut Client, name: &ToolName, definition: &str) -> anyhow::Result<Value> {
    ensure!(
        definition.len() >= DEFINITION_CHARS,
        "--definition has at least {DEFINITION_CHARS} characters"
    );
    let reply = client.get("/v1/tools").await?;
    let named = rows(&reply, "tools").iter().find(|tool| text(tool, "name") == name.as_str());
    let digest = named.map(|tool| text(tool, "definition_digest")).unwrap_or_default();
    ensure!(
        digest.starts_with(definition),
        "the definition of `{name}` is `{digest}`, and not the one that you have seen: look again"
    );
    Ok(json!({ "definition_digest": digest }))
}

fn tell_diff(name: &ToolName, compared: &Value) -> anyhow::Result<()> {
    let member = |name: &str| compared.get(name).filter(|value| !value.is_null());
    let (accepted, present) = (member("accepted"), member("present"));
    let was_accepted = member("accepted_digest").is_some();
    match (was_accepted, accepted, present) {
        (_, _, None) => show::say(format!("`{name}` is not there: its server does not list it"))?,
        (false, _, _) => show::say(format!("`{name}` is new: no operator has accepted it"))?,
        (true, None, Some(_)) => show::say(format!(
            "`{name}`: the accepted definition was not kept, only its digest; this is the present one"
        ))?,
        (true, Some(_), Some(_)) => {}
    }
    let lines = diff::lines(accepted, present);
    if lines.is_empty() {
        show::say(format!("`{name}` is as it was accepted"))?;
    }
    lines.iter().try_for_each(show::say)?;
    let beside = [
        (member("unaccepted_meta"), "its _meta"),
        (member("unaccepted_instructions"), "the instructions of its server"),
    ];
    for (value, what) in beside {
        if let Some(value) = value {
            let value = show::printable(&value.to_string());
            show::say(format!("not accepted, and not told to MCP clients: {what}: {value}"))?;
        }
    }
    Ok(())
}

fn list(reply: &Value, json: bool) -> anyhow::Result<()> {
    let (tools, off, servers) = (rows(reply, "tools"), rows(reply, "off"), rows(reply, "servers"));
    if json {
        tools.iter().try_for_each(show::json)?;
        return off.iter().try_for_each(|off| show::json(&json!({ "off": off })));
    }
    show::say(table(tools))?;
    let text = |value: &Value, name: &str| show::printable(text(value, name));
    for off in off {
        show::say(format!("{ERROR}off{ERROR:#}  {}", text(off, "message")))?;
    }
    let is_unaccepted = |server: &&Value| {
        server.get("instructions").is_some_and(Value::is_string)
            && server.get("instructions_accepted") == Some(&Value::Bool(false))
    };
    for server in servers.iter().filter(is_unaccepted) {
        let name = text(server, "name");
        show::say(format!(
            "{DIM}note{DIM:#} the instructions of `{name}` are not accepted, and not told to MCP clients: \
             look with `stepgate tools diff`, and accept one of its tools"
        ))?;
    }
    for server in servers.iter().filter(|server| text(server, "state") == "off") {
        let name = text(server, "name");
        show::say(format!("{DIM}off{DIM:#}  the configuration turns `{name}` off"))?;
    }
    Ok(())
}

fn table(tools: &[Value]) -> Table<6> {
    let mut table = Table::new(["TOOL", "MODE", "STANDING", "DEFINITION", "SERVER", "DESCRIPTION"]);
    for tool in tools {
        let text = |name: &str| tool.get(name).and_then(Value::as_str);
        let description = text("description").and_then(|text| text.lines().next());
        let description: String = description.unwrap_or("-").chars().take(60).collect();
        let is_off = tool.get("off").and_then(Value::as_bool).unwrap_or_default();
        let mode = match (text("mode"), text("server_state")) {
            (Some(mode), _) => mode,
            (None, Some(_)) if is_off => "off",
            (None, Some(_)) => "not offered",
            (None, None) => "core",
        };
        let standing = match (text("standing"), text("trouble")) {
            (_, Some(_)) => Cell::alarming("unusable"),
            (Some(standing @ ("changed" | "new")), None) => Cell::alarming(standing),
            (standing, None) => Cell::plain(standing.unwrap_or("-")),
        };
        let digest = text("definition_digest").unwrap_or("-");
        let digest: String = digest.chars().take(DEFINITION_CHARS).collect();
        table.add([
            Cell::plain(text("name").unwrap_or("-")),
            Cell::plain(mode),
            standing,
            Cell::plain(digest),
            Cell::plain(text("server_state").unwrap_or("-")),
            Cell::plain(description),
        ]);
    }
    table
}
