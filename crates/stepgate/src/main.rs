//! Stepgate: the gate that every action of an AI agent passes.
//!
//! This crate listens and shows. What decides is in `stepgate-core`, what remembers in
//! `stepgate-store`, what acts in `stepgate-exec`.

mod cli;
mod commands;
mod config;
mod data_dir;
mod show;
mod world;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(cli)),
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("{}error:{:#} {error:#}", show::ERROR, show::ERROR);
            ExitCode::from(commands::FAULT)
        }
    }
}

/// A reader that has seen enough, such as `head`, is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
