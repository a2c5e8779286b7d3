//! `stepgate grants`.

use std::str::FromStr;

use anyhow::bail;
use clap::{Args, Subcommand};
use stepgate_core::grant::Condition;
use stepgate_core::ids::{ApprovalId, ArtifactId};
use stepgate_core::limits::Limits;

use super::{Named, Span};

#[derive(Debug, Args)]
pub(crate) struct GrantsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<GrantsCommand>,
    /// Also those that are used up, expired or revoked.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// Approve further calls in advance, from an approval that was approved.
    #[command(after_help = "\
Examples:
  stepgate grants create last --uses 5 --for 1h
  stepgate grants create 0198b2c4-7a51 --uses 20 --for 8h --allow 'amount=1..50'
  stepgate grants create last --for 1d --allow 'path=/sandbox/reports/*'

The grant is for the principal that asked, and for the tool as it was defined for that call. Each argument is exactly what was \
approved, unless --allow says more. A call with any other argument is asked about as before.")]
    Create(CreateGrantArgs),
    /// Revoke a grant: no call uses it any more.
    #[command(after_help = "\
Examples:
  stepgate grants revoke last
  stepgate grants revoke 0198b2c4-7a51")]
    Revoke {
        /// The grant's id, or its beginning, or `last` for the newest that can be used.
        #[arg(value_name = "ID")]
        id: Named<ArtifactId>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateGrantArgs {
    /// The approval's id, or its beginning, or `last` for the newest of those that were approved.
    #[arg(value_name = "APPROVAL")]
    pub(crate) approval: Named<ApprovalId>,
    /// At most so many calls.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=Limits::GRANT_USES_MAX))]
    pub(crate) uses: u64,
    /// For how long, such as `15m` or `8h`.
    #[arg(long = "for", value_name = "TIME", default_value = "1h")]
    pub(crate) life: Span,
    /// What else an argument may be: `NAME=MIN..MAX` for whole numbers, `NAME=BEGINNING*` for texts. Can be repeated.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) allow: Vec<Allowance>,
    /// A note that is kept with the grant.
    #[arg(long)]
    pub(crate) note: Option<String>,
}

/// What an argument may be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Allowance {
    pub(crate) name: String,
    pub(crate) condition: Condition,
}

impl FromStr for Allowance {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let range = |range: &str| {
            let (min, max) = range.split_once("..")?;
            Some(Condition::Between(min.parse().ok()?, max.parse().ok()?))
        };
        let beginning =
            |text: &str| Some(Condition::StartsWith(text.strip_suffix('*')?.to_owned()));
        let named = text.split_once('=').and_then(|(name, allowed)| {
            let condition = range(allowed).or_else(|| beginning(allowed))?;
            Some(Self { name: name.to_owned(), condition })
        });
        match named {
            Some(allowance) => Ok(allowance),
            None => {
                bail!("write `NAME=MIN..MAX` for whole numbers, or `NAME=BEGINNING*` for texts")
            }
        }
    }
}

#[cfg(test)]
mod tests;
