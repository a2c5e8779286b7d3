//! One file per command.

mod approvals;
mod archive;
mod attention;
mod audit;
mod backup;
mod bench;
mod canon;
mod chat;
mod confirm;
mod cursors;
mod decide;
mod doctor;
mod find;
mod follow;
mod gateway;
mod grants;
mod erasable;
mod holds;
mod labels;
mod man;
mod mcp;
pub(crate) mod mcp_config;
mod nodes;
mod notify;
mod policy;
mod ready;
mod reason;
mod recover;
mod restore;
mod run;
mod runs;
mod serve;
mod sessions;
mod standing;
mod step;
mod stops;
mod budget;
pub(crate) mod token;
mod tools;
mod top;
mod turns;
mod verify;
mod watch;

use std::fmt::Display;

use anyhow::bail;
use clap::CommandFactory;
use serde::Serialize;
use serde_json::{Value, json};
use stepgate_core::failure::Outcome;
use stepgate_core::ports::World;
use stepgate_core::run::{Notice, Word};
use stepgate_gateway::world::RealWorld;
use tracing::info;

use crate::cli::{
    ArchiveCommand, Cli, Command, ConfigCommand, Global, McpCommand, NotifyCommand, PolicyCommand,
    RunsArgs, RunsCommand, TokenCommand, VerifyArgs,
};
use crate::config::{self, Config, LogConfig};
use crate::data_dir::{self, DataDir};
use crate::log::{self, Audience};
use crate::otlp::{self, Exporter};
use crate::settings;
use crate::show::{self, Times};
use decide::Decision;

/// The exit code of everything that is not an outcome.
pub(crate) const FAULT: u8 = 1;

const WAITING: u8 = 13;

pub(crate) async fn run(cli: Cli) -> anyhow::Result<u8> {
    config::refuse_unknown_variables(std::env::vars_os().map(|(name, _)| name))?;
    let Cli { global, command } = cli;
    let (needs, reach) = needs(&command);
    if global.url.is_some() && reach == Reach::Directory {
        bail!("this command works on the data directory itself: leave out --url and STEPGATE_URL");
    }
    let is_used = needs != Needs::Nothing && global.url.is_none();
    let data = DataDir::of(global, is_used)?;
    begin_log(&data, &command);
    tell_of_earlier_version(&data, needs);
    refuse_missing(&data, needs)?;
    let done = on(&data, command).await;
    data.joined.leave().await;
    otlp::finish();
    done
}

/// Begins the log as the command line says, and for a process that serves also as the configuration says. A
/// configuration that is not valid is refused by the command itself.
fn begin_log(data: &DataDir, command: &Command) {
    let global = &data.global;
    let is_service = matches!(command, Command::Serve(_) | Command::Mcp { command: None });
    let (audience, config) = match is_service && global.url.is_none() {
        true => (Audience::Service, data.load_config().ok()),
        false => (Audience::Command, None),
    };
    let exporter = config.as_ref().and_then(|config| exporter(data, config));
    let LogConfig { format, level } = config.map(|config| config.log).unwrap_or_default();
    log::begin(global.log_format.unwrap_or(format), level, audience, exporter);
}

/// Where spans and lines are exported to. What is wrong with it is refused by the command itself.
fn exporter(data: &DataDir, config: &Config) -> Option<Exporter> {
    Exporter::start(settings::collector(data, config).ok()??).ok()
}

async fn on(data: &DataDir, command: Command) -> anyhow::Result<u8> {
    let explained = |fault| data.explain(fault);
    match command {
        // Those with exit codes of their own.
        Command::Chat(args) => return chat::chat(data, args).await.map_err(explained),
        Command::Step(args) => return step::step(data, args).await.map_err(explained),
        Command::Run(args) => return run::run(data, args).await.map_err(explained),
        Command::Approve(args) => {
            return decide::decide(data, args, Decision::Approve).await.map_err(explained);
        }
        Command::Deny(args) => {
            return decide::decide(data, args, Decision::Deny).await.map_err(explained);
        }
        Command::Policy(command) => return policy::policy(data, command).await.map_err(explained),
        Command::Runs(args) => return runs::runs(data, args).await,
        Command::Audit(command) => return audit::audit(data, command).await,
        Command::Notify(command) => return notify::notify(data, command).await,
        Command::Verify(args) => return verify::verify(data, args).await,
        Command::Archive(command) => {
            return archive::archive(data, command).await.map_err(explained);
        }
        Command::Recover => return recover::recover(data).await.map_err(explained),
        Command::Doctor => return doctor::doctor(data).await,
        Command::Serve(args) => serve::serve(data, args).await.map_err(explained)?,
        Command::Mcp { command: None } => mcp::mcp(data).await.map_err(explained)?,
        Command::Mcp { command: Some(McpCommand::Config { client, stdio }) } => {
            mcp_config::config(data, client, stdio)?;
        }
        Command::Attention(args) => attention::attention(data, args).await.map_err(explained)?,
        Command::Approvals(args) => approvals::approvals(data, args).await?,
        Command::Tools { command } => tools::tools(data, command).await.map_err(explained)?,
        Command::Token(command) => token::token(data, command).await.map_err(explained)?,
        Command::Grants(args) => grants::grants(data, args).await.map_err(explained)?,
        Command::Labels(args) => labels::labels(data, args).await.map_err(explained)?,
        Command::Budget { name } => budget::budget(data, name).await.map_err(explained)?,
        Command::Stop(args) => stops::stop(data, args).await.map_err(explained)?,
        Command::Stops { all } => stops::STOPS.print(data, all).await.map_err(explained)?,
        Command::Lift { id } => stops::STOPS.lift(data, &id).await.map_err(explained)?,
        Command::Top => top::top(data).await?,
        Command::Sessions(args) => sessions::sessions(data, args).await?,
        Command::Turns(args) => turns::turns(data, &args).await?,
        Command::Nodes => nodes::nodes(data).await?,
        Command::Hold(command) => holds::hold(data, command).await.map_err(explained)?,
        Command::Erasable(command) => erasable::erasable(data, command).await.map_err(explained)?,
        Command::Backup(args) => backup::backup(data, args).await.map_err(explained)?,
        Command::Restore(args) => restore::restore(data, args).await.map_err(explained)?,
        Command::Canon(args) => canon::canon(&args)?,
        Command::Digest(args) => canon::digest(&args)?,
        Command::Bench(args) => bench::bench(data, args).await?,
        Command::Completions { shell } => {
            // Generated into memory first: the generator panics if it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "stepgate", &mut script);
            show::plain(String::from_utf8(script)?.trim_end())?;
        }
        Command::Man { directory } => man::man(&directory)?,
        Command::Config(ConfigCommand::Sample) => show::plain(config::sample()?.trim_end())?,
        Command::Ready => ready::ready(data).await?,
    }
    Ok(0)
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

/// Where a command works.
#[derive(PartialEq, Eq)]
enum Reach {
    /// On the data directory alone: with --url it would answer for another store than the user meant.
    Directory,
    /// Wherever the gateway is, or nowhere in particular.
    Anywhere,
}

/// What a command needs, and where it looks for that.
fn needs(command: &Command) -> (Needs, Reach) {
    match command {
        Command::Canon(_)
        | Command::Digest(_)
        | Command::Bench(_)
        | Command::Config(_)
        | Command::Archive(ArchiveCommand::Verify { .. })
        | Command::Man { .. }
        | Command::Completions { .. } => (Needs::Nothing, Reach::Anywhere),
        Command::Verify(VerifyArgs { bundle: Some(_), .. }) => (Needs::Nothing, Reach::Directory),
        Command::Serve(_)
        | Command::Restore(_)
        | Command::Notify(NotifyCommand::Test { .. })
        | Command::Policy(PolicyCommand::Init { .. }) => (Needs::Place, Reach::Directory),
        Command::Mcp { .. }
        | Command::Chat(_)
        | Command::Step(_)
        | Command::Run(_)
        | Command::Token(TokenCommand::Create { .. })
        | Command::Policy(PolicyCommand::Check { directory: Some(_) }) => {
            (Needs::Place, Reach::Anywhere)
        }
        Command::Verify(_)
        | Command::Archive(ArchiveCommand::List)
        | Command::Nodes
        | Command::Notify(_)
        | Command::Audit(_)
        | Command::Backup(_)
        | Command::Doctor => (Needs::Store, Reach::Directory),
        Command::Policy(PolicyCommand::Replay { .. })
        | Command::Runs(RunsArgs {
            command: None | Some(RunsCommand::Show(_) | RunsCommand::Export(_)),
            ..
        }) => (Needs::Store, Reach::Anywhere),
        Command::Attention(_)
        | Command::Approvals(_)
        | Command::Approve(_)
        | Command::Deny(_)
        | Command::Top
        | Command::Sessions(_)
        | Command::Turns(_)
        | Command::Tools { .. }
        | Command::Policy(_)
        | Command::Token(_)
        | Command::Grants(_)
        | Command::Labels(_)
        | Command::Budget { .. }
        | Command::Stop(_)
        | Command::Stops { .. }
        | Command::Lift { .. }
        | Command::Archive(_)
        | Command::Hold(_)
        | Command::Erasable(_)
        | Command::Ready
        | Command::Recover
        | Command::Runs(_) => (Needs::Directory, Reach::Anywhere),
    }
}

/// Points out a data directory of an earlier version that is not the one in use.
fn tell_of_earlier_version(data: &DataDir, needs: Needs) {
    if needs == Needs::Nothing || data.global.url.is_some() || data.global.data.is_some() {
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

fn refuse_missing(data: &DataDir, needs: Needs) -> anyhow::Result<()> {
    if data.global.url.is_some() {
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

fn times(global: &Global) -> Times {
    Times::at(RealWorld.now(), global.utc)
}

/// The time that a member of a gateway's row has; what is no time is shown as it is.
fn past(times: Times, row: &Value, name: &str) -> String {
    let text = row.get(name).and_then(Value::as_str).unwrap_or("-");
    text.parse().map_or_else(|_| text.to_owned(), |at| times.past(at))
}

/// A text member of a gateway's row; empty where it has none.
fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A number of a gateway's row; 0 where it has none.
fn number(row: &Value, name: &str) -> u64 {
    row.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// The list that a gateway's row has under a name; empty where it has none.
fn rows<'a>(row: &'a Value, name: &str) -> &'a [Value] {
    row.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts in such a list, made safe to show, with commas between them.
fn texts(row: &Value, name: &str) -> String {
    let texts: Vec<_> =
        rows(row, name).iter().filter_map(Value::as_str).map(show::printable).collect();
    texts.join(", ")
}

fn print_one<T: Serialize, S: Display>(
    value: &T,
    global: &Global,
    words: impl FnOnce() -> S,
) -> anyhow::Result<()> {
    if global.json { show::json(value) } else { show::say(words()) }
}

/// Prints a list: its rows as JSON, one a line, or what `shown` makes of them; `nothing` where there are none.
fn print_list<T: Serialize, S: Display>(
    rows: &[T],
    global: &Global,
    nothing: &str,
    shown: impl FnOnce() -> S,
) -> anyhow::Result<()> {
    if global.json {
        return rows.iter().try_for_each(show::json);
    }
    if rows.is_empty() {
        return show::say(nothing);
    }
    show::say(shown())
}

/// A proposal under an id of its own.
fn proposal(action: &str, args: impl Serialize, reasoning: &str) -> Value {
    json!({
        "schema_version": "1.0.0",
        "id": uuid::Uuid::new_v4(),
        "reasoning": reasoning,
        "action": action,
        "args": args,
    })
}

fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// The exit code of a response received from a gateway.
fn exit_code_of(outcome: &str) -> Option<u8> {
    Word::ALL.into_iter().find(|word| word.as_str() == outcome).map(exit_code)
}

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
