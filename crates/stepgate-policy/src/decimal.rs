//! Numbers with decimals, as policies see them.

use stepgate_core::decimal::NotDecimal;

use crate::cause::Cause;

pub(crate) use stepgate_core::decimal::Decimal;

/// The largest double within the range of decimals, which ends at 922337203685477.5807.
pub(crate) const DECIMAL_MAX: f64 = 922_337_203_685_477.5;

impl From<NotDecimal> for Cause {
    fn from(why: NotDecimal) -> Self {
        match why {
            NotDecimal::NotANumber => Self::OtherType,
            NotDecimal::TooFine => Self::TooFine,
            NotDecimal::OutOfRange => Self::BeyondDecimal,
        }
    }
}
