//! Checks the names in policies: a path, tool, server or principal that cannot exist would never match, and
//! a `forbid` about it would forbid nothing.

use std::collections::BTreeSet;

use cedar_policy::EntityUid;
use stepgate_core::action::{Action, CORE_SERVER};
use stepgate_core::facts::FactNames;
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::Label;
use stepgate_core::origin::Origin;
use stepgate_core::path::SandboxPath;

use crate::question::path_id;
use crate::schema::has_path;
use crate::shape::ToolShape;

/// The names that exist.
pub(crate) struct Known<'a> {
    pub(crate) tools: &'a [ToolShape],
    pub(crate) names: &'a FactNames,
    tool_names: BTreeSet<&'a str>,
    servers: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    pub(crate) fn new(tools: &'a [ToolShape], facts: &'a FactNames) -> Self {
        let mut names: BTreeSet<&'a str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let core = Action::ALL.into_iter().filter(|action| !has_path(*action));
        names.extend(core.map(|action| -> &'a str { action.name() }));
        let servers = tools.iter().map(|tool| tool.name.server());
        let servers = servers.chain([CORE_SERVER]).collect();
        Self { tools, names: facts, tool_names: names, servers }
    }

    /// Every origin that a value can have, except that of the agent.
    pub(crate) fn origins(&self) -> BTreeSet<Origin> {
        let common = Origin::COMMON.iter().filter(|name| **name != Origin::AGENT);
        let common = common.filter_map(|name| Origin::parse(name).ok());
        let directories = self.names.directories.iter().map(|name| Origin::directory(name));
        let trusted = self.tools.iter().filter(|tool| !tool.flow.trusted.is_empty());
        common
            .chain(directories)
            .chain(trusted.map(|tool| Origin::tool(tool.name.as_str())))
            .collect()
    }

    /// The problem with the name of an origin.
    pub(crate) fn wrong_origin(&self, id: &str) -> Option<String> {
        let known = self.origins();
        if id == Origin::AGENT || known.iter().any(|origin| origin.as_str() == id) {
            return None;
        }
        let tool = self.tools.iter().find(|tool| tool.name.as_str() == id);
        let why = match (tool, id.split_once('/')) {
            // What is off cannot be looked at: no call of it reaches policies.
            (Some(tool), _) if !tool.is_accepted => return None,
            (Some(_), _) => format!(
                "nothing in the results of `{id}` is trusted; name it by `trusted` in stepgate.toml"
            ),
            (None, Some(("directory", name))) => {
                format!("there is no directory `{name}`; add `[directory.{name}]` to stepgate.toml")
            }
            (None, _) if id.contains('.') => {
                format!("there is no tool `{id}`; configure its server first")
            }
            (None, _) => format!("there is no origin `{id}`"),
        };
        let known = known.iter().map(Origin::as_str).chain([Origin::AGENT]);
        Some(format!("{why}, or correct the name (known: {})", listed(known)))
    }

    /// The problem with an entity that a policy names, and the remedy.
    pub(crate) fn refusal(&self, entity: &EntityUid) -> Option<String> {
        let id: &str = entity.id().unescaped();
        match entity.type_name().basename() {
            "Path" => wrong_path(id),
            "Tool" if !self.tool_names.contains(id) => Some(format!(
                "there is no tool `{id}`; configure its server first, or correct the name"
            )),
            "Server" if !self.servers.contains(id) => Some(format!(
                "there is no server `{id}` with a tool; configure it first, or correct the name \
                 (known: {})",
                listed(self.servers.iter().copied().filter(|name| *name != CORE_SERVER))
            )),
            "Group" if !self.names.groups.contains(id) => Some(format!(
                "there is no group `{id}`; add it to `[groups]` in stepgate.toml, or correct the \
                 name (known: {})",
                listed(self.names.groups.iter().map(String::as_str))
            )),
            "Label" if !self.names.labels.iter().any(|label| label.as_str() == id) => {
                Some(format!(
                    "there is no label `{id}`: nothing has it; let a tool have it by `reads` or \
                     `sends` in stepgate.toml, or correct the name (known: {})",
                    listed(self.names.labels.iter().map(Label::as_str))
                ))
            }
            "Window" if !self.names.windows.contains(id) => Some(format!(
                "there is no window `{id}`; add `[schedule.{id}]` to stepgate.toml, or correct the \
                 name (known: {})",
                listed(self.names.windows.iter().map(String::as_str))
            )),
            "Origin" => self.wrong_origin(id),
            "Principal" => PrincipalId::parse(id).err().map(|error| error.to_string()),
            // Cedar's validator checks types and actions.
            _ => None,
        }
    }
}

fn wrong_path(id: &str) -> Option<String> {
    let path = match id {
        // Only the root has a trailing slash in the core's spelling.
        "/sandbox" => SandboxPath::directory("/sandbox/"),
        _ => SandboxPath::directory(id),
    };
    match path {
        Ok(path) if path_id(&path) == id => None,
        Ok(path) => {
            Some(format!("`Path::{id:?}` would match nothing; write `Path::{:?}`", path_id(&path)))
        }
        Err(error) => Some(format!(
            "`Path::{id:?}` would match nothing: {error}; write a path like \
             `Path::\"/sandbox/reports\"`"
        )),
    }
}

/// Names for a message, up to a limit.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    listed_up_to(12, names)
}

/// Names for a message, up to this many.
pub(crate) fn listed_up_to<'a>(shown_max: usize, names: impl Iterator<Item = &'a str>) -> String {
    let mut shown: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if shown.is_empty() {
        return "none".to_owned();
    }
    if shown.len() > shown_max {
        shown.truncate(shown_max);
        shown.push("…".to_owned());
    }
    shown.join(", ")
}
