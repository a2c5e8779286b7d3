//! The tools that are offered, with everything that clients are shown about them.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use stepgate_core::action::Action;
use stepgate_core::digest::Digest;
use stepgate_core::ids::PrincipalId;
use stepgate_core::json::Value;
use stepgate_core::tool::{Mode, ToolName};
use stepgate_exec::servers::{ListedTool, Off};
use stepgate_gateway::catalog::{self, Source};
use stepgate_gateway::service::Service;

/// Prefix of `_meta` keys that only the gate may set.
const OWN_META: &str = "stepgate/";
/// Longest `_meta` of a tool that is passed on, in bytes of JSON.
pub(super) const META_BYTES_MAX: usize = 16 * 1024;

pub(super) struct Offered {
    /// The action that a proposal names.
    pub(super) action: String,
    pub(super) definition: Tool,
}

pub(super) struct Catalog {
    by_name: BTreeMap<String, Offered>,
    /// The accepted instructions of tool servers, by server name.
    instructions: BTreeMap<String, String>,
    policy: Digest,
}

impl Catalog {
    /// Every tool that can be called now, and the tools that are off because another tool already has their name.
    pub(super) fn of(service: &Service, own_names: Option<&str>) -> (Self, Vec<Off>) {
        let (offered, off) = catalog::offered(service, own_names);
        let by_name = offered.into_iter().map(|offered| (offered.name.clone(), named(offered)));
        let by_name = by_name.collect();
        let Some(control) = &service.control else {
            let (instructions, policy) = (BTreeMap::new(), Digest::of_bytes(b""));
            return (Self { by_name, instructions, policy }, off);
        };
        let servers = control.servers.servers().into_iter();
        let accepted = servers.filter(|server| server.are_instructions_accepted);
        let catalog = Self {
            by_name,
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

    pub(super) fn has_output_schema(&self, action: &str) -> bool {
        let mut offered = self.by_name.values().filter(|offered| offered.action == action);
        offered.any(|offered| offered.definition.output_schema.is_some())
    }

    /// The tools that policy could permit to this principal, sorted by name.
    pub(super) fn list(&self, service: &Service, principal_id: &PrincipalId) -> Vec<Tool> {
        let gate = &service.gate;
        let offered = self.by_name.values();
        let could = |offered: &&Offered| gate.prospect(principal_id, &offered.action).could_permit;
        offered.filter(could).map(|offered| offered.definition.clone()).collect()
    }

    /// The instructions of the servers that have a tool which policy could permit to this principal, sorted by name.
    pub(super) fn instructions(
        &self,
        service: &Service,
        principal_id: &PrincipalId,
    ) -> impl Iterator<Item = (&str, &str)> {
        let gate = &service.gate;
        let offered = self.by_name.values();
        let could =
            offered.filter(|offered| gate.prospect(principal_id, &offered.action).could_permit);
        let names = could.filter_map(|offered| ToolName::parse(&offered.action).ok());
        let servers: BTreeSet<String> = names.map(|name| name.server().to_owned()).collect();
        let told = self.instructions.iter().filter(move |(server, _)| servers.contains(*server));
        told.map(|(server, text)| (server.as_str(), text.as_str()))
    }

    /// A digest that changes when anything in the catalogue changes.
    pub(super) fn look(&self) -> Digest {
        let definitions: Vec<&Tool> = self.by_name.values().map(|it| &it.definition).collect();
        Digest::of(&(self.policy, definitions, &self.instructions))
    }
}

/// The tool as an MCP definition.
fn named(offered: catalog::Offered) -> Offered {
    let catalog::Offered { name, action, description, input_schema, output_schema, source } =
        offered;
    let mut definition = Tool::new_with_raw(name, description.map(Into::into), input_schema);
    if let Some(output_schema) = output_schema {
        definition = definition.with_raw_output_schema(output_schema.into());
    }
    let definition = match source {
        Source::Core(action) => definition.with_annotations(core_annotations(action)),
        Source::Server(mode, listed) => of_server(definition, mode, &listed),
    };
    Offered { action, definition }
}

/// Adds what a server's tool has beside its schemas: title, icons and `_meta`.
fn of_server(definition: Tool, mode: Mode, listed: &ListedTool) -> Tool {
    let mut annotations = annotations(mode);
    // Clients before 2025-06-18 read the title only from the annotations.
    annotations.title.clone_from(&listed.title);
    let mut definition = definition.with_annotations(annotations);
    definition.title.clone_from(&listed.title);
    definition.icons = listed.icons.clone().and_then(|icons| serde_json::from_value(icons).ok());
    definition.meta = listed.meta.as_ref().filter(|_| listed.is_meta_accepted).and_then(passed_on);
    definition
}

/// The `_meta` of a tool without keys that are reserved for the gate; none if it is too long.
fn passed_on(meta: &Value) -> Option<MetaObject> {
    let mut meta = meta.as_object()?.clone();
    meta.retain(|key, _| !key.to_ascii_lowercase().starts_with(OWN_META));
    let is_short = Value::Object(meta.clone()).to_string().len() <= META_BYTES_MAX;
    (is_short && !meta.is_empty()).then_some(MetaObject(meta))
}

/// Annotations from the configured mode. Those of the server are only hints and are not repeated.
fn annotations(mode: Mode) -> ToolAnnotations {
    let annotations = ToolAnnotations::new().open_world(true);
    match mode {
        Mode::ReadOnly => annotations.read_only(true),
        Mode::Draft => annotations.read_only(false).destructive(false),
        Mode::ExecuteGated => annotations.read_only(false).destructive(true),
    }
}

fn core_annotations(action: Action) -> ToolAnnotations {
    let annotations = ToolAnnotations::new().open_world(false);
    match action {
        Action::Think | Action::Finish | Action::ReadFile | Action::ListFiles => {
            annotations.read_only(true)
        }
        Action::CreateDirectory => annotations.read_only(false).destructive(false).idempotent(true),
        Action::WriteFile => annotations.read_only(false).destructive(true).idempotent(true),
        Action::DeleteFile | Action::RenameFile => annotations.read_only(false).destructive(true),
    }
}

#[cfg(test)]
mod tests;
