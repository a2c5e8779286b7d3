//! One file per command.

mod bench;
mod canon;
mod doctor;
mod recover;
mod run;
mod runs;
mod step;
mod verify;

use clap::CommandFactory;
use stepgate_core::failure::Outcome;
use stepgate_core::run::{Notice, Word};

use crate::cli::{Cli, Command};
use crate::data_dir::DataDir;
use crate::{config, show};

/// The exit code of anything that is not an outcome.
pub(crate) const FAULT: u8 = 1;

/// Runs a command; the exit code is its answer.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<u8> {
    config::refuse_unknown_variables(std::env::vars_os().map(|(name, _)| name))?;
    let data = DataDir::of(&cli.global);
    let json = cli.global.json;
    match cli.command {
        Command::Step(args) => step::step(&data, args).await.map_err(|fault| data.explain(fault)),
        Command::Run(args) => run::run(&data, args).await.map_err(|fault| data.explain(fault)),
        Command::Runs(args) => runs::runs(&data, args, json).await,
        Command::Verify(args) => verify::verify(&data, args, json).await,
        Command::Recover => {
            recover::recover(&data, json).await.map_err(|fault| data.explain(fault))
        }
        Command::Canon(args) => canon::canon(&args),
        Command::Digest(args) => canon::digest(&args),
        Command::Doctor => doctor::doctor(&data, json).await,
        Command::Bench(args) => bench::bench(args, json).await,
        Command::Completions { shell } => {
            // Made first and written then: the maker panics where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "stepgate", &mut script);
            show::say(String::from_utf8(script)?.trim_end())?;
            Ok(0)
        }
    }
}

/// The exit code of a response.
fn exit_code(word: Word) -> u8 {
    match word {
        Word::Outcome(Outcome::Success) => 0,
        Word::Outcome(Outcome::ValidationError) => 10,
        Word::Outcome(Outcome::Denied) => 11,
        Word::Outcome(Outcome::ExecutionError) => 12,
        Word::Notice(Notice::ApprovalRequired) => 13,
        Word::Notice(Notice::InProgress) => 14,
    }
}
