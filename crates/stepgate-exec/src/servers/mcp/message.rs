//! Messages of a server, parsed as far as needed before the SDK sees them.

use std::fmt;

use rmcp::model::RequestId;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use stepgate_core::json::{Map, Value};

/// What a message is.
pub(super) enum Kind {
    /// The answer to one of our requests.
    Response(RequestId),
    /// A request of the server.
    Request,
    /// A notification with this method.
    Notification(String),
    /// Not a message of the protocol.
    Other,
}

/// The kind of a message, by its members.
pub(super) fn kind_of(message: &Map<String, Value>) -> Kind {
    let id = message.get("id").filter(|id| !id.is_null());
    match (message.get("method"), id) {
        (Some(Value::String(_)), Some(_)) => Kind::Request,
        (Some(Value::String(method)), None) => Kind::Notification(method.clone()),
        (None, Some(id)) if message.contains_key("result") || message.contains_key("error") => {
            request_id(id).map_or(Kind::Other, Kind::Response)
        }
        (Some(_) | None, _) => Kind::Other,
    }
}

/// The id or the progress token of one of our requests: both are numbers, but some servers send the number
/// back as a string.
pub(super) fn request_id(id: &Value) -> Option<RequestId> {
    match id {
        Value::Number(number) => number.as_i64().map(RequestId::Number),
        Value::String(text) => text.parse().ok().map(RequestId::Number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The id at the beginning of a message that could not be parsed as a whole.
pub(super) fn id_in_beginning(bytes: &[u8]) -> Option<RequestId> {
    let mut found = None;
    // Parsing may end in an error: an id that was read before it counts.
    let _ = serde_json::Deserializer::from_slice(bytes).deserialize_map(Seek(&mut found));
    request_id(&found?)
}

/// The id at the end of such a message: some servers write it last.
pub(super) fn id_in_end(bytes: &[u8]) -> Option<RequestId> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end().strip_suffix('}')?;
    let (_, id) = text.rsplit_once("\"id\":")?;
    id.split(',').next()?.trim().parse().ok().map(RequestId::Number)
}

/// Notes the member `id` of the outermost object, and skips the rest.
struct Seek<'a>(&'a mut Option<Value>);

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            if name == "id" {
                self.0.get_or_insert(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
