//! `stepgate erasable`.

use clap::{Args, Subcommand};
use stepgate_core::ids::{PrincipalId, RunId, SessionId};

use super::{Named, OneRun};

#[derive(Debug, Subcommand)]
pub(crate) enum ErasableCommand {
    /// Show the erasable arguments of a run, or who erased them and why.
    #[command(after_help = "\
Examples:
  stepgate erasable show last
  stepgate erasable show 0198b2c4-7a51 --json | jq .arguments")]
    Show(OneRun),
    /// Find the runs with erasable arguments of a principal or session, or with a text in them. Nothing changes.
    #[command(after_help = "\
Examples:
  stepgate erasable find --containing alice@example.org
  stepgate erasable find --containing - <name.txt      the text stands in no history of the shell
  stepgate erasable find --principal ci-agent --json | jq -r '.runs[]'

Upper and lower case are different. What names of files, results and reasonings contain is not looked at.")]
    Find(ErasableWhat),
    /// Erase arguments for good. The journals keep their digests, and verify as before.
    #[command(after_help = "\
Examples:
  stepgate erasable erase --containing alice@example.org --reason 'request 4711'
  stepgate erasable erase --session 0198b2c4-7a51 --reason 'wrong address'
  stepgate erasable erase --run last --reason 'a key by mistake'

What would be erased is shown at the terminal, and you are asked. Runs under a hold keep their arguments, and so do runs \
that are not over. Backups that were made before still have them.")]
    Erase(EraseArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EraseArgs {
    #[command(flatten)]
    pub(crate) what: ErasableWhat,
    /// Why; it is recorded.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ErasableWhat {
    /// The runs of this principal.
    #[arg(long, value_name = "NAME", value_parser = PrincipalId::parse)]
    pub(crate) principal: Option<PrincipalId>,
    /// The runs of this session: its id, or its beginning, or `last` for the newest.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<Named<SessionId>>,
    /// This run: its id, or its beginning, or `last` for the newest.
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<Named<RunId>>,
    /// Every run whose erasable arguments contain this text; `-` reads it from standard input.
    #[arg(long, value_name = "TEXT")]
    pub(crate) containing: Option<String>,
}
