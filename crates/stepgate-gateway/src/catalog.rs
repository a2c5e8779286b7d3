//! The tool catalogue: every callable tool, its name, and everything that clients and models are shown about it.

mod core_tools;

use stepgate_agent::model::Offer;
use stepgate_core::action::Action;
use stepgate_core::ids::PrincipalId;
use stepgate_core::json::{Map, Value};
use stepgate_core::tool::{Mode, ToolName};
use stepgate_exec::servers::{ListedTool, Off};

use crate::control::McpNames;
use crate::service::Service;

pub use core_tools::core;

/// One tool as it is offered.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The name by which callers call it.
    pub name: String,
    /// The action that a proposal names.
    pub action: String,
    /// What it does.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub input_schema: Map<String, Value>,
    /// The JSON Schema of its result, where it has one.
    pub output_schema: Option<Map<String, Value>>,
    /// Where it comes from.
    pub source: Source,
}

/// Where a tool comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The gate itself.
    Core(Action),
    /// A tool server, with its listing of the tool. The mode comes from the configuration.
    Server(Mode, Box<ListedTool>),
}

/// Every tool that can be called now, and the tools that are off because another tool already has their name.
pub fn offered(service: &Service, own_names: Option<&str>) -> (Vec<Offered>, Vec<Off>) {
    let mut offered: Vec<Offered> = Action::ALL.into_iter().map(core).collect();
    let Some(control) = &service.control else { return (offered, Vec::new()) };
    let listing = control.servers.listing();
    let McpNames { tools, off } = McpNames::of(&listing, own_names);
    offered.extend(tools.into_iter().filter_map(|(name, listed)| of_server(name, listed)));
    (offered, off)
}

/// The tools that a model may see on behalf of this principal. Leaves out THINK and FINISH: they are only for
/// agents that propose steps themselves.
pub(crate) fn for_model(service: &Service, principal_id: &PrincipalId) -> Vec<Offer> {
    let (mut offered, _) = offered(service, None);
    offered.sort_by(|one, other| one.name.cmp(&other.name));
    let is_for_models = |offered: &Offered| {
        !matches!(offered.source, Source::Core(Action::Think | Action::Finish))
            && service.gate.prospect(principal_id, &offered.action).could_permit
    };
    offered
        .into_iter()
        .filter(is_for_models)
        .map(|offered| Offer {
            name: offered.name,
            action: Some(offered.action),
            description: offered.description,
            parameters: Value::Object(offered.input_schema),
        })
        .collect()
}

/// Offers a server's tool under its MCP name.
fn of_server(name: String, listed: &ListedTool) -> Option<Offered> {
    let object = |schema: &Value| schema.as_object().cloned();
    Some(Offered {
        name,
        action: ToolName::of(&listed.server, &listed.tool).ok()?.to_string(),
        description: listed.description.clone(),
        input_schema: object(&listed.input_schema)?,
        output_schema: match &listed.output_schema {
            Some(schema) => Some(object(schema)?),
            None => None,
        },
        source: Source::Server(listed.mode?, Box::new(listed.clone())),
    })
}
