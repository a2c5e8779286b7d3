//! Checks the names in policies: a path, tool, server or principal that cannot exist would never match, and
//! a `forbid` about it would forbid nothing.

use std::collections::BTreeSet;

use cedar_policy::EntityUid;
use stepgate_core::action::{Action, CORE_SERVER};
use stepgate_core::ids::PrincipalId;
use stepgate_core::path::SandboxPath;

use crate::question::path_id;
use crate::schema::has_path;
use crate::shape::ToolShape;

/// The names that exist.
pub(crate) struct Known<'a> {
    tools: BTreeSet<&'a str>,
    servers: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    pub(crate) fn new(tools: &'a [ToolShape]) -> Self {
        let mut names: BTreeSet<&'a str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let core = Action::ALL.into_iter().filter(|action| !has_path(*action));
        names.extend(core.map(|action| -> &'a str { action.name() }));
        let servers = tools.iter().map(|tool| tool.name.server());
        Self { tools: names, servers: servers.chain([CORE_SERVER]).collect() }
    }

    /// The problem with an entity that a policy names, and the remedy.
    pub(crate) fn refusal(&self, entity: &EntityUid) -> Option<String> {
        let id: &str = entity.id().unescaped();
        match entity.type_name().basename() {
            "Path" => wrong_path(id),
            "Tool" if !self.tools.contains(id) => Some(format!(
                "there is no tool `{id}`; configure its server first, or correct the name"
            )),
            "Server" if !self.servers.contains(id) => Some(format!(
                "there is no server `{id}` with a tool; configure it first, or correct the name \
                 (known: {})",
                listed(self.servers.iter().copied().filter(|name| *name != CORE_SERVER))
            )),
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
    const SHOWN_MAX: usize = 12;
    let mut shown: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if shown.is_empty() {
        return "none".to_owned();
    }
    if shown.len() > SHOWN_MAX {
        shown.truncate(SHOWN_MAX);
        shown.push("…".to_owned());
    }
    shown.join(", ")
}
