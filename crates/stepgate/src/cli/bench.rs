//! `stepgate bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Numbers of concurrent clients, one measurement each.
    #[arg(long, value_delimiter = ',', default_value = "1,64", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) clients: Vec<u32>,
    /// Steps of one round at 64 clients. Fewer clients take proportionally fewer, but at least 500, or all where there
    /// are fewer than 500.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) steps: u32,
    /// Rounds of one measurement. The median of their rates counts.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// How the steps reach the gate; can be repeated. Each round measures every way once.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "process")]
    pub(crate) via: Vec<Via>,
    /// Actions to measure, each alone; MIX for thinking, listing, reading and writing in turns.
    #[arg(long, value_delimiter = ',', default_value = "READ_FILE,WRITE_FILE,MIX,THINK,FINISH")]
    pub(crate) actions: Vec<String>,
    /// Sessions that the steps are spread over. Over MCP each client has a session of its own instead.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) sessions: u32,
    /// Where the temporary data directory is made; the system's temporary directory otherwise.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Via {
    /// By a call in this process, without a network.
    Process,
    /// `POST /v1/steps`.
    Http,
    /// `tools/call` at `/mcp`.
    Mcp,
    /// All of these.
    All,
}
