//! How the command line names a run, an approval, a session, a turn or a token.

use std::str::FromStr;

use anyhow::anyhow;
use stepgate_core::ids::IdPrefix;

/// An object, before it is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named<T> {
    /// `last`: the newest that fits the command.
    Last,
    /// By its whole id, which needs no look-up.
    Whole(T),
    /// By the beginning of its id, which no other may share.
    Beginning(IdPrefix),
}

impl<T: FromStr> FromStr for Named<T> {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if text == "last" {
            return Ok(Self::Last);
        }
        if let Ok(id) = text.parse() {
            return Ok(Self::Whole(id));
        }
        let prefix = IdPrefix::parse(text).map(Self::Beginning);
        prefix.map_err(|_| {
            anyhow!("write an id, the beginning of one (8 characters or more), or `last`")
        })
    }
}

#[cfg(test)]
mod tests;
