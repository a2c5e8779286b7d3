//! The arguments that a gate without the check of unseen arguments would hide from policies: Cedar has no
//! value for them, so `context.args` lacks them, and a condition with `has` does not match.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a value that is not named here is shown to policies"
)]

use std::cmp::Ordering;

use super::tool::{Kind, RandomTool};
use super::value::{Decimal, Exact};

/// The largest integer that every program holds exactly.
const EXACT_MAX: i64 = (1 << 53) - 1;

/// A kind of argument that is left out.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeftOut {
    FractionOrLargeNumber,
    LargeInteger,
    ListWithNull,
}

impl LeftOut {
    pub(super) const ALL: [Self; 3] =
        [Self::FractionOrLargeNumber, Self::LargeInteger, Self::ListWithNull];

    /// Whether this argument of a call is of that kind. Not one with a default: without the argument,
    /// policies would see the default, which is another error.
    pub(super) fn is(self, tool: &RandomTool, name: &str, args: &Exact) -> bool {
        let Exact::Object(args) = args else { return false };
        let Some(member) = tool.members.named.get(name) else { return false };
        member.default.is_none() && self.is_value(&member.kind, &args[name])
    }

    fn is_value(self, kind: &Kind, value: &Exact) -> bool {
        match (self, kind, value) {
            (Self::FractionOrLargeNumber, Kind::Number, Exact::Number(number)) => {
                number.exponent < 0 || is_large(*number)
            }
            (Self::LargeInteger, Kind::Integer { .. }, Exact::Number(number)) => is_large(*number),
            (Self::ListWithNull, Kind::List(_), Exact::List(items)) => items.contains(&Exact::Null),
            (_, Kind::Nullable(inner) | Kind::Aside(inner, _), _) => self.is_value(inner, value),
            _ => false,
        }
    }
}

fn is_large(number: Decimal) -> bool {
    number.compare(Decimal::whole(EXACT_MAX)) == Ordering::Greater
        || number.compare(Decimal::whole(-EXACT_MAX)) == Ordering::Less
}
