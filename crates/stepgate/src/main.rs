//! Stepgate: the gate that every action of an AI agent passes.
//!
//! This crate is the program: the command line, the configuration and what people see. What runs is in
//! `stepgate-gateway`, what listens in `stepgate-http` and `stepgate-mcp`.

mod backup;
mod cli;
mod client;
mod commands;
mod config;
mod data_dir;
mod log;
mod settings;
mod show;
mod start;
mod store;

use std::process::ExitCode;

use clap::Parser;
use stepgate_exec::launcher;
use stepgate_gateway::panics;

/// A step makes some hundreds of small allocations, on one thread and frees them on another: what the
/// system's allocator is worst at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if launcher::is_called(arguments.next().as_deref()) {
        return launcher::run(arguments);
    }
    // A sandbox without this call still works, and a tool server gets no capability to look with.
    let _ = launcher::protect_this_process();
    panics::count_and_log();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(refused) => return usage(&refused),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(cli)),
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            log::fatal(&error);
            ExitCode::from(commands::FAULT)
        }
    }
}

/// Help that was asked for is a success. A wrong usage has no code of its own: 2 and above are
/// outcomes of steps, or could become some.
fn usage(refused: &clap::Error) -> ExitCode {
    // Where even this cannot be written, the exit code is all that is left.
    let _ = refused.print();
    if refused.use_stderr() { ExitCode::from(commands::FAULT) } else { ExitCode::SUCCESS }
}
