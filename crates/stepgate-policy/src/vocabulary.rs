//! Cedar's names of our types.

use std::sync::LazyLock;

use cedar_policy::{EntityId, EntityTypeName, EntityUid};

pub(crate) static PRINCIPAL: Kind = Kind(LazyLock::new(|| type_name("Principal")));
pub(crate) static PATH: Kind = Kind(LazyLock::new(|| type_name("Path")));
pub(crate) static TOOL: Kind = Kind(LazyLock::new(|| type_name("Tool")));
pub(crate) static SERVER: Kind = Kind(LazyLock::new(|| type_name("Server")));
pub(crate) static ACTION: Kind = Kind(LazyLock::new(|| type_name("Action")));

/// The name of a type, parsed once.
pub(crate) struct Kind(LazyLock<EntityTypeName>);

impl Kind {
    /// An entity of this type. The id is never parsed, so no spelling can escape from one.
    pub(crate) fn entity(&self, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(self.0.clone(), EntityId::new(id))
    }
}

#[expect(clippy::expect_used, reason = "each of the constants above is a valid name")]
fn type_name(text: &str) -> EntityTypeName {
    text.parse().expect("a valid type name")
}
