//! The definitions of tools that operators have accepted, and how a tool's present definition compares with
//! them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use stepgate_core::digest::Digest;
use stepgate_core::json::Value;
use stepgate_core::lock::locked;
use stepgate_core::tool::{Standing, ToolName};

use super::definition::{Definition, same_meaning, same_shape};
use super::spec::{DEFINITION_BYTES_MAX, Pinning};

/// An accepted definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Pin {
    digest: Digest,
    definition: Option<Value>,
    beside: Beside,
}

/// What was accepted together with a definition: texts for models that are not part of it. If a server sends
/// other texts now, the tool can still be called, but the texts are not passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The digest of the tool's `_meta`.
    pub meta: Option<Digest>,
    /// The digest of the server's `instructions`.
    pub instructions: Option<Digest>,
}

impl Pin {
    /// A pin, with the definition where it was stored. A definition that does not have the digest is
    /// dropped.
    pub fn new(digest: Digest, definition: Option<Value>, beside: Beside) -> Self {
        let definition = definition.filter(|definition| Digest::of(definition) == digest);
        Self { digest, definition, beside }
    }

    pub(super) fn of(definition: &Definition, instructions: Option<&str>) -> Self {
        let is_kept = definition.pinned.to_string().len() <= DEFINITION_BYTES_MAX;
        let kept = is_kept.then(|| definition.pinned.clone());
        let beside = Beside {
            meta: definition.meta.as_ref().map(Digest::of),
            instructions: instructions.map(Digest::of),
        };
        Self { digest: definition.digest, definition: kept, beside }
    }

    /// The same definition, with the texts that were accepted beside another pin.
    #[must_use]
    pub fn beside_that_of(self, other: Option<&Self>) -> Self {
        let beside = other.map(|other| other.beside).unwrap_or_default();
        Self { beside, ..self }
    }

    /// What was accepted together with the definition.
    pub fn beside(&self) -> Beside {
        self.beside
    }

    /// The digest of the definition.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The definition. None in pins of earlier versions, and where the definition is too long to be stored.
    pub fn definition(&self) -> Option<&Value> {
        self.definition.as_ref()
    }
}

/// Every pin, of all servers.
#[derive(Clone, Default)]
pub(super) struct Pins(Arc<Mutex<BTreeMap<ToolName, Pin>>>);

impl Pins {
    pub(super) fn new(pins: BTreeMap<ToolName, Pin>) -> Self {
        Self(Arc::new(Mutex::new(pins)))
    }

    pub(super) fn has_any_of(&self, server: &str) -> bool {
        locked(&self.0).keys().any(|name| name.server() == server)
    }

    pub(super) fn pin(&self, name: ToolName, pin: Pin) {
        locked(&self.0).insert(name, pin);
    }

    pub(super) fn get(&self, name: &ToolName) -> Option<Pin> {
        locked(&self.0).get(name).cloned()
    }

    /// Whether the `_meta` of a definition is the accepted one.
    pub(super) fn has_meta(&self, name: &ToolName, meta: &Value) -> bool {
        locked(&self.0).get(name).is_some_and(|pin| pin.beside.meta == Some(Digest::of(meta)))
    }

    /// Whether a tool of this server was accepted while the server gave these instructions.
    pub(super) fn has_instructions(&self, server: &str, instructions: &str) -> bool {
        let digest = Some(Digest::of(instructions));
        let pins = locked(&self.0);
        let mut of_server = pins.iter().filter(|(name, _)| name.server() == server);
        of_server.any(|(_, pin)| pin.beside.instructions == digest)
    }

    /// The standing of a definition against the accepted one, and the digest that a decision on the tool is
    /// bound to.
    ///
    /// A definition with the same meaning as the pinned one gets the pin's digest, so that decisions for one
    /// hold for the other. Where only names and types are compared, the digest is that of the server's own
    /// definition: an approval never passes from one description to another.
    pub(super) fn standing(
        &self,
        name: &ToolName,
        definition: &Definition,
        pinning: Pinning,
    ) -> (Standing, Digest) {
        let Some(pin) = self.get(name) else { return (Standing::New, definition.digest) };
        if pin.digest == definition.digest || pin.digest == definition.earlier_digest {
            return (Standing::Accepted, pin.digest);
        }
        let is_like = |same: fn(&Value, &Value) -> bool| {
            pin.definition.as_ref().is_some_and(|pinned| same(pinned, &definition.pinned))
        };
        if is_like(same_meaning) {
            return (Standing::Accepted, pin.digest);
        }
        let standing = match pinning {
            Pinning::NamesAndTypes if is_like(same_shape) => Standing::Accepted,
            Pinning::Definition | Pinning::NamesAndTypes => Standing::Changed,
        };
        (standing, definition.digest)
    }
}

#[cfg(test)]
mod tests;
