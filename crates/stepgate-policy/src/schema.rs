//! Cedar's schema, generated: exactly the actions that exist, so that a policy about anything else is
//! refused.
//!
//! | type | id | in |
//! |---|---|---|
//! | `Principal` | the principal's id | |
//! | `Path` | a path of the sandbox without a trailing slash; the sandbox is `/sandbox` | every directory above it |
//! | `Tool` | the name of a tool, or `THINK` and `FINISH`, which have no path | its `Server` |
//! | `Server` | the name of a server; `core` for `THINK` and `FINISH` | |
//! | `Action` | the name in a proposal | its group |

use std::collections::BTreeSet;
use std::str::FromStr;

use cedar_policy::{EntityId, EntityTypeName, EntityUid, Schema, SchemaError};
use serde_json::{Map, Value, json};
use stepgate_core::action::{Action, CORE_SERVER};
use stepgate_core::tool::Mode;

use crate::finding::{message_of, one_line};
use crate::shape::{Attribute, Record, Shape, ToolShape};

/// The group of the core actions, and their value of `context.mode`.
pub(crate) const CORE_GROUP: &str = "core";

/// Cedar's names of our types, parsed once.
#[derive(Clone, Debug)]
pub(crate) struct Vocabulary {
    principal: EntityTypeName,
    path: EntityTypeName,
    tool: EntityTypeName,
    server: EntityTypeName,
    action: EntityTypeName,
}

impl Vocabulary {
    pub(crate) fn new() -> Result<Self, String> {
        let name =
            |text| EntityTypeName::from_str(text).map_err(|errors| one_line(&errors.to_string()));
        Ok(Self {
            principal: name("Principal")?,
            path: name("Path")?,
            tool: name("Tool")?,
            server: name("Server")?,
            action: name("Action")?,
        })
    }

    // Ids are never parsed, so no spelling can escape from one.

    pub(crate) fn principal(&self, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(self.principal.clone(), EntityId::new(id))
    }

    pub(crate) fn path(&self, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(self.path.clone(), EntityId::new(id))
    }

    pub(crate) fn tool(&self, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(self.tool.clone(), EntityId::new(id))
    }

    pub(crate) fn server(&self, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(self.server.clone(), EntityId::new(id))
    }

    pub(crate) fn action(&self, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(self.action.clone(), EntityId::new(id))
    }
}

/// The group of an action with this mode.
pub(crate) fn group_of(mode: Option<Mode>) -> &'static str {
    mode.map_or(CORE_GROUP, Mode::as_str)
}

/// Every group, even if it is empty.
pub(crate) fn groups() -> impl Iterator<Item = &'static str> {
    std::iter::once(CORE_GROUP).chain(Mode::ALL.into_iter().map(Mode::as_str))
}

/// The schema for these tools; the shapes are those of their arguments, in the same order.
pub(crate) fn of_tools(tools: &[ToolShape], shapes: &[Record]) -> Result<Schema, String> {
    let mut actions = Map::new();
    for group in groups() {
        actions.insert(group.to_owned(), json!({}));
    }
    for action in Action::ALL {
        let resource = if has_path(action) { "Path" } else { "Tool" };
        let described = action_of(CORE_GROUP, resource, &core_args(action));
        actions.insert(action.name().to_owned(), described);
    }
    for (tool, shape) in tools.iter().zip(shapes) {
        let group = tool.mode.as_str();
        let described = match tool.is_accepted {
            true => action_of(group, "Tool", shape),
            // Policies can name it, but they are not checked against a schema that no operator has accepted.
            false => json!({ "memberOf": [{ "id": group }] }),
        };
        actions.insert(tool.name.to_string(), described);
    }
    let fragment = json!({ "": {
        "entityTypes": {
            "Principal": {},
            "Path": { "memberOfTypes": ["Path"] },
            "Tool": { "memberOfTypes": ["Server"] },
            "Server": {},
        },
        "actions": actions,
    } });
    Schema::from_json_value(fragment).map_err(|error: SchemaError| message_of(&error))
}

fn action_of(group: &str, resource: &str, args: &Record) -> Value {
    json!({
        "memberOf": [{ "id": group }],
        "appliesTo": {
            "principalTypes": ["Principal"],
            "resourceTypes": [resource],
            "context": { "type": "Record", "attributes": {
                "args": args.to_schema(),
                "unseen": { "type": "Set", "element": { "type": "String" } },
                "mode": { "type": "String" },
                "server": { "type": "String" },
            } },
        },
    })
}

/// Whether an action is about a path of the sandbox.
pub(crate) fn has_path(action: Action) -> bool {
    match action {
        Action::Think | Action::Finish => false,
        Action::ReadFile
        | Action::ListFiles
        | Action::WriteFile
        | Action::CreateDirectory
        | Action::DeleteFile
        | Action::RenameFile => true,
    }
}

/// The arguments of a core action: strings, all of them required.
fn core_args(action: Action) -> Record {
    let names: &[&str] = match action {
        Action::Think => &[],
        Action::Finish => &["response"],
        Action::ReadFile | Action::ListFiles | Action::CreateDirectory | Action::DeleteFile => {
            &["path"]
        }
        Action::WriteFile => &["path", "content"],
        Action::RenameFile => &["source", "destination"],
    };
    let attribute = || Attribute {
        seen: Ok(Shape::String),
        required: true,
        blind: BTreeSet::new(),
        default: None,
    };
    let attributes = names.iter().map(|name| ((*name).to_owned(), attribute())).collect();
    Record { attributes, is_open: false }
}

/// The servers that policies may name.
pub(crate) fn servers(tools: &[ToolShape]) -> impl Iterator<Item = &str> {
    std::iter::once(CORE_SERVER).chain(tools.iter().map(|tool| tool.name.server()))
}
