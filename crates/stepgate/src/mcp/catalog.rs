//! Which tools there are, under names that the model APIs take.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use stepgate_agent::ports::OfferedTool;
use stepgate_core::action::Action;
use stepgate_core::digest::Digest;
use stepgate_core::ids::PrincipalId;
use stepgate_core::json::{Map, Value};
use stepgate_core::tool::{Mode, Standing, ToolName};
use stepgate_exec::servers::ListedTool;

use super::core_tools;
use crate::service::Service;

/// Longest name that the model APIs take.
const NAME_BYTES_MAX: usize = 64;
/// What ends a name that was too long: enough of a digest to tell two of them apart.
const TAIL_BYTES: usize = 9;

/// What keys of `_meta` begin with that are the gate's own.
const OWN_META: &str = "stepgate/";
/// Longest `_meta` of a tool that is passed on, as JSON.
pub(super) const META_BYTES_MAX: usize = 16 * 1024;

/// Two tools with one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collision {
    name: String,
    tools: [String; 2],
}

impl std::error::Error for Collision {}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = &self.tools;
        write!(
            f,
            "`{first}` and `{second}` would both be called `{}` over MCP: rename one of the servers, \
             or take the mode of one of the tools away",
            self.name
        )
    }
}

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
    /// Everything that can be called now, and the names that were taken already.
    pub(super) fn of(service: &Service, own_names: Option<&str>) -> (Self, Vec<Collision>) {
        let listing = match &service.control {
            Some(control) => control.servers.listing(),
            None => Vec::new(),
        };
        let servers = match &service.control {
            Some(control) => control.servers.servers(),
            None => Vec::new(),
        };
        let accepted = servers.into_iter().filter(|server| server.are_instructions_accepted);
        let instructions =
            accepted.filter_map(|server| Some((server.name, server.instructions?))).collect();
        let policy = match &service.control {
            Some(control) => control.policy.current().digest(),
            None => Digest::of_bytes(b""),
        };
        let core = Action::ALL.into_iter().map(|action| Offered {
            action: action.name().to_owned(),
            definition: core_tools::definition(action),
        });
        let servers = listing.iter().filter_map(|listed| offered(listed, own_names));
        let mut catalog = Self { by_name: BTreeMap::new(), instructions, policy };
        let mut collisions = Vec::new();
        for offered in core.chain(servers) {
            match catalog.by_name.entry(offered.definition.name.to_string()) {
                Entry::Vacant(place) => {
                    place.insert(offered);
                }
                Entry::Occupied(taken) => collisions.push(Collision {
                    name: taken.key().clone(),
                    tools: [taken.get().action.clone(), offered.action],
                }),
            }
        }
        (catalog, collisions)
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

/// A tool that can be called: one with a mode, and with the definition that an operator knows.
fn offered(listed: &ListedTool, own_names: Option<&str>) -> Option<Offered> {
    let mode = listed.mode?;
    match listed.standing? {
        Standing::Accepted => {}
        Standing::Changed | Standing::New | Standing::Gone => return None,
    }
    let action = ToolName::of(&listed.server, &listed.tool).ok()?;
    let name = match own_names == Some(listed.server.as_str()) {
        true => fitted(&listed.tool),
        false => fitted(&format!("{}__{}", listed.server, listed.tool)),
    };
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

/// The name in the letters that the model APIs take, and no longer than they take.
fn fitted(name: &str) -> String {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let plain: String = name.chars().map(|c| if is_taken(c) { c } else { '_' }).collect();
    if plain.len() <= NAME_BYTES_MAX {
        return plain;
    }
    let digest = Digest::of_bytes(name.as_bytes()).to_string();
    let head: String = plain.chars().take(NAME_BYTES_MAX - TAIL_BYTES).collect();
    let tail: String = digest.chars().take(TAIL_BYTES - 1).collect();
    format!("{head}_{tail}")
}

#[cfg(test)]
mod tests;
