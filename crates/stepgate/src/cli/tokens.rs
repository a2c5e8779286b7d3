//! `token`: who may come in.

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_gateway::tokens::Role;

use super::{Named, Span};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it, once.
    #[command(after_help = "\
Examples:
  stepgate token create --name ci-agent --role agent > ci.token
  stepgate token create --name night-shift --role operator --expires-in 30d")]
    Create {
        /// Who comes with it: the principal that policies and records name.
        #[arg(long, value_name = "NAME", value_parser = PrincipalId::parse)]
        name: PrincipalId,
        /// What it may be used for: `agent` proposes, `operator` decides, `auditor` reads.
        #[arg(long, value_parser = role())]
        role: Role,
        /// How long it is good for, such as `12h` or `30d`; until it is revoked otherwise.
        #[arg(long, value_name = "TIME", value_parser = Span::token_life)]
        expires_in: Option<Span>,
    },
    /// List the tokens that were not revoked, and when they expire.
    #[command(after_help = "\
Examples:
  stepgate token list --json")]
    List,
    /// Revoke a token. It is no longer good from then on, and neither are its event streams.
    #[command(after_help = "\
Examples:
  stepgate token revoke 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10
  stepgate token revoke 0198b2c4-7a51")]
    Revoke {
        /// The token's id, as `token list` shows it, or its beginning, or `last` for the newest.
        #[arg(value_name = "ID")]
        id: Named<ArtifactId>,
    },
}

fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|name| name.parse::<Role>())
}
