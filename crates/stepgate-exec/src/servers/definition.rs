//! A tool as its server describes it: what an operator accepts, and what the digest pins.

use serde::Serialize;
use stepgate_core::digest::Digest;
use stepgate_core::json::{Map, Value};

/// A tool as its server describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) input_schema: Value,
    pub(crate) output_schema: Option<Value>,
    pub(crate) digest: Digest,
}

/// What the digest covers: everything that tells a model, or a person, what the tool is.
#[derive(Serialize)]
struct Pinned<'a> {
    annotations: Option<&'a Value>,
    description: Option<&'a Value>,
    #[serde(rename = "inputSchema")]
    input_schema: Option<&'a Value>,
    name: Option<&'a Value>,
    #[serde(rename = "outputSchema")]
    output_schema: Option<&'a Value>,
    title: Option<&'a Value>,
}

impl Definition {
    /// Reads one entry of a list of tools, as it came.
    pub(crate) fn read(entry: &Value) -> Result<Self, String> {
        let Value::Object(members) = entry else {
            return Err("a tool in the list is not an object".to_owned());
        };
        let Some(Value::String(name)) = members.get("name") else {
            return Err("a tool in the list has no name".to_owned());
        };
        let said = |what: &str| match present(members, what) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("the {what} of `{name}` is not a text")),
        };
        let Some(input_schema @ Value::Object(_)) = members.get("inputSchema") else {
            return Err(format!("the inputSchema of `{name}` is not an object"));
        };
        let output_schema = match present(members, "outputSchema") {
            None => None,
            Some(schema @ Value::Object(_)) => Some(schema.clone()),
            Some(_) => return Err(format!("the outputSchema of `{name}` is not an object")),
        };
        Ok(Self {
            name: name.clone(),
            title: said("title")?,
            description: said("description")?,
            input_schema: input_schema.clone(),
            output_schema,
            digest: digest_of(members),
        })
    }
}

/// A member that is there and not null.
fn present<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    members.get(name).filter(|value| !value.is_null())
}

fn digest_of(members: &Map<String, Value>) -> Digest {
    Digest::of(&Pinned {
        annotations: present(members, "annotations"),
        description: present(members, "description"),
        input_schema: present(members, "inputSchema"),
        name: present(members, "name"),
        output_schema: present(members, "outputSchema"),
        title: present(members, "title"),
    })
}

#[cfg(test)]
mod tests;
