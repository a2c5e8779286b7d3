//! One file per command.

mod approvals;
mod attention;
mod backup;
mod bench;
mod canon;
mod chat;
mod confirm;
mod decide;
mod doctor;
mod find;
mod follow;
mod gateway;
mod grants;
mod mcp;
pub(crate) mod mcp_config;
mod nodes;
mod notify;
mod policy;
mod reason;
mod recover;
mod restore;
mod run;
mod runs;
mod serve;
mod sessions;
mod step;
pub(crate) mod token;
mod tools;
mod top;
mod turns;
mod verify;
mod watch;

use std::path::Path;

use anyhow::bail;
use clap::CommandFactory;
use serde_json::Value;
use stepgate_core::failure::Outcome;
use stepgate_core::ports::World;
use stepgate_core::run::{Notice, Word};
use stepgate_gateway::world::RealWorld;
use tracing::info;

use crate::cli::{
    Cli, Command, Global, McpArgs, McpCommand, NotifyArgs, NotifyCommand, PolicyArgs,
    PolicyCommand, RunsArgs, RunsCommand, TokenArgs, TokenCommand, VerifyArgs,
};
use crate::config::{self, LogConfig};
use crate::data_dir::{self, DataDir};
use crate::log::{self, Audience};
use crate::show::{self, Times};
use decide::Decision;

/// The exit code of everything that is not an outcome.
pub(crate) const FAULT: u8 = 1;

/// The exit code of a run that waits for a person.
const WAITING: u8 = 13;

/// Runs a command, and returns its exit code.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<u8> {
    config::refuse_unknown_variables(std::env::vars_os().map(|(name, _)| name))?;
    let Cli { global, command } = cli;
    if global.url.is_some() && works_on_the_directory(&command) {
        bail!("this command works on the data directory itself: leave out --url and STEPGATE_URL");
    }
    let needs = needs(&command);
    let data = place(&global, needs)?;
    begin_log(&data, &global, &command);
    tell_of_earlier_version(&global, &data, needs);
    refuse_missing(&global, &data, needs)?;
    let done = on(&data, global, command).await;
    data.joined.leave().await;
    done
}

/// Begins the log as the command line says, and for a process that serves also as the configuration says. A
/// configuration that is not valid is refused by the command itself.
fn begin_log(data: &DataDir, global: &Global, command: &Command) {
    let is_service = matches!(command, Command::Serve(_) | Command::Mcp(McpArgs { command: None }));
    let (audience, config) = match is_service && global.url.is_none() {
        true => (Audience::Service, data.load_config().ok()),
        false => (Audience::Command, None),
    };
    let LogConfig { format, level } = config.map(|config| config.log).unwrap_or_default();
    log::begin(global.log_format.unwrap_or(format), level, audience);
}

async fn on(data: &DataDir, global: Global, command: Command) -> anyhow::Result<u8> {
    let json = global.json;
    let explained = |fault| data.explain(fault);
    match command {
        Command::Serve(args) => serve::serve(data, args, json).await.map_err(explained),
        Command::Mcp(McpArgs { command: None }) => mcp::mcp(&global, data).await.map_err(explained),
        Command::Mcp(McpArgs { command: Some(McpCommand::Config { client, stdio }) }) => {
            mcp_config::config(&global, data, client, stdio)
        }
        Command::Chat(args) => chat::chat(&global, data, args).await.map_err(explained),
        Command::Step(args) => step::step(&global, data, args).await.map_err(explained),
        Command::Run(args) => run::run(&global, data, args).await.map_err(explained),
        Command::Attention(args) => {
            attention::attention(&global, data, args).await.map_err(explained)
        }
        Command::Approvals(args) => approvals::approvals(&global, data, args).await,
        Command::Approve(args) => {
            decide::decide(&global, data, args, Decision::Approve).await.map_err(explained)
        }
        Command::Deny(args) => {
            decide::decide(&global, data, args, Decision::Deny).await.map_err(explained)
        }
        Command::Tools(args) => tools::tools(&global, data, args).await.map_err(explained),
        Command::Policy(args) => policy::policy(&global, data, args).await.map_err(explained),
        Command::Token(args) => token::token(&global, data, args).await.map_err(explained),
        Command::Grants(args) => grants::grants(&global, data, args).await.map_err(explained),
        Command::Runs(args) => runs::runs(&global, data, args).await,
        Command::Top => top::top(&global, data).await,
        Command::Sessions(args) => sessions::sessions(&global, data, &args).await,
        Command::Turns(args) => turns::turns(&global, data, &args).await,
        Command::Nodes => nodes::nodes(&global, data).await,
        Command::Notify(args) => notify::notify(data, args.command, json).await,
        Command::Verify(args) => verify::verify(data, args, json).await,
        Command::Backup(args) => backup::backup(data, args, json).await.map_err(explained),
        Command::Restore(args) => restore::restore(data, args, json).await.map_err(explained),
        Command::Recover => recover::recover(&global, data).await.map_err(explained),
        Command::Canon(args) => canon::canon(&args),
        Command::Digest(args) => canon::digest(&args),
        Command::Doctor => doctor::doctor(&global, data, json).await,
        Command::Bench(args) => bench::bench(args, global.store, json).await,
        Command::Completions { shell } => {
            // Generated into memory first: the generator panics if it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "stepgate", &mut script);
            show::plain(String::from_utf8(script)?.trim_end())?;
            Ok(0)
        }
    }
}

/// What a command needs before it begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing.
    Nothing,
    /// A place for a data directory, which the command creates if there is none.
    Place,
    /// A store to read, wherever it is.
    Store,
    /// A data directory. Without one the answers would be "nothing waits", "no token is valid", which would mislead
    /// a user who meant another directory.
    Directory,
}

fn needs(command: &Command) -> Needs {
    match command {
        Command::Canon(_)
        | Command::Digest(_)
        | Command::Bench(_)
        | Command::Completions { .. }
        | Command::Verify(VerifyArgs { bundle: Some(_), .. }) => Needs::Nothing,
        Command::Serve(_)
        | Command::Mcp(_)
        | Command::Chat(_)
        | Command::Step(_)
        | Command::Run(_)
        | Command::Restore(_)
        | Command::Notify(NotifyArgs { command: NotifyCommand::Test { .. } })
        | Command::Token(TokenArgs { command: TokenCommand::Create { .. } })
        | Command::Policy(PolicyArgs { command: PolicyCommand::Check { directory: Some(_) } }) => {
            Needs::Place
        }
        Command::Verify(_)
        | Command::Nodes
        | Command::Notify(_)
        | Command::Backup(_)
        | Command::Doctor
        | Command::Policy(PolicyArgs { command: PolicyCommand::Replay { .. } })
        | Command::Runs(RunsArgs {
            command: None | Some(RunsCommand::Show(_) | RunsCommand::Export(_)),
            ..
        }) => Needs::Store,
        Command::Attention(_)
        | Command::Approvals(_)
        | Command::Approve(_)
        | Command::Deny(_)
        | Command::Top
        | Command::Sessions(_)
        | Command::Turns(_)
        | Command::Tools(_)
        | Command::Policy(_)
        | Command::Token(_)
        | Command::Grants(_)
        | Command::Recover
        | Command::Runs(_) => Needs::Directory,
    }
}

/// Points out a data directory of an earlier version that is not the one in use.
fn tell_of_earlier_version(global: &Global, data: &DataDir, needs: Needs) {
    if needs == Needs::Nothing || global.url.is_some() || global.data.is_some() {
        return;
    }
    if let Some(older) = data_dir::of_earlier_version() {
        let older = older.display();
        info!(
            "`{older}` here is the data directory of an earlier version and is not used by itself: add \
             `--data {older}`, or set STEPGATE_DATA; in use is `{}`",
            data.root().display()
        );
    }
}

/// The data directory of a command.
fn place(global: &Global, needs: Needs) -> anyhow::Result<DataDir> {
    if needs == Needs::Nothing || global.url.is_some() {
        // The path is never used, so a machine without a home directory works too.
        return Ok(DataDir::of(global).unwrap_or_else(|_| DataDir::at(Path::new(""))));
    }
    DataDir::of(global)
}

/// Refuses a directory that lacks what the command needs.
fn refuse_missing(global: &Global, data: &DataDir, needs: Needs) -> anyhow::Result<()> {
    if global.url.is_some() {
        return Ok(());
    }
    let is_elsewhere = || anyhow::Ok(data.store_url(&data.load_config()?)?.is_some());
    match needs {
        Needs::Nothing | Needs::Place => Ok(()),
        Needs::Store => data.must_exist().or_else(|none| match is_elsewhere() {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(none),
        }),
        Needs::Directory => data.must_exist(),
    }
}

/// Whether a command works only on the data directory: with --url it would answer for another store than the user
/// meant.
fn works_on_the_directory(command: &Command) -> bool {
    match command {
        Command::Serve(_)
        | Command::Nodes
        | Command::Notify(_)
        | Command::Verify(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Doctor => true,
        Command::Mcp(_)
        | Command::Chat(_)
        | Command::Step(_)
        | Command::Run(_)
        | Command::Attention(_)
        | Command::Approvals(_)
        | Command::Approve(_)
        | Command::Deny(_)
        | Command::Top
        | Command::Sessions(_)
        | Command::Turns(_)
        | Command::Tools(_)
        | Command::Policy(_)
        | Command::Token(_)
        | Command::Grants(_)
        | Command::Runs(_)
        | Command::Recover
        | Command::Canon(_)
        | Command::Digest(_)
        | Command::Bench(_)
        | Command::Completions { .. } => false,
    }
}

/// How this command shows times.
fn times(global: &Global) -> Times {
    Times::at(RealWorld.now(), global.utc)
}

/// The time that a member of a gateway's row has; what is no time is shown as it is.
fn past(times: Times, row: &Value, name: &str) -> String {
    let text = row.get(name).and_then(Value::as_str).unwrap_or("-");
    text.parse().map_or_else(|_| text.to_owned(), |at| times.past(at))
}

/// The exit code of a response received from a gateway.
fn exit_code_of(outcome: &str) -> Option<u8> {
    let outcomes = Outcome::ALL.map(Word::Outcome);
    let notices = [Notice::ApprovalRequired, Notice::InProgress].map(Word::Notice);
    let word = outcomes.into_iter().chain(notices).find(|word| word.as_str() == outcome);
    word.map(exit_code)
}

/// The exit code of a response.
fn exit_code(word: Word) -> u8 {
    match word {
        Word::Outcome(Outcome::Success) => 0,
        Word::Outcome(Outcome::ValidationError) => 10,
        Word::Outcome(Outcome::Denied) => 11,
        Word::Outcome(Outcome::ExecutionError) => 12,
        Word::Notice(Notice::ApprovalRequired) => WAITING,
        Word::Notice(Notice::InProgress) => 14,
    }
}
