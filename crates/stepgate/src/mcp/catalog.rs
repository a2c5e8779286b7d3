//! Which tools there are, with everything that clients are told of them.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use stepgate_agent::ports::OfferedTool;
use stepgate_core::action::Action;
use stepgate_core::digest::Digest;
use stepgate_core::ids::PrincipalId;
use stepgate_core::json::{Map, Value};
use stepgate_core::tool::{Mode, ToolName};
use stepgate_exec::servers::{ListedTool, Off};

use super::core_tools;
use crate::assembly::McpNames;
use crate::service::Service;

/// What keys of `_meta` begin with that are the gate's own.
const OWN_META: &str = "stepgate/";
/// Longest `_meta` of a tool that is passed on, as JSON.
pub(super) const META_BYTES_MAX: usize = 16 * 1024;

/// One tool as it is offered.
pub(super) struct Offered {
    /// What a proposal calls it.
    pub(super) action: String,
    pub(super) definition: Tool,
}

/// The table: every name with what it stands for.
pub(super) struct Catalog {
    by_name: BTreeMap<String, Offered>,
    /// What servers say about themselves, as far as it was accepted.
    instructions: BTreeMap<String, String>,
    policy: Digest,
}

impl Catalog {
    /// Everything that can be called now, and the tools that are off because another one has their name.
    pub(super) fn of(service: &Service, own_names: Option<&str>) -> (Self, Vec<Off>) {
        let core = Action::ALL.into_iter().map(|action| Offered {
            action: action.name().to_owned(),
            definition: core_tools::definition(action),
        });
        let Some(control) = &service.control else {
            let (instructions, policy) = (BTreeMap::new(), Digest::of_bytes(b""));
            return (Self { by_name: by_name(core), instructions, policy }, Vec::new());
        };
        let listing = control.servers.listing();
        let McpNames { tools, off } = McpNames::of(&listing, own_names);
        let of_servers = tools.into_iter().filter_map(|(name, listed)| offered(name, listed));
        let servers = control.servers.servers().into_iter();
        let accepted = servers.filter(|server| server.are_instructions_accepted);
        let catalog = Self {
            by_name: by_name(core.chain(of_servers)),
            instructions: accepted
                .filter_map(|server| Some((server.name, server.instructions?)))
                .collect(),
            policy: control.policy.current().digest(),
        };
        (catalog, off)
    }

    pub(super) fn named(&self, name: &str) -> Option<&Offered> {
        self.by_name.get(name)
    }

    /// Whether this tool promises what its results look like.
    pub(super) fn has_output_schema(&self, action: &str) -> bool {
        let mut offered = self.by_name.values().filter(|offered| offered.action == action);
        offered.any(|offered| offered.definition.output_schema.is_some())
    }

    /// What this principal could ever be permitted, in the order of the names.
    pub(super) fn list(&self, service: &Service, principal_id: &PrincipalId) -> Vec<Tool> {
        let policy = &service.gate.policy;
        let offered = self.by_name.values();
        let could = |offered: &&Offered| policy.could_permit(principal_id, &offered.action);
        offered.filter(could).map(|offered| offered.definition.clone()).collect()
    }

    /// What the servers say about themselves of which this principal could ever be permitted a tool, by their
    /// names.
    pub(super) fn instructions(
        &self,
        service: &Service,
        principal_id: &PrincipalId,
    ) -> impl Iterator<Item = (&str, &str)> {
        let policy = &service.gate.policy;
        let offered = self.by_name.values();
        let could = offered.filter(|offered| policy.could_permit(principal_id, &offered.action));
        let names = could.filter_map(|offered| ToolName::parse(&offered.action).ok());
        let servers: BTreeSet<String> = names.map(|name| name.server().to_owned()).collect();
        let told = self.instructions.iter().filter(move |(server, _)| servers.contains(*server));
        told.map(|(server, text)| (server.as_str(), text.as_str()))
    }

    /// The same for a model, without what is only for agents that propose by themselves.
    pub(super) fn offered_to(
        &self,
        service: &Service,
        principal_id: &PrincipalId,
    ) -> Vec<OfferedTool> {
        let is_for_models = |offered: &&Offered| match Action::parse(&offered.action) {
            Some(Action::Think | Action::Finish) => false,
            Some(
                Action::ReadFile
                | Action::ListFiles
                | Action::WriteFile
                | Action::CreateDirectory
                | Action::DeleteFile
                | Action::RenameFile,
            )
            | None => service.gate.policy.could_permit(principal_id, &offered.action),
        };
        let offered = self.by_name.iter().filter(|(_, offered)| is_for_models(offered));
        offered
            .map(|(name, offered)| OfferedTool {
                name: name.clone(),
                action: offered.action.clone(),
                description: offered.definition.description.as_deref().map(str::to_owned),
                parameters: Value::Object((*offered.definition.input_schema).clone()),
            })
            .collect()
    }

    /// Enough to see that something has changed.
    pub(super) fn look(&self) -> Digest {
        let definitions: Vec<&Tool> = self.by_name.values().map(|it| &it.definition).collect();
        Digest::of(&(self.policy, definitions, &self.instructions))
    }
}

fn by_name(offered: impl Iterator<Item = Offered>) -> BTreeMap<String, Offered> {
    offered.map(|offered| (offered.definition.name.to_string(), offered)).collect()
}

/// A tool under the name that it has over MCP.
fn offered(name: String, listed: &ListedTool) -> Option<Offered> {
    let mode = listed.mode?;
    let action = ToolName::of(&listed.server, &listed.tool).ok()?;
    let mut definition = Tool::new_with_raw(
        name,
        listed.description.clone().map(Into::into),
        object(&listed.input_schema)?,
    )
    .with_annotations(annotations(mode));
    definition.title.clone_from(&listed.title);
    definition.icons = listed.icons.clone().and_then(|icons| serde_json::from_value(icons).ok());
    definition.meta = listed.meta.as_ref().filter(|_| listed.is_meta_accepted).and_then(passed_on);
    // Clients before 2025-06-18 know no other title than that of the annotations.
    if let Some(annotations) = &mut definition.annotations {
        annotations.title.clone_from(&listed.title);
    }
    if let Some(output_schema) = &listed.output_schema {
        definition = definition.with_raw_output_schema(object(output_schema)?.into());
    }
    Some(Offered { action: action.to_string(), definition })
}

/// The `_meta` of a tool without what only the gate says; nothing, where it is too long.
fn passed_on(meta: &Value) -> Option<MetaObject> {
    let mut meta = object(meta)?;
    meta.retain(|key, _| !key.to_ascii_lowercase().starts_with(OWN_META));
    let is_short = Value::Object(meta.clone()).to_string().len() <= META_BYTES_MAX;
    (is_short && !meta.is_empty()).then_some(MetaObject(meta))
}

fn object(schema: &Value) -> Option<Map<String, Value>> {
    schema.as_object().cloned()
}

/// What the configuration says of the tool; what its server says is advice, and not repeated.
fn annotations(mode: Mode) -> ToolAnnotations {
    let annotations = ToolAnnotations::new().open_world(true);
    match mode {
        Mode::ReadOnly => annotations.read_only(true),
        Mode::Draft => annotations.read_only(false).destructive(false),
        Mode::ExecuteGated => annotations.read_only(false).destructive(true),
    }
}

#[cfg(test)]
mod tests;
