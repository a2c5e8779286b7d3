//! Stepgate: the gate that every action of an AI agent passes.
//!
//! This crate is the program: the command line, the configuration and the output. The service itself is in
//! `stepgate-gateway`, the listeners are in `stepgate-http` and `stepgate-mcp`.

mod backup;
mod cli;
mod client;
mod commands;
mod config;
mod data_dir;
mod log;
mod otlp;
mod payload_key;
mod timing;
mod settings;
mod show;
mod start;
mod store;

use std::process::ExitCode;

use clap::Parser;
use stepgate_exec::launcher;
use stepgate_gateway::panics;

/// A step makes some hundreds of small allocations on one thread and frees them on another. The system's allocator is
/// slow at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if launcher::is_called(arguments.next().as_deref()) {
        return launcher::run(arguments);
    }
    // A container may forbid this call. The program still works there, and tool servers cannot get CAP_SYS_PTRACE.
    let _ = launcher::protect_this_process();
    panics::watch();
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

/// Requested help is a success. Wrong usage has the general exit code: 2 and above are reserved for outcomes of
/// steps.
fn usage(refused: &clap::Error) -> ExitCode {
    // If this cannot be written, only the exit code is left.
    let _ = refused.print();
    if refused.use_stderr() { ExitCode::from(commands::FAULT) } else { ExitCode::SUCCESS }
}
