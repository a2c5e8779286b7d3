//! `stepgate audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List the streams: how far each has come in the events, how many wait for it, and its last error.
    #[command(after_help = "\
Examples:
  stepgate audit list
  stepgate audit list --json")]
    List,
    /// Write events to standard output, one line each, as a stream would.
    #[command(after_help = "\
Examples:
  stepgate audit export > events.jsonl
  stepgate audit export --from 1042 --format ocsf
  stepgate audit export | jq 'select(.event_type == \"login_refused\")'

The position of an event is `position` in a line of format json, and `metadata.sequence` in one of \
format ocsf. Where the file of an archive is missing, all other events are written, the archive and the \
number of its events are named, and the command fails.")]
    Export {
        #[command(flatten)]
        positions: Positions,
        /// How an event is written.
        #[arg(long, value_name = "FORMAT", default_value = "json")]
        format: AuditFormat,
    },
    /// Send events to a stream's receiver once more. The gateway's place in the stream stays as it is.
    #[command(after_help = "\
Examples:
  stepgate audit send siem --from 1042 --to 2000
  stepgate audit send siem

It stops at the first events that do not arrive, and says from which position to go on. Where the file \
of an archive is missing, all other events are sent, the archive and the number of its events are named, \
and the command fails.")]
    Send {
        /// The stream.
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        positions: Positions,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Positions {
    /// The position of the first event; the beginning otherwise.
    #[arg(long, value_name = "POSITION", default_value_t = 1, hide_default_value = true)]
    pub(crate) from: u64,
    /// The position of the last event; the newest otherwise.
    #[arg(long, value_name = "POSITION")]
    pub(crate) to: Option<u64>,
    /// Where the archives' files are, instead of the directory of the configuration: events of runs that have left the
    /// store are read from there.
    #[arg(long, value_name = "DIR")]
    pub(crate) archives: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AuditFormat {
    /// As `GET /v1/events` has it.
    Json,
    /// In the Open Cybersecurity Schema Framework.
    Ocsf,
}
