//! `step`, `run` and `runs`: steps, and what became of them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stepgate_core::ids::{RunId, SessionId};

use super::{ListArgs, Named};

#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// The proposal's file; `-` for standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The session that the step joins; a whole id that is not known opens one. The beginning of an id, or `last`, is
    /// one that is there. Your default session otherwise.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<Named<SessionId>>,
    /// One proposal a line in, one response a line out.
    #[arg(long)]
    pub(crate) lines: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A core action, such as WRITE_FILE, or a tool of a server, such as sonos.set_volume.
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// Arguments: KEY=VALUE, or KEY:=JSON.
    #[arg(value_name = "KEY=VALUE", conflicts_with = "args")]
    pub(crate) pairs: Vec<String>,
    /// Arguments as a JSON object.
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    /// The proposal's id, to ask again without acting again. A fresh one otherwise.
    #[arg(long, value_name = "UUID")]
    pub(crate) id: Option<String>,
    /// Why; for the record alone.
    #[arg(long, value_name = "TEXT", default_value = "asked on the command line")]
    pub(crate) reasoning: String,
    /// The session that the step joins; a whole id that is not known opens one. The beginning of an id, or `last`, is
    /// one that is there. Your default session otherwise.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<Named<SessionId>>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RunsCommand>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Show a run: what was asked, decided, done and recorded.
    #[command(after_help = "\
Examples:
  stepgate runs show last
  stepgate runs show 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10 --json")]
    Show(OneRun),
    /// Write a run as one JSON object that anyone can verify.
    #[command(after_help = "\
Examples:
  stepgate runs export last > run.json
  stepgate verify --bundle run.json")]
    Export(OneRun),
    /// Say what became of a call in doubt, and bring its run to its end.
    #[command(after_help = "\
Examples:
  stepgate runs resolve ID --succeeded --result '{\"volume\":20}'
  stepgate runs resolve ID --failed
  stepgate runs resolve ID --redispatch      it is sent again, with the same call and key

A call is in doubt when Stepgate stopped between sending it and recording its effect, and nothing \
but a person can tell what became of it: its tool has `in_doubt = \"ask\"`, or cannot be asked.")]
    Resolve(ResolveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The run's id, or its beginning, or `last` for the newest whose call is in doubt or stuck.
    #[arg(value_name = "RUN")]
    pub(crate) run: Named<RunId>,
    #[command(flatten)]
    pub(crate) settled: Settled,
    /// What the tool gave, where it succeeded and that is known.
    #[arg(long, value_name = "JSON", requires = "succeeded")]
    pub(crate) result: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Settled {
    /// It was done.
    #[arg(long)]
    pub(crate) succeeded: bool,
    /// It was not done, and shall not be.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Send it again, with the same call and key.
    #[arg(long)]
    pub(crate) redispatch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OneRun {
    /// The run's id, or its beginning, or `last` for the newest of the agent that acts on this directory (`agent`);
    /// over --url, for the newest that the token may see.
    #[arg(value_name = "RUN")]
    pub(crate) run: Named<RunId>,
}
