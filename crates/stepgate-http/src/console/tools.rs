//! `/tools`: what agents can call, which definitions are accepted, and what changed.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde_json::Value;
use stepgate_core::action::Action;
use stepgate_core::digest::Digest;
use stepgate_core::tool::{Standing, ToolName};
use stepgate_exec::servers::{ListedServer, ListedTool, ServerState};

use super::difference::Difference;
use super::form::Sent;
use super::question::tool_path;
use super::{Frame, Shown, Tab, Text, Trouble, Visit, html};
use crate::{Id, Problem, tools};

#[derive(Template)]
#[template(path = "tools.html")]
struct ToolsPage {
    frame: Frame,
    servers: Vec<ServerRow>,
    core: Vec<(&'static str, &'static str)>,
}

/// A tool server with its tools.
struct ServerRow {
    name: Text,
    state: &'static str,
    class: &'static str,
    trouble: Option<Shown>,
    tools: Vec<ToolRow>,
}

struct ToolRow {
    name: Text,
    path: String,
    mode: &'static str,
    class: &'static str,
    standing: &'static str,
    description: Option<Shown>,
    trouble: Option<Shown>,
}

#[derive(Template)]
#[template(path = "tool.html")]
struct ToolPage {
    frame: Frame,
    name: Text,
    path: String,
    /// The CSRF token and the digest of the definition on the page, if the visitor can accept it.
    accept: Option<(String, Digest)>,
    /// Whether the present definition is the accepted one.
    is_accepted: bool,
    accepted_digest: Option<Digest>,
    present_digest: Option<Digest>,
    change: Option<Difference>,
    definition: Option<Shown>,
    instructions: Option<Shown>,
    meta: Option<Shown>,
}

pub(super) async fn list(Visit(app, visitor): Visit) -> Response {
    let control = app.service.control.as_ref();
    let listing = control.map(|control| control.servers.listing()).unwrap_or_default();
    let servers = control.map(|control| control.servers.servers()).unwrap_or_default();
    let page = ToolsPage {
        frame: Frame::at(Tab::Tools, "Tools", &visitor),
        servers: servers.iter().map(|server| ServerRow::of(server, &listing)).collect(),
        core: Action::ALL.iter().map(|action| (action.name(), action.intent())).collect(),
    };
    html(StatusCode::OK, &page)
}

impl ServerRow {
    fn of(server: &ListedServer, listing: &[ListedTool]) -> Self {
        let (state, class, trouble) = match &server.state {
            ServerState::Up => ("up", "good", None),
            ServerState::Resting => ("resting after failures", "pending", None),
            ServerState::Down(why) => ("down", "bad", Some(Shown::of(why))),
        };
        let tools = listing.iter().filter(|tool| tool.server == server.name);
        let tools = tools.filter_map(ToolRow::of).collect();
        Self { name: Text::of(&server.name), state, class, trouble, tools }
    }
}

impl ToolRow {
    /// None for a name that no proposal could spell.
    fn of(listed: &ListedTool) -> Option<Self> {
        let name = ToolName::parse(&format!("{}.{}", listed.server, listed.tool)).ok()?;
        let (class, standing) = match listed.standing {
            Some(Standing::Accepted) => ("good", "accepted"),
            Some(Standing::Changed) => ("pending", "changed"),
            Some(Standing::New) => ("pending", "new"),
            Some(Standing::Gone) => ("denied", "gone"),
            None => ("denied", "not offered"),
        };
        Some(Self {
            name: Text::of(name.as_str()),
            path: tool_path(&name),
            mode: listed.mode.map_or("", |mode| mode.as_str()),
            class,
            standing,
            description: listed.description.as_deref().map(Shown::of),
            trouble: listed.trouble.as_deref().map(Shown::of),
        })
    }
}

pub(super) async fn show(
    Visit(app, visitor): Visit,
    id: Result<Id<ToolName>, Problem>,
) -> Result<Response, Trouble> {
    let Ok(Id(name)) = id else { return Err(Trouble::no_such("tool")) };
    let control = app.service.control.as_ref();
    let compared = control.and_then(|control| control.servers.compared(&name));
    let compared = compared.ok_or_else(|| Trouble::no_such("tool"))?;
    let present_digest = compared.present.as_ref().map(Digest::of);
    let is_unaccepted = present_digest.is_some() && present_digest != compared.accepted_digest;
    let accept = visitor.operator_csrf().zip(present_digest).filter(|_| is_unaccepted);
    let pretty = |value: &Value| format!("{value:#}");
    let change = match (&compared.accepted, &compared.present) {
        (Some(accepted), Some(present)) if is_unaccepted => {
            Some(Difference::between(&pretty(accepted), &pretty(present)))
        }
        (_, _) => None,
    };
    let page = ToolPage {
        frame: Frame::at(Tab::Tools, name.to_string(), &visitor),
        path: tool_path(&name),
        name: Text::of(name.as_str()),
        accept,
        is_accepted: present_digest.is_some() && !is_unaccepted,
        accepted_digest: compared.accepted_digest,
        present_digest,
        change,
        definition: compared.present.as_ref().map(Shown::value),
        instructions: compared.unaccepted_instructions.as_deref().map(Shown::of),
        meta: compared.unaccepted_meta.as_ref().map(Shown::value),
    };
    Ok(html(StatusCode::OK, &page))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AcceptForm {
    csrf: String,
    definition_digest: Digest,
}

/// Accepts the definition that the page showed. If the server has changed it meanwhile, nothing is accepted.
pub(super) async fn accept(
    Visit(app, visitor): Visit,
    id: Result<Id<ToolName>, Problem>,
    Sent(AcceptForm { csrf, definition_digest }): Sent<AcceptForm>,
) -> Result<Response, Trouble> {
    visitor.may_change(&csrf)?;
    let Ok(Id(name)) = id else { return Err(Trouble::no_such("tool")) };
    tools::accept_as(&app, &visitor.principal_id, &name, Some(definition_digest)).await?;
    Ok(Redirect::to(&format!("/tools/{}", tool_path(&name))).into_response())
}
