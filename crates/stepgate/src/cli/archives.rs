//! `stepgate archive` and `stepgate hold`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stepgate_core::ids::{ArtifactId, PrincipalId, RunId, SessionId};

use super::{Named, When};

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Archive runs that are over and old enough, now.
    #[command(after_help = "\
Examples:
  stepgate archive run                       what `[retention]` says
  stepgate archive run --before 90d          every run that ended more than 90 days ago
  stepgate archive run --before 2026-01-01 --json

A file is durable before its runs leave the store. What is archived is shown, and why old runs stay.")]
    Run {
        /// Runs that ended before this time, or longer ago than this, whatever `[retention]` says.
        #[arg(long, value_name = "TIME")]
        before: Option<When>,
    },
    /// List the archives, oldest first, and whether each file is in the archive directory.
    #[command(after_help = "\
Examples:
  stepgate archive list
  stepgate archive list --json | jq -r .file")]
    List,
    /// Verify archive files alone: digests, journals, links, records.
    #[command(after_help = "\
Examples:
  stepgate archive verify archives/*.archive.jsonl
  stepgate archive verify --json /mnt/cold/0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10.archive.jsonl

It needs no data directory. That a file is the one that the store names is what `stepgate verify` finds out.")]
    Verify {
        /// The files.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HoldCommand {
    /// Keep runs in the store, however old they are, until the hold is lifted.
    #[command(after_help = "\
Examples:
  stepgate hold add --principal ci-agent --note 'case 7'
  stepgate hold add --session 0198b2c4-7a51
  stepgate hold add --run last

Runs that have left the store before stay in their archives.")]
    Add(AddHoldArgs),
    /// Lift a hold. The next pass archives what is old enough.
    #[command(after_help = "\
Examples:
  stepgate hold lift last
  stepgate hold lift 0198b2c4-7a51

What is lifted is shown at the terminal, and you are asked.")]
    Lift {
        /// The hold's id, or its beginning, or `last` for the newest that is in force.
        #[arg(value_name = "ID")]
        id: Named<ArtifactId>,
    },
    /// List the holds that are in force.
    #[command(after_help = "\
Examples:
  stepgate hold list
  stepgate hold list --all --json")]
    List {
        /// Also those that were lifted.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AddHoldArgs {
    #[command(flatten)]
    pub(crate) what: HoldWhat,
    /// Why; it is recorded.
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct HoldWhat {
    /// The runs of this principal.
    #[arg(long, value_name = "NAME", value_parser = PrincipalId::parse)]
    pub(crate) principal: Option<PrincipalId>,
    /// The runs of this session: its id, or its beginning, or `last` for the newest.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<Named<SessionId>>,
    /// This run: its id, or its beginning, or `last` for the newest.
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<Named<RunId>>,
}
