//! The core actions as tools.

use serde_json::{Map, Value, json};
use stepgate_core::action::Action;

use super::{Offered, Source};

/// A core action as a tool.
pub fn core(action: Action) -> Offered {
    let (description, members) = contract(action);
    Offered {
        name: action.name().to_owned(),
        action: action.name().to_owned(),
        description: Some(description.to_owned()),
        input_schema: strict(&members),
        output_schema: output(action).map(|members| strict(&members)),
        source: Source::Core(action),
    }
}

/// The description of a core action, and the schema of its arguments.
fn contract(action: Action) -> (&'static str, Value) {
    let path = |what: &str| json!({ "type": "string", "description": what });
    let file = || path("A file below /sandbox/, such as /sandbox/notes/today.md");
    match action {
        Action::Think => ("Record a thought. It changes nothing.", json!({})),
        Action::Finish => (
            "Give the final response.",
            json!({ "response": { "type": "string", "description": "The final response" } }),
        ),
        Action::ReadFile => ("Read a text file of the sandbox.", json!({ "path": file() })),
        Action::ListFiles => (
            "List a directory of the sandbox.",
            json!({ "path": path("A directory; /sandbox/ itself is one") }),
        ),
        Action::WriteFile => (
            "Write a text file of the sandbox, whole: what was there before is replaced.",
            json!({
                "path": file(),
                "content": { "type": "string", "minLength": 1, "description": "All of the text" },
            }),
        ),
        Action::CreateDirectory => (
            "Create a directory of the sandbox, with those above it; one that is there is left as it is.",
            json!({ "path": path("A directory below /sandbox/") }),
        ),
        Action::DeleteFile => ("Delete a file of the sandbox.", json!({ "path": file() })),
        Action::RenameFile => (
            "Rename a file of the sandbox. A file that is there already is never replaced.",
            json!({ "source": file(), "destination": file() }),
        ),
    }
}

/// The members of its result, if it has a result.
fn output(action: Action) -> Option<Value> {
    match action {
        Action::Finish => Some(json!({ "final_response": { "type": "string" } })),
        Action::ReadFile => Some(json!({ "content": { "type": "string" } })),
        Action::ListFiles => {
            let entry = strict(&json!({
                "name": { "type": "string" },
                "isDirectory": { "type": "boolean" },
                "isFile": { "type": "boolean" },
            }));
            Some(json!({ "files": { "type": "array", "items": entry } }))
        }
        Action::Think
        | Action::WriteFile
        | Action::CreateDirectory
        | Action::DeleteFile
        | Action::RenameFile => None,
    }
}

/// The schema of an object with exactly these members, all of them required.
fn strict(members: &Value) -> Map<String, Value> {
    let required: Vec<&String> = members.as_object().into_iter().flatten().map(|it| it.0).collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), members.clone());
    schema.insert("required".to_owned(), json!(required));
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema
}
