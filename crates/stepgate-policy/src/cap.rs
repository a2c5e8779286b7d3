//! `@cap("volume <= 30; bass <= 5")`: limits on the arguments that a permit sets.

use std::collections::BTreeMap;

use stepgate_core::decimal::Decimal;

use crate::limits::CAPS_MAX;

/// Limit of a cap's absolute value: beyond it a double cannot hold every integer exactly.
const CAP_MAX: i64 = (1 << 53) - 1;

/// Why a text is not a list of caps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CapError {
    #[error("`{0}` is not a cap; write `ARGUMENT <= INTEGER`, several separated by `;`")]
    Malformed(String),
    #[error("`{0}` is not a whole number between -(2^53 - 1) and 2^53 - 1")]
    NotAnInteger(String),
    #[error(
        "a cap is a whole number: write `{argument} <= {floor}`, or refuse what is above {limit} by a condition of the \
         policy: `when {{ context.args.{argument}.lessThanOrEqual(decimal(\"{limit}\")) }}`"
    )]
    Fraction { argument: String, limit: Decimal, floor: i64 },
    #[error("`{0}` is capped twice; keep the smaller one")]
    Twice(String),
    #[error("more than {CAPS_MAX} caps; split the policy")]
    TooMany,
}

/// The caps in a text: the largest value of each argument.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, i64>, CapError> {
    let mut caps = BTreeMap::new();
    for part in text.split(';') {
        let part = part.trim();
        let malformed = || CapError::Malformed(part.to_owned());
        let (argument, limit) = part.split_once("<=").ok_or_else(malformed)?;
        let (argument, limit) = (argument.trim(), limit.trim());
        let is_name = !argument.is_empty()
            && !argument.chars().any(|c| c.is_whitespace() || c.is_control() || "<>=".contains(c));
        if !is_name {
            return Err(malformed());
        }
        let limit = whole(argument, limit)?;
        if caps.insert(argument.to_owned(), limit).is_some() {
            return Err(CapError::Twice(argument.to_owned()));
        }
        if caps.len() > CAPS_MAX {
            return Err(CapError::TooMany);
        }
    }
    Ok(caps)
}

/// The limit of an argument.
fn whole(argument: &str, text: &str) -> Result<i64, CapError> {
    if let Some(limit) = Decimal::parse(text).ok().filter(|limit| limit.whole().is_none()) {
        let (argument, floor) = (argument.to_owned(), limit.floor());
        return Err(CapError::Fraction { argument, limit, floor });
    }
    let limit = text.parse::<i64>().ok();
    let limit = limit.filter(|limit| limit.unsigned_abs() <= CAP_MAX.unsigned_abs());
    limit.ok_or_else(|| CapError::NotAnInteger(text.to_owned()))
}

/// Merges two sets of caps: the smaller cap wins.
pub(crate) fn unite(caps: &mut BTreeMap<String, i64>, others: &BTreeMap<String, i64>) {
    for (argument, limit) in others {
        caps.entry(argument.clone())
            .and_modify(|current| *current = (*current).min(*limit))
            .or_insert(*limit);
    }
}

#[cfg(test)]
mod tests;
