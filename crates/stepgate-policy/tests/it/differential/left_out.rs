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
/// The largest decimal of Cedar, with all its places.
const DECIMAL_MAX: Decimal = Decimal { digits: 9_223_372_036_854_775_807, exponent: -4 };

/// A kind of argument that is left out.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeftOut {
    FineOrLargeNumber,
    LargeInteger,
    ListWithNull,
}

impl LeftOut {
    pub(super) const ALL: [Self; 3] =
        [Self::FineOrLargeNumber, Self::LargeInteger, Self::ListWithNull];

    /// Whether this argument of a call is of that kind. Not one with a default: without the argument,
    /// policies would see the default, which is another error.
    pub(super) fn is(self, tool: &RandomTool, name: &str, args: &Exact) -> bool {
        let Exact::Object(args) = args else { return false };
        let Some(member) = tool.members.named.get(name) else { return false };
        member.default.is_none() && self.is_value(&member.kind, &args[name])
    }

    fn is_value(self, kind: &Kind, value: &Exact) -> bool {
        match (self, kind, value) {
            (Self::FineOrLargeNumber, Kind::Number, Exact::Number(number)) => {
                number.exponent < DECIMAL_MAX.exponent || is_beyond(*number, DECIMAL_MAX)
            }
            (Self::LargeInteger, Kind::Integer { .. }, Exact::Number(number)) => {
                is_beyond(*number, Decimal::whole(EXACT_MAX))
            }
            (Self::ListWithNull, Kind::List(_), Exact::List(items)) => items.contains(&Exact::Null),
            (_, Kind::Nullable(inner) | Kind::Aside(inner, _), _) => self.is_value(inner, value),
            _ => false,
        }
    }
}

fn is_beyond(number: Decimal, max: Decimal) -> bool {
    let min = Decimal { digits: -max.digits, ..max };
    number.compare(max) == Ordering::Greater || number.compare(min) == Ordering::Less
}
