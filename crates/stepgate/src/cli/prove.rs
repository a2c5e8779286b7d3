//! `stepgate policy prove` and `stepgate policy diff`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stepgate_core::ids::PrincipalId;
use stepgate_policy::symbolic::ArgTest;

#[derive(Debug, Subcommand)]
pub(crate) enum ProveCommand {
    /// Prove that no call like this is done unless a person approves it.
    #[command(after_help = "\
Examples:
  stepgate policy prove asks --tool bank.transfer --arg 'amount > 100'
  stepgate policy prove asks --server mail --group interns
  stepgate policy prove asks --when 'context.sends.contains(Label::\"egress\") && context.session.labels.contains(Label::\"secret\")'")]
    Asks(ClaimArgs),
    /// Prove that no call like this is done at all.
    #[command(after_help = "\
Examples:
  stepgate policy prove denies --tool DELETE_FILE --as ci-agent
  stepgate policy prove denies --tool sonos.set_volume --arg 'volume > 60'
  stepgate policy prove denies --tool WRITE_FILE --when '!(resource in Path::\"/sandbox/reports\")'")]
    Denies(ClaimArgs),
    /// Find policies that can never match a call, and policies that change nothing.
    #[command(after_help = "\
Examples:
  stepgate policy prove rules
  stepgate policy prove rules --policies ./new-policies --json")]
    Rules(SolverArgs),
}

/// Which calls a claim is about.
#[derive(Debug, Args)]
pub(crate) struct ClaimArgs {
    /// A tool or a core action; all where none and no server is named. Can be repeated.
    #[arg(long, value_name = "TOOL")]
    pub(crate) tool: Vec<String>,
    /// All tools of a server; `core` for the core actions. Can be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Vec<String>,
    /// By this principal, in the groups that the configuration says; otherwise by any.
    #[arg(long = "as", value_name = "PRINCIPAL", value_parser = PrincipalId::parse)]
    pub(crate) principal: Option<PrincipalId>,
    /// By principals of this group. Can be repeated: in all of them.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Vec<String>,
    /// By principals in the groups that the configuration says now; otherwise in any groups.
    #[arg(long)]
    pub(crate) configured_groups: bool,
    /// With an argument like this: `amount > 100`, `to = ann`, `to contains ann`. Can be repeated: all hold.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) arg: Vec<ArgTest>,
    /// Where this holds, in the language of policies.
    #[arg(long, value_name = "CEDAR")]
    pub(crate) when: Option<String>,
    #[command(flatten)]
    pub(crate) solver: SolverArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SolverArgs {
    /// The policies; those in force otherwise.
    #[arg(long, value_name = "DIR")]
    pub(crate) policies: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// The solver cvc5, where it is not the one that the configuration or the search path has.
    #[arg(long, value_name = "PROGRAM", env = "CVC5")]
    pub(crate) solver: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The policies before the change.
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// The policies after it.
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// Exit with 15 where something new is permitted, or may be.
    #[arg(long)]
    pub(crate) fail_on_new: bool,
    /// Exit with 15 where anything changes.
    #[arg(long)]
    pub(crate) fail_on_change: bool,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}
