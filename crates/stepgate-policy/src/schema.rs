//! Cedar's schema, generated: exactly the actions that exist, so that a policy about anything else is
//! refused.
//!
//! | type | id | in |
//! |---|---|---|
//! | `Principal` | the principal's id | its `Group`s |
//! | `Group` | the name of a group in the configuration | |
//! | `Label` | a label | |
//! | `Origin` | where a value comes from: `user`, `known`, `directory/NAME`, `SERVER.TOOL`, … | |
//! | `Window` | the name of a window of the schedule | |
//! | `Path` | a path of the sandbox without a trailing slash; the sandbox is `/sandbox` | every directory above it |
//! | `Tool` | the name of a tool, or `THINK` and `FINISH`, which have no path | its `Server` |
//! | `Server` | the name of a server; `core` for `THINK` and `FINISH` | |
//! | `Action` | the name in a proposal | its group |

use cedar_policy::{Schema, SchemaError};
use serde_json::{Map, Value, json};
use stepgate_core::action::Action;
use stepgate_core::tool::Mode;

use crate::budget::Budget;
use crate::finding::message_of;
use crate::shape::{Attribute, Record, Shape, ToolShape};

/// The group of the core actions, and their value of `context.mode`.
pub(crate) const CORE_GROUP: &str = "core";

/// Every group, even if it is empty.
pub(crate) fn groups() -> impl Iterator<Item = &'static str> {
    std::iter::once(CORE_GROUP).chain(Mode::ALL.into_iter().map(Mode::as_str))
}

/// The schema for these tools; the shapes are those of their arguments, in the same order.
pub(crate) fn of_tools(
    tools: &[ToolShape],
    shapes: &[Record],
    budgets: &[Budget],
) -> Result<Schema, String> {
    let named: Vec<(&str, &Budget)> =
        budgets.iter().map(|budget| (budget.terms.name.as_str(), budget)).collect();
    parsed(fragment(tools, shapes, &named, &json!({})))
}

/// The same schema for proofs, where a principal has one attribute: a path of this name. So a request can be
/// about a second path. Each budget has the name of its attribute with it.
pub(crate) fn with_second_path(
    tools: &[ToolShape],
    shapes: &[Record],
    budgets: &[(&str, &Budget)],
    attribute: &str,
) -> Result<Schema, String> {
    let attributes = json!({ attribute: { "type": "Entity", "name": "Path" } });
    parsed(fragment(tools, shapes, budgets, &attributes))
}

fn parsed(fragment: Value) -> Result<Schema, String> {
    Schema::from_json_value(fragment).map_err(|error: SchemaError| message_of(&error))
}

fn fragment(
    tools: &[ToolShape],
    shapes: &[Record],
    budgets: &[(&str, &Budget)],
    of_principal: &Value,
) -> Value {
    let mut actions = Map::new();
    for group in groups() {
        actions.insert(group.to_owned(), json!({}));
    }
    for action in Action::ALL {
        let resource = if has_path(action) { "Path" } else { "Tool" };
        let described = action_of(CORE_GROUP, resource, &core_args(action), &Map::new());
        actions.insert(action.name().to_owned(), described);
    }
    for (tool, shape) in tools.iter().zip(shapes) {
        let group = tool.mode.as_str();
        let described = match tool.is_accepted {
            true => action_of(group, "Tool", shape, &used_by(tool, budgets)),
            // Policies can name it, but they are not checked against a schema that no operator has accepted.
            false => json!({ "memberOf": [{ "id": group }] }),
        };
        actions.insert(tool.name.to_string(), described);
    }
    json!({ "": {
        "entityTypes": {
            "Principal": {
                "memberOfTypes": ["Group"],
                "shape": { "type": "Record", "attributes": of_principal },
            },
            "Group": {},
            "Label": {},
            "Origin": {},
            "Window": {},
            "Path": { "memberOfTypes": ["Path"] },
            "Tool": { "memberOfTypes": ["Server"] },
            "Server": {},
        },
        "actions": actions,
    } })
}

fn action_of(group: &str, resource: &str, args: &Record, used: &Map<String, Value>) -> Value {
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
                "reads": set_of("Label"),
                "sends": set_of("Label"),
                "schedule": set_of("Window"),
                "used": { "type": "Record", "attributes": used },
                "session": { "type": "Record", "attributes": {
                    "labels": set_of("Label"),
                    "opened": set_of("Window"),
                    "steps": { "type": "Long" },
                } },
                "targets": set_of("Origin"),
                "addresses": set_of("Origin"),
            } },
        },
    })
}

/// What policies can read of the budgets that cover a tool. A budget may not cover the principal, so each must be asked
/// for with `has`.
fn used_by(tool: &ToolShape, budgets: &[(&str, &Budget)]) -> Map<String, Value> {
    let decimal = || Shape::Decimal.to_schema();
    let covering = budgets.iter().filter(|(_, budget)| budget.is_about(&tool.name));
    let used = covering.map(|(name, _)| {
        let attributes = json!({
            "before": decimal(),
            "after": decimal(),
            "limit": decimal(),
            "percent": Shape::Long.to_schema(),
        });
        let record = json!({ "type": "Record", "required": false, "attributes": attributes });
        ((*name).to_owned(), record)
    });
    used.collect()
}

fn set_of(entity_type: &str) -> Value {
    json!({ "type": "Set", "element": { "type": "Entity", "name": entity_type } })
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
    let attribute =
        || Attribute { seen: Ok(Shape::String), required: true, ..Attribute::untyped() };
    let attributes = action.arguments().iter().map(|name| ((*name).to_owned(), attribute()));
    Record { attributes: attributes.collect(), is_open: false }
}
