//! Why policies cannot see an argument.

use stepgate_core::decimal::NotDecimal;
use stepgate_core::spelled;

/// The largest number up to which a double holds every integer exactly: 2^53 − 1.
pub(crate) const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
/// The largest double within the range of decimals, which ends at 922337203685477.5807.
pub(crate) const DECIMAL_MAX: f64 = 922_337_203_685_477.5;

spelled! {
    /// Why policies cannot see an argument.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Cause {
        /// Cedar's `Long` is whole.
        Fraction = "a fraction",
        /// Beyond the integers that a double holds exactly.
        TooLarge = "beyond ±9007199254740991",
        /// Cedar's `decimal` has four places.
        TooFine = "more precise than four decimal places",
        /// Beyond the range of Cedar's `decimal`.
        BeyondDecimal = "beyond ±922337203685477.5807",
        /// Cedar has no null.
        Null = "null",
        /// The schema gives several types, or no type that Cedar has.
        Untyped = "of several types, or of none, in the tool's schema",
        /// The value has another type than its schema says.
        OtherType = "not of the type in the tool's schema",
        /// A member that the schema allows without naming it.
        NotInSchema = "not named in the tool's schema",
        /// The configuration redacts it, or it is erasable.
        Redacted = "redacted or erasable",
        /// Nested deeper than `ARGS_DEPTH_MAX`.
        TooDeep = "nested too deep",
        /// More arguments than `ATTRIBUTES_MAX`.
        TooMany = "beyond the number of arguments that policies see",
        /// The call omits it, and the schema declares several defaults, or one that cannot be resolved.
        UnclearDefault = "omitted, and its default is unclear in the tool's schema",
    }
    /// The cause as text, to follow "it is".
    fn as_str
}

impl Cause {
    /// Whether legitimate calls seldom have such a value.
    pub(crate) fn is_rare(self) -> bool {
        matches!(self, Self::TooLarge | Self::TooFine | Self::BeyondDecimal)
    }
}

impl From<NotDecimal> for Cause {
    fn from(why: NotDecimal) -> Self {
        match why {
            NotDecimal::NotANumber => Self::OtherType,
            NotDecimal::TooFine => Self::TooFine,
            NotDecimal::OutOfRange => Self::BeyondDecimal,
        }
    }
}
