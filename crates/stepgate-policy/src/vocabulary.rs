//! Cedar's names of our types, and of its own `decimal`.

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::LazyLock;

use cedar_policy::{EntityId, EntityTypeName, EntityUid, RestrictedExpression};
use cedar_policy_core::ast::{Name, RestrictedExpr};
use stepgate_core::decimal::Decimal;

pub(crate) static PRINCIPAL: Kind = Kind(LazyLock::new(|| parsed("Principal")));
pub(crate) static GROUP: Kind = Kind(LazyLock::new(|| parsed("Group")));
pub(crate) static LABEL: Kind = Kind(LazyLock::new(|| parsed("Label")));
pub(crate) static ORIGIN: Kind = Kind(LazyLock::new(|| parsed("Origin")));
pub(crate) static WINDOW: Kind = Kind(LazyLock::new(|| parsed("Window")));
pub(crate) static PATH: Kind = Kind(LazyLock::new(|| parsed("Path")));
pub(crate) static TOOL: Kind = Kind(LazyLock::new(|| parsed("Tool")));
pub(crate) static SERVER: Kind = Kind(LazyLock::new(|| parsed("Server")));
pub(crate) static ACTION: Kind = Kind(LazyLock::new(|| parsed("Action")));

/// The name of a type, parsed once.
pub(crate) struct Kind(LazyLock<EntityTypeName>);

impl Kind {
    /// The type itself.
    pub(crate) fn name(&self) -> EntityTypeName {
        self.0.clone()
    }

    /// An entity of this type. The id is never parsed, so no spelling can escape from one.
    pub(crate) fn entity(&self, id: &str) -> EntityUid {
        EntityUid::from_type_name_and_id(self.0.clone(), EntityId::new(id))
    }
}

/// A number for Cedar. Its own `RestrictedExpression::new_decimal` parses the name `decimal` each time, which
/// takes longer than the rest of a decision.
pub(crate) fn decimal(number: Decimal) -> RestrictedExpression {
    static DECIMAL: LazyLock<Name> = LazyLock::new(|| parsed("decimal"));
    let text = RestrictedExpr::val(number.to_string());
    RestrictedExpr::call_extension_fn(DECIMAL.clone(), [text]).into()
}

#[expect(clippy::expect_used, reason = "each of the constants above is a valid name")]
fn parsed<T: FromStr<Err: Debug>>(name: &str) -> T {
    name.parse().expect("a valid name")
}
