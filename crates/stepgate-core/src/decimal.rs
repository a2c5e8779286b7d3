//! Numbers with decimals, exactly: four places, as Cedar's `decimal` has. Amounts are such numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use serde_json::Number;

use crate::ids::{InvalidId, text_in_json};

const PLACES: i32 = 4;
/// Ten to the power of the places.
const ONE: i64 = 10_000;

/// A number, counted in ten-thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal(i64);

/// Why a text is no decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDecimal {
    /// It is not a number.
    #[error("not a number")]
    NotANumber,
    /// It has more than four decimal places.
    #[error("more precise than four decimal places")]
    TooFine,
    /// It is beyond the range.
    #[error("beyond ±922337203685477.5807")]
    OutOfRange,
}

impl Decimal {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// One: what a call counts for.
    pub const ONE: Self = Self(ONE);
    /// The largest.
    pub const MAX: Self = Self(i64::MAX);

    /// So many ten-thousandths.
    pub fn from_units(units: i64) -> Self {
        Self(units)
    }

    /// The number in ten-thousandths.
    pub fn units(self) -> i64 {
        self.0
    }

    /// The sum, if a decimal holds it.
    pub fn plus(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The difference, if it is not negative.
    pub fn minus(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).filter(|units| *units >= 0).map(Self)
    }

    /// How many percent of another number this is, rounded up. `of` must be positive.
    pub fn percent_of(self, of: Self) -> Option<i64> {
        let (part, whole) = (i128::from(self.0), i128::from(of.0));
        if whole <= 0 || part < 0 {
            return None;
        }
        i64::try_from((part * 100 + whole - 1) / whole).ok()
    }

    /// The number, if a decimal holds it exactly. It is read from its shortest text, which is what is recorded
    /// and sent, so that nothing is rounded.
    pub fn of(number: &Number) -> Result<Self, NotDecimal> {
        Self::parse(&number.to_string())
    }

    /// The number that a text denotes in JSON: `100`, `99.50`, `1e2`.
    pub fn parse(text: &str) -> Result<Self, NotDecimal> {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits: i128 =
            format!("{whole}{fraction}").parse().map_err(|_| NotDecimal::NotANumber)?;
        let exponent: i32 = exponent.parse().map_err(|_| NotDecimal::NotANumber)?;
        let length = i32::try_from(fraction.len()).map_err(|_| NotDecimal::NotANumber)?;
        // `digits` times ten to the power of `shift` is the number in ten-thousandths.
        let shift = exponent.saturating_add(PLACES).saturating_sub(length);
        let power = 10_i128.checked_pow(shift.unsigned_abs());
        let units = match power {
            _ if digits == 0 => 0,
            Some(power) if shift < 0 && digits % power == 0 => digits / power,
            _ if shift < 0 => return Err(NotDecimal::TooFine),
            Some(power) => digits.checked_mul(power).ok_or(NotDecimal::OutOfRange)?,
            None => return Err(NotDecimal::OutOfRange),
        };
        i64::try_from(units).map(Self).map_err(|_| NotDecimal::OutOfRange)
    }

    /// The largest whole number that is not above it.
    pub fn floor(self) -> i64 {
        self.0.div_euclid(ONE)
    }

    /// The number, if it is whole.
    pub fn whole(self) -> Option<i64> {
        (self.0 % ONE == 0).then_some(self.0 / ONE)
    }
}

impl fmt::Display for Decimal {
    /// As Cedar reads it, with at least one place: `100.0`, `99.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (units, one) = (self.0.unsigned_abs(), ONE.unsigned_abs());
        let places = format!("{:04}", units % one);
        let places = match places.trim_end_matches('0') {
            "" => "0",
            places => places,
        };
        write!(f, "{sign}{}.{places}", units / one)
    }
}

impl FromStr for Decimal {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let expected = "a number with at most four decimal places, like 99.50";
        Self::parse(text).map_err(|_| InvalidId::new(text, expected))
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

text_in_json!(Decimal, { "type": "string", "pattern": "^-?[0-9]+\\.[0-9]{1,4}$" });

#[cfg(test)]
mod tests;
