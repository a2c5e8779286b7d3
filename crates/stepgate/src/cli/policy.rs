//! `stepgate policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::label::Label;
use stepgate_core::origin::Origin;

use super::prove::{DiffArgs, ProveCommand};

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Ask what the tools of the configured servers are, and write their declarations and the first policies.
    ///
    /// Shows what it would write, and asks before it does. Declarations go into the configuration, where nothing is
    /// overwritten; tools that are declared already are not asked about. Policies of your own are never touched.
    #[command(after_help = "\
Examples:
  stepgate policy init
  stepgate policy init --directory ./candidate
  stepgate policy init --suggestions")]
    Init {
        /// Where the first policies go; the directory in force otherwise.
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Ask nobody: take every suggestion, and mark it as a guess in the configuration.
        #[arg(long)]
        suggestions: bool,
    },
    /// Check a directory of policies: syntax, schema, cases, policies that can never apply.
    #[command(after_help = "\
Examples:
  stepgate policy check
  stepgate policy check ./new-policies --json

The exit code is 1 when the directory could not be loaded.")]
    Check {
        /// The directory; the one in force otherwise.
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Say what would be decided on a proposal, by which policy. Nothing is executed or recorded.
    #[command(after_help = "\
Examples:
  stepgate policy explain DELETE_FILE path=/sandbox/a.txt
  stepgate policy explain sonos.set_volume volume=90 --as ci-agent
  stepgate policy explain mail.send to=a@example.com --label untrusted --window office
  stepgate policy explain mail.send to=a@example.com --label untrusted --targets user
  stepgate policy explain bank.send_money amount=30 --used payments=75.00
  stepgate policy explain DELETE_FILE path=/sandbox/a.txt --shadow")]
    Explain(ExplainArgs),
    /// Prove what policies decide on every call that can be made, or find one that they decide otherwise.
    ///
    /// A solver, cvc5, looks for a call that breaks the claim. One that it finds is shown to the engine that decides on
    /// real calls, and printed for `stepgate policy explain`. See "Prove it" in docs/policy.md for what a proof covers.
    ///
    /// The exit code is 0 where the claim is proven, 16 where it does not hold, and 1 where neither is known.
    #[command(
        subcommand,
        after_help = "\
Examples:
  stepgate policy prove asks --tool bank.transfer --arg 'amount > 100' --group finance
  stepgate policy prove denies --tool DELETE_FILE --as ci-agent
  stepgate policy prove rules"
    )]
    Prove(ProveCommand),
    /// Show what a change of policies permits and refuses, for every call that can be made.
    ///
    /// Each change is shown with a call, for `stepgate policy explain`. A solver finds it: cvc5.
    #[command(after_help = "\
Examples:
  stepgate policy diff ~/.local/share/stepgate/policies ./new-policies
  stepgate policy diff ./old ./new --fail-on-new --json")]
    Diff(DiffArgs),
    /// Ask changed policies what they would have decided on recorded history, and show every change.
    #[command(after_help = "\
Examples:
  stepgate policy replay ./new-policies
  stepgate policy replay ./new-policies --limit 100000 --json
  stepgate policy replay ./new-policies --fail-on-change")]
    Replay {
        /// The changed policies.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The newest runs, at most so many.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Exit with 15 where a decision would change, and with 1 where none would but a run cannot be read.
        #[arg(long)]
        fail_on_change: bool,
    },
    /// Show where the shadow policies would have decided otherwise: how many decisions, of which kind, and the newest.
    ///
    /// The shadow policies are those of `policy.shadow` in the configuration. They are asked beside the policies in
    /// force, and change nothing.
    #[command(after_help = "\
Examples:
  stepgate policy shadow
  stepgate policy shadow --limit 100
  stepgate policy shadow --all --json")]
    Shadow {
        /// Also differences of earlier candidates.
        #[arg(long)]
        all: bool,
        /// How many of the newest differences to list.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1000))]
        limit: u32,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A core action or a tool of a server, as `run` takes it.
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// Arguments, as `run` takes them.
    #[arg(value_name = "KEY=VALUE", conflicts_with = "args")]
    pub(crate) pairs: Vec<String>,
    /// Arguments as a JSON object.
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    /// As whom it is asked.
    #[arg(long = "as", value_name = "PRINCIPAL", default_value = "agent", value_parser = PrincipalId::parse)]
    pub(crate) principal: PrincipalId,
    /// The session whose labels, requests and records policies see; a new one otherwise.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,
    /// A label that policies see as the session's. Can be repeated.
    #[arg(long, value_name = "LABEL", value_parser = Label::parse)]
    pub(crate) label: Vec<Label>,
    /// Where policies see the call's targets come from, instead of where they do: `user`, `directory/contacts`.
    #[arg(long, value_name = "ORIGIN", value_parser = Origin::parse, value_delimiter = ',')]
    pub(crate) targets: Vec<Origin>,
    /// The same for the addresses in its other arguments.
    #[arg(long, value_name = "ORIGIN", value_parser = Origin::parse, value_delimiter = ',')]
    pub(crate) addresses: Vec<Origin>,
    /// A window of the schedule that policies see as open, instead of those that are; empty for none. Can be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) window: Vec<String>,
    /// What is used of a budget, instead of what is. Can be repeated.
    #[arg(long, value_name = "BUDGET=AMOUNT")]
    pub(crate) used: Vec<String>,
    /// How many steps policies see that the session had.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) steps: Option<u64>,
    /// A window of the schedule that policies see as open when the session was opened; empty for none. Can be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) opened: Vec<String>,
    /// A group that policies see the principal in, instead of those of the configuration; empty for none. Can be
    /// repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Vec<String>,
    /// A label that the file or the memory has, beside what the tool is declared to read. Can be repeated.
    #[arg(long, value_name = "LABEL", value_parser = Label::parse)]
    pub(crate) reads: Vec<Label>,
    /// Ask the shadow policies instead of those in force.
    #[arg(long)]
    pub(crate) shadow: bool,
}
