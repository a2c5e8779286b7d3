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

use cedar_policy::{Schema, SchemaError};
use serde_json::{Map, Value, json};
use stepgate_core::action::Action;
use stepgate_core::tool::Mode;

use crate::finding::message_of;
use crate::shape::{Attribute, Record, Shape, ToolShape};

/// The group of the core actions, and their value of `context.mode`.
pub(crate) const CORE_GROUP: &str = "core";

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
