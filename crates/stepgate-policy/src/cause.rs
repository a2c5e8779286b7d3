//! Why policies cannot see an argument.

/// The largest number up to which a double holds every integer exactly: 2^53 − 1.
pub(crate) const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

/// Why policies cannot see an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Cedar's `Long` is whole.
    Fraction,
    /// Beyond the integers that a double holds exactly.
    TooLarge,
    /// Cedar's `decimal` has four places.
    TooFine,
    /// Beyond the range of Cedar's `decimal`.
    BeyondDecimal,
    /// Cedar has no null.
    Null,
    /// The schema gives several types, or no type that Cedar has.
    Untyped,
    /// The value has another type than its schema says.
    OtherType,
    /// A member that the schema allows without naming it.
    NotInSchema,
    /// The configuration redacts it, or it is erasable.
    Redacted,
    /// Nested deeper than `ARGS_DEPTH_MAX`.
    TooDeep,
    /// More arguments than `ATTRIBUTES_MAX`.
    TooMany,
    /// The call omits it, and the schema declares several defaults, or one that cannot be resolved.
    UnclearDefault,
}

impl Cause {
    /// The cause as text, to follow "it is".
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fraction => "a fraction",
            Self::TooLarge => "beyond ±9007199254740991",
            Self::TooFine => "more precise than four decimal places",
            Self::BeyondDecimal => "beyond ±922337203685477.5807",
            Self::Null => "null",
            Self::Untyped => "of several types, or of none, in the tool's schema",
            Self::OtherType => "not of the type in the tool's schema",
            Self::NotInSchema => "not named in the tool's schema",
            Self::Redacted => "redacted or erasable",
            Self::TooDeep => "nested too deep",
            Self::TooMany => "beyond the number of arguments that policies see",
            Self::UnclearDefault => "omitted, and its default is unclear in the tool's schema",
        }
    }

    /// Whether legitimate calls seldom have such a value.
    pub(crate) fn is_rare(self) -> bool {
        matches!(self, Self::TooLarge | Self::TooFine | Self::BeyondDecimal)
    }
}
