//! Times on the command line.

use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use stepgate_core::time::Timestamp;
use stepgate_gateway::tokens::LIFE_S_MAX;

/// A length of time in seconds, written like `12h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) u64);

impl Span {
    pub(super) fn token_life(text: &str) -> anyhow::Result<Self> {
        let life: Self = text.parse()?;
        ensure!((1..=LIFE_S_MAX).contains(&life.0), "a token is good for 1 s to 10 years (`10y`)");
        Ok(life)
    }
}

impl FromStr for Span {
    type Err = anyhow::Error;

    /// Parses a number with its unit, such as `30d`.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let what = || format!("`{text}` is no time: write it like `12h`, `30d` or `1y`");
        let unit = text.chars().last().with_context(what)?;
        let unit_s: u64 = match unit {
            's' => 1,
            'm' => 60,
            'h' => 60 * 60,
            'd' => 24 * 60 * 60,
            'w' => 7 * 24 * 60 * 60,
            'y' => 365 * 24 * 60 * 60,
            _ => bail!("{}", what()),
        };
        let count: u64 =
            text.strip_suffix(unit).and_then(|count| count.parse().ok()).with_context(what)?;
        Ok(Self(count.checked_mul(unit_s).with_context(what)?))
    }
}

/// An instant, or how long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    At(Timestamp),
    Ago(Span),
}

impl When {
    pub(crate) fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(instant) => instant,
            Self::Ago(Span(ago_s)) => {
                let ago_ms = i64::try_from(ago_s.saturating_mul(1000)).unwrap_or(i64::MAX);
                Timestamp::from_millisecond(now.as_millisecond().saturating_sub(ago_ms))
            }
        }
    }
}

impl FromStr for When {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.parse::<Span>() {
            Ok(span) => Ok(Self::Ago(span)),
            Err(_) => Ok(Self::At(Timestamp::parse_short(text)?)),
        }
    }
}

#[cfg(test)]
mod tests;
