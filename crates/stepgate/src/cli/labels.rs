//! `stepgate labels`.

use clap::{Args, Subcommand};
use stepgate_core::ids::SessionId;
use stepgate_core::label::Label;

#[derive(Debug, Args)]
pub(crate) struct LabelsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LabelsCommand>,
    #[command(flatten)]
    pub(crate) of: CarrierArgs,
}

/// What the labels are of.
#[derive(Debug, Args)]
pub(crate) struct CarrierArgs {
    /// A session.
    #[arg(long, value_name = "ID", global = true)]
    pub(crate) session: Option<SessionId>,
    /// A file or directory of the sandbox.
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "session")]
    pub(crate) path: Option<String>,
    /// A memory that the configuration names.
    #[arg(long, value_name = "NAME", global = true, conflicts_with_all = ["session", "path"])]
    pub(crate) memory: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabelsCommand {
    /// Take a label away, after a look at what was read. The next call that brings it in adds it again.
    #[command(after_help = "\
Examples:
  stepgate labels remove untrusted --session 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10 --note 'the page is ours'
  stepgate labels remove secret --path /sandbox/report.txt")]
    Remove {
        /// The label.
        #[arg(value_name = "LABEL", value_parser = Label::parse)]
        label: Label,
        /// Why; it is recorded.
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
}
