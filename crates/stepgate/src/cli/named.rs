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
mod tests {
    use stepgate_core::ids::RunId;

    use super::*;

    #[test]
    fn an_id_its_beginning_and_last_are_told_apart_and_the_rest_is_refused() {
        const ID: &str = "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10";
        let named = |text: &str| text.parse::<Named<RunId>>();
        assert_eq!(named("last").unwrap(), Named::Last);
        assert_eq!(named(ID).unwrap(), Named::Whole(ID.parse().unwrap()));
        let beginning = Named::Beginning(IdPrefix::parse("0198b2c4").unwrap());
        assert_eq!(named("0198B2C4").unwrap(), beginning);
        for refused in ["", "0198b2c", "LAST", "latest", "0198b2c4/../x", "%", "00000000 "] {
            assert!(named(refused).is_err(), "{refused}");
        }
    }
}
