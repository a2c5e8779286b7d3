//! The arguments of the commands that list.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use stepgate_core::attention::Kind;
use stepgate_core::ids::{PrincipalId, RunId, SessionId};

use super::{Named, When};

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only runs with this status.
    #[arg(long, value_parser = ["started", "approval_required", "approved", "ok", "error", "timeout", "denied"])]
    pub(crate) status: Option<String>,
    /// Only runs of this tool.
    #[arg(long, value_name = "TOOL")]
    pub(crate) tool: Option<String>,
    /// Only runs of this session: its id, the beginning of its id, or `last`.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<Named<SessionId>>,
    /// Only runs of this principal.
    #[arg(long, value_name = "NAME", value_parser = PrincipalId::parse)]
    pub(crate) principal: Option<PrincipalId>,
    /// Only runs from this time on: `2026-01-31`, `2026-01-31T12:00` in UTC, or how long ago, such as `2h` or `7d`.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Only runs before this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<When>,
    /// Only runs whose id begins with this (from 8 characters on), or whose tool has this in its name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Only runs older than this one.
    #[arg(long, value_name = "RUN")]
    pub(crate) before: Option<Named<RunId>>,
    /// Show events as they happen, until Ctrl-C. Needs a process that serves.
    #[arg(long, conflicts_with_all = ["status", "tool", "session", "principal", "since", "until", "text", "before"])]
    pub(crate) follow: bool,
    /// At most so many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct AttentionArgs {
    /// Only what needs a person for this reason.
    #[arg(long, value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::as_str)))]
    pub(crate) kind: Option<String>,
    /// Go on with what comes to need a person, until Ctrl-C. Needs a process that serves.
    #[arg(long)]
    pub(crate) watch: bool,
}

impl AttentionArgs {
    /// Whether what needs a person for this reason is asked for.
    pub(crate) fn is_asked_for(&self, kind: &str) -> bool {
        self.kind.as_deref().is_none_or(|asked| asked == kind)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    /// Only those with this status.
    #[arg(long, default_value = "pending", value_parser = ["pending", "approved", "denied", "expired", "all"])]
    pub(crate) status: String,
    /// Only those that this principal asked for.
    #[arg(long, value_name = "NAME", value_parser = PrincipalId::parse)]
    pub(crate) principal: Option<PrincipalId>,
    /// Only those that were asked from this time on: `2026-01-31`, `2026-01-31T12:00` in UTC, or how long ago,
    /// such as `2h`.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Only those that were asked before this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<When>,
    /// Go on with those that are asked from now on, until Ctrl-C. Needs a process that serves.
    #[arg(long, conflicts_with_all = ["status", "since", "until"])]
    pub(crate) watch: bool,
    /// At most so many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SessionsCommand>,
    /// Only sessions of this principal.
    #[arg(long, value_name = "NAME", value_parser = PrincipalId::parse)]
    pub(crate) principal: Option<PrincipalId>,
    /// At most so many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// Record what the user of a session asked for. Policies know then which arguments stand in it.
    #[command(after_help = "\
Examples:
  stepgate sessions request last 'Send the report to ann@example.com'
  stepgate sessions request 0198b2c4-7a51 - < request.txt")]
    Request {
        /// The session: its id, the beginning of its id, or `last`.
        #[arg(value_name = "ID")]
        session: Named<SessionId>,
        /// The user's own words; `-` reads them from standard input.
        #[arg(value_name = "TEXT")]
        text: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TurnsArgs {
    /// Only turns of this session: its id, the beginning of its id, or `last`.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<Named<SessionId>>,
    /// Only turns of this principal.
    #[arg(long, value_name = "NAME", value_parser = PrincipalId::parse)]
    pub(crate) principal: Option<PrincipalId>,
    /// At most so many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
}
