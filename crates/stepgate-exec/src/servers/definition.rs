//! A tool as its server describes it: the definition that an operator accepts and the digest pins.

mod canonical;

use stepgate_core::digest::Digest;
use stepgate_core::json::{Map, Value};

pub(crate) use canonical::{same_meaning, same_shape};

/// A tool as its server describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) input_schema: Value,
    pub(crate) output_schema: Option<Value>,
    pub(crate) icons: Option<Value>,
    /// Its `_meta`. It is not pinned, because it may contain values that change with every build. If it was
    /// not accepted with the definition, it is not shown to models, but the tool can still be called.
    pub(crate) meta: Option<Value>,
    /// Everything that is pinned, as the server sent it.
    pub(crate) pinned: Value,
    pub(crate) digest: Digest,
    /// The digest without icons, as earlier versions pinned it.
    pub(crate) earlier_digest: Digest,
}

/// An entry of a list of tools that is not a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoDefinition {
    pub(crate) name: Option<String>,
    pub(crate) why: String,
}

/// The members that the digest covers: everything that tells a model, or a person, what the tool is.
const PINNED: [&str; 7] =
    ["annotations", "description", "icons", "inputSchema", "name", "outputSchema", "title"];

impl Definition {
    pub(crate) fn read(entry: &Value) -> Result<Self, NoDefinition> {
        let nameless = |why: &str| NoDefinition { name: None, why: why.to_owned() };
        let Value::Object(members) = entry else {
            return Err(nameless("a tool in the list is not an object"));
        };
        let Some(Value::String(name)) = members.get("name") else {
            return Err(nameless("a tool in the list has no name"));
        };
        let refused = |why: String| NoDefinition { name: Some(name.clone()), why };
        let said = |what: &str| match present(members, what) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(refused(format!("its {what} is not a text"))),
        };
        let Some(input_schema @ Value::Object(_)) = members.get("inputSchema") else {
            return Err(refused("its inputSchema is not an object".to_owned()));
        };
        let output_schema = match present(members, "outputSchema") {
            None => None,
            Some(schema @ Value::Object(_)) => Some(schema.clone()),
            Some(_) => return Err(refused("its outputSchema is not an object".to_owned())),
        };
        let annotated = present(members, "annotations").and_then(|it| it.get("title")?.as_str());
        let pinned = pinned(members);
        let mut earlier = pinned.clone();
        if let Value::Object(earlier) = &mut earlier {
            earlier.shift_remove("icons");
        }
        Ok(Self {
            name: name.clone(),
            title: said("title")?.or_else(|| annotated.map(str::to_owned)),
            description: said("description")?,
            input_schema: input_schema.clone(),
            output_schema,
            icons: present(members, "icons").cloned(),
            meta: present(members, "_meta").cloned(),
            digest: Digest::of(&pinned),
            earlier_digest: Digest::of(&earlier),
            pinned,
        })
    }
}

fn present<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    members.get(name).filter(|value| !value.is_null())
}

/// Everything that is pinned. A member that is absent is null, except icons: earlier versions did not pin them.
fn pinned(members: &Map<String, Value>) -> Value {
    let pinned = PINNED.into_iter().filter_map(|name| match present(members, name) {
        None if name == "icons" => None,
        member => Some((name.to_owned(), member.cloned().unwrap_or_default())),
    });
    Value::Object(pinned.collect())
}

#[cfg(test)]
mod tests;
