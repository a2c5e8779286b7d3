//! The schema of a proposal: one form for each core action, and one for the tools of tool servers.
//!
//! The gate reads the bytes of a proposal itself, so no type is read from them here.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use stepgate_core::action::Action;
use stepgate_gateway::catalog;
use stepgate_gateway::text::capitalised;

/// The body of `POST /v1/steps`.
pub(crate) struct Proposal;

impl JsonSchema for Proposal {
    fn schema_name() -> Cow<'static, str> {
        "Proposal".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut choices = Vec::new();
        let mut add = |name: String, schema: Value| {
            let reference = json!({ "$ref": format!("#/components/schemas/{name}") });
            generator.definitions_mut().insert(name, schema);
            reference
        };
        for action in Action::ALL {
            let name = camel_case(action.name());
            let args = add(format!("{name}Args"), catalog::core(action).input_schema.into());
            let named = json!({ "type": "string", "const": action.name() });
            choices.push(add(format!("{name}Proposal"), form(&named, &args)));
        }
        let named = json!({
            "description": "server.tool",
            "type": "string",
            "pattern": "^[^.]+\\..+$",
        });
        let args = json!({ "type": "object", "additionalProperties": true });
        choices.push(add("ToolProposal".to_owned(), form(&named, &args)));
        json_schema!({ "description": "One action with its arguments.", "oneOf": choices })
    }
}

fn form(action: &Value, args: &Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            "schema_version": { "type": "string", "pattern": "^1\\.[0-9]{1,9}\\.[0-9]{1,9}$" },
            "id": {
                "description": "The proposal's id: the same id never acts twice.",
                "type": "string",
                "format": "uuid",
            },
            "reasoning": { "type": "string", "minLength": 1 },
            "action": action,
            "args": args,
        },
        "required": ["schema_version", "id", "reasoning", "action", "args"],
        "additionalProperties": false,
    })
}

/// `READ_FILE` as `ReadFile`.
fn camel_case(name: &str) -> String {
    name.split('_').map(|word| capitalised(&word.to_lowercase())).collect()
}
