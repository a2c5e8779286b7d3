//! The command line, with examples for every command.

mod archives;
mod audit;
mod erasable;
mod backup;
mod bench;
mod grants;
mod labels;
mod lists;
mod named;
mod policy;
mod prove;
mod steps;
mod stops;
mod times;
mod tokens;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use stepgate_core::budget::BudgetName;
use stepgate_core::ids::{ApprovalId, ArtifactId, SessionId};
use stepgate_core::tool::ToolName;

use crate::config::LogFormat;
pub(crate) use archives::{AddHoldArgs, ArchiveCommand, HoldCommand, HoldWhat};
pub(crate) use audit::{AuditCommand, AuditFormat, Positions};
pub(crate) use backup::{BackupArgs, RestoreArgs, VerifyArgs};
pub(crate) use bench::{BenchArgs, Via};
pub(crate) use erasable::{ErasableCommand, ErasableWhat, EraseArgs};
pub(crate) use grants::{Allowance, CreateGrantArgs, GrantsArgs, GrantsCommand};
pub(crate) use labels::{CarrierArgs, LabelsArgs, LabelsCommand};
pub(crate) use lists::{
    ApprovalsArgs, AttentionArgs, ListArgs, SessionsArgs, SessionsCommand, TurnsArgs,
};
pub(crate) use named::Named;
pub(crate) use policy::{ExplainArgs, PolicyCommand};
pub(crate) use prove::{ClaimArgs, DiffArgs, ProgramArgs, ProveCommand, SolverArgs};
pub(crate) use steps::{OneRun, ResolveArgs, RunArgs, RunsArgs, RunsCommand, StepArgs};
pub(crate) use stops::{StopArgs, StopWhat};
pub(crate) use times::{Span, When};
pub(crate) use tokens::TokenCommand;

const EXAMPLES: &str = "\
Examples:
  stepgate serve
  stepgate run WRITE_FILE path=/sandbox/hello.txt content=hi
  stepgate step proposal.json
  stepgate approvals
  stepgate approve last
  stepgate top
  stepgate stop --all
  stepgate runs show last
  stepgate verify

Where a command takes an id, the beginning of the id does, from 8 characters on, as long as no other begins like it; \
so does `last`, for the newest.

Exit codes: 0 success, 10 VALIDATION_ERROR, 11 DENIED, 12 EXECUTION_ERROR, 13 waiting for approval,
14 in progress, 15 decisions would change (`policy replay` and `policy diff`, with `--fail-on-…`), 16 a claim does not hold
(`policy prove`), 1 anything else.";

/// The gate that every action of an AI agent passes.
///
/// A proposal is parsed strictly, validated, authorized, executed once, and recorded so that no
/// change goes unseen.
#[derive(Debug, Parser)]
#[command(name = "stepgate", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Data directory: database, sandbox, policies, tokens, configuration. Otherwise
    /// `$XDG_DATA_HOME/stepgate`, which is `~/.local/share/stepgate` unless you have set that. `serve`, `mcp`,
    /// `chat`, `step`, `run`, `token create` and `restore` make it; every other command needs one that is there.
    #[arg(long, global = true, value_name = "DIR", env = "STEPGATE_DATA")]
    pub(crate) data: Option<PathBuf>,
    /// The store, where it is not in the data directory: `postgres://USER@HOST/DATABASE`, which any
    /// number of nodes share, each with a data directory of its own.
    #[arg(long, global = true, value_name = "URL", env = "STEPGATE_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Configuration file; otherwise `stepgate.toml` in the data directory, if it is there.
    #[arg(long, global = true, value_name = "FILE", env = "STEPGATE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Ask the gateway at this address, such as `http://127.0.0.1:7420` or `https://gate.example.com`,
    /// instead of the data directory; with the token in STEPGATE_TOKEN or in --token-file.
    #[arg(long, global = true, value_name = "URL", env = "STEPGATE_URL")]
    pub(crate) url: Option<String>,
    /// The file with the token for --url; on the data directory, with the operator's token for a command that
    /// decides. Without one, such a command asks at the terminal.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON, one value a line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print times in full, in UTC, instead of how long ago.
    #[arg(long, global = true)]
    pub(crate) utc: bool,
    /// How log lines are written to standard error; otherwise as `log.format` says.
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway: HTTP for agents, operators and auditors, until it is stopped.
    #[command(after_help = "\
Examples:
  stepgate serve
  stepgate --data /srv/gate serve --bind 127.0.0.1:8000 --quiet
  stepgate serve --bind 0.0.0.0:7420 --tls-certificate gate.pem --tls-key gate.key

The first start makes an operator's and an agent's token, in two files of the data directory that \
only you can read. Ctrl-C or SIGTERM stops it: requests are taken for `serve.drain_ms` more, and \
running steps finish first, for at most `serve.shutdown_ms`. A certificate that is renewed in its \
file is taken within seconds. Commands that act on the same directory become clients of this process; \
those that only look read the store beside it.")]
    Serve(ServeArgs),
    /// Speak MCP over standard input and output, for clients that start a process.
    #[command(after_help = "\
Examples:
  stepgate mcp
  stepgate --data /srv/gate mcp
  stepgate --url http://127.0.0.1:7420 --token-file agent.token mcp
  stepgate mcp config --client claude-code

Every call is a step of the local agent, as over HTTP at `/mcp`. Where `stepgate serve` holds the \
directory, this is its client; where no process does, this process holds it, and `stepgate approve` and \
the other commands reach it through the directory.")]
    Mcp {
        #[command(subcommand)]
        command: Option<McpCommand>,
    },
    /// Talk to the agent: the configured model, whose every call passes the gate.
    #[command(after_help = "\
Examples:
  stepgate chat
  stepgate chat 'what is in my sandbox?'
  stepgate chat --session last        go on with the newest conversation
  stepgate --url http://127.0.0.1:7420 --token-file agent.token chat

Needs `agent.base_url` and `agent.model` in the configuration. Each line is one request, the end of the \
input ends it. Where a person must approve, you are asked in place if the directory is yours; over \
--url another person decides. An empty line asks again what got no answer.")]
    Chat(ChatArgs),
    /// Take a proposal through the gate and print its response.
    #[command(after_help = "\
Examples:
  stepgate step proposal.json
  echo '{\"schema_version\":\"1.0.0\", ...}' | stepgate step -
  stepgate step --lines < proposals.jsonl > responses.jsonl

A proposal has five fields: schema_version, id, reasoning, action, args. The same id again gets the \
recorded response and does nothing. With --lines every line is one proposal and gets one response on \
its own line, in order; the exit code is 0 when every line was answered, whatever the outcomes.")]
    Step(StepArgs),
    /// Make a proposal from a tool and its arguments, and take it through the gate.
    #[command(after_help = "\
Examples:
  stepgate run LIST_FILES path=/sandbox/
  stepgate run WRITE_FILE path=/sandbox/a.txt content='two words'
  stepgate run FINISH --args '{\"response\":\"done\"}'
  stepgate run sonos.set_volume volume=20        a number, for a tool of a server
  stepgate run notes.add text='20' tags:='[1,2]'  KEY:=JSON is JSON as it is written

KEY=VALUE is text. For a tool of a server, a VALUE that is a JSON number, true, false or null is that. \
Where a person must approve, the exit code is 13, and `stepgate approve ID` goes on; `run` again with \
the same --id gets the outcome.")]
    Run(RunArgs),
    /// List everything that needs a person, oldest first, with the command for each.
    ///
    /// Approvals, calls in doubt, stuck and quarantined runs, new and changed tools, tools and tool servers that
    /// are off, policies that could not be loaded, executors that no living node reaches.
    #[command(after_help = "\
Examples:
  stepgate attention
  stepgate attention --watch
  stepgate attention --kind tool_changed
  stepgate attention --json | jq -r .way_out

The exit code is 0, whether something needs a person or not. Of very many approvals the 100 oldest are \
listed; `stepgate approvals` lists the others.")]
    Attention(AttentionArgs),
    /// List approvals, newest first: those that wait for a person, unless asked otherwise.
    #[command(after_help = "\
Examples:
  stepgate approvals
  stepgate approvals --watch              also those that come, until Ctrl-C
  stepgate approvals --principal ci-agent --since 2h --status all
  stepgate approvals --status denied --json")]
    Approvals(ApprovalsArgs),
    /// Approve what waits for a person. The step goes on at once.
    #[command(after_help = "\
Examples:
  stepgate approve 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10
  stepgate approve 0198b2c4-7a51             as long as no other approval begins like this
  stepgate approve last                      the newest that waits, always after it was shown
  stepgate approve ID ID --note 'checked with the owner'
  stepgate --token-file operator.token approve ID      without a terminal

The call is shown in full at the terminal, and you are asked. Several are decided one by one, each for \
itself. The principal that asked cannot decide, and neither can a process of the agent's client.")]
    Approve(DecideArgs),
    /// Deny what waits for a person. The step is never executed.
    #[command(after_help = "\
Examples:
  stepgate deny 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10 --note 'not on a Friday'
  stepgate deny last")]
    Deny(DecideArgs),
    /// Show what waits for a person, live, and approve or deny it by key.
    #[command(after_help = "\
Examples:
  stepgate top
  stepgate --url https://gate.example.com --token-file operator.token top

Up and down select, enter shows everything that is decided on, `a` approves and `d` denies after a question, `?` \
shows all keys, `q` leaves. Needs a terminal and a process that serves; you decide with the same rights as with \
`stepgate approve`.")]
    Top,
    /// List sessions, newest first.
    #[command(after_help = "\
Examples:
  stepgate sessions
  stepgate sessions --principal ci-agent --json
  stepgate runs --session last
  stepgate sessions request last 'Send the report to ann@example.com'")]
    Sessions(SessionsArgs),
    /// List the turns of the agent, newest first, for who has lost the id of one.
    #[command(after_help = "\
Examples:
  stepgate turns
  stepgate turns --session last
  stepgate chat --session last        goes on with the newest conversation")]
    Turns(TurnsArgs),
    /// Make, list and revoke the tokens of those who come over HTTP.
    #[command(
        subcommand,
        after_help = "\
Examples:
  stepgate token create --name ci-agent --role agent
  stepgate token list
  stepgate token revoke 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10"
    )]
    Token(TokenCommand),
    /// List grants, which approve further calls in advance; create or revoke one.
    #[command(after_help = "\
Examples:
  stepgate grants
  stepgate grants create last --uses 20 --for 8h --allow 'amount=1..50'
  stepgate grants revoke last")]
    Grants(GrantsArgs),
    /// Show what a session, a file or a memory has taken in; take a label away.
    #[command(after_help = "\
Examples:
  stepgate labels --session 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10
  stepgate labels --path /sandbox/report.txt
  stepgate labels remove untrusted --session 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10 --note 'the page is ours'")]
    Labels(LabelsArgs),
    /// Show the budgets, and how much of each is used.
    #[command(after_help = "\
Examples:
  stepgate budget
  stepgate budget payments --json

Budgets are in `budgets.toml`, beside the policies. An account has a key (`principal:ann`) and a window of time; the \
accounts of the present window are listed, the fullest first.")]
    Budget {
        /// Only this budget.
        #[arg(value_name = "NAME", value_parser = BudgetName::parse)]
        name: Option<BudgetName>,
    },
    /// Stop calls at once, on every node, until an operator lifts it.
    #[command(after_help = "\
Examples:
  stepgate stop --all --note 'looking into it'
  stepgate stop --principal ci-agent
  stepgate stop --session 0198b2c4-7a51
  stepgate stop --server mail
  stepgate --url https://gate.example.com --token-file operator.token stop --all

Nothing is asked: every further call is refused, and so is one that waits for its server or that a person \
approves meanwhile. A call that was sent before is not taken back; those that may have been are listed. Where \
no gateway runs, the stop is there before the next start goes on with interrupted runs.")]
    Stop(StopArgs),
    /// List the stops that are in force.
    #[command(after_help = "\
Examples:
  stepgate stops
  stepgate stops --all --json")]
    Stops {
        /// Also those that were lifted.
        #[arg(long)]
        all: bool,
    },
    /// Lift a stop. Calls that were refused stay refused.
    #[command(after_help = "\
Examples:
  stepgate lift last
  stepgate lift 0198b2c4-7a51

What is lifted is shown at the terminal, and you are asked.")]
    Lift {
        /// The stop's id, or its beginning, or `last` for the newest that is in force.
        #[arg(value_name = "ID")]
        id: Named<ArtifactId>,
    },
    /// List runs, newest first; show, export or resolve one.
    #[command(after_help = "\
Examples:
  stepgate runs
  stepgate runs --status error --limit 5
  stepgate runs --principal ci-agent --since 2h --text volume
  stepgate runs --follow                 what happens from now on
  stepgate runs show last
  stepgate runs export last > run.json
  stepgate runs resolve ID --failed      for a call in doubt")]
    Runs(RunsArgs),
    /// Recompute every digest, link and transition, and say what does not hold.
    #[command(after_help = "\
Examples:
  stepgate verify
  stepgate verify --save-heads heads.json      keep this file elsewhere
  stepgate verify --heads heads.json           proves that nothing before was rewritten
  stepgate verify --archives /mnt/cold         archives that were moved elsewhere
  stepgate verify --bundle run.json            needs no data directory

Archives are verified with the store, from the directory of `retention.directory`. One whose file is not there is named \
and is no problem, unless --archives says where they are. Without saved heads, verify finds any change except a consistent rewrite of everything after it.")]
    Verify(VerifyArgs),
    /// Archive runs that are over: they leave the store for files that verify alone.
    #[command(
        subcommand,
        after_help = "\
Examples:
  stepgate archive run
  stepgate archive list
  stepgate archive verify archives/*.archive.jsonl"
    )]
    Archive(ArchiveCommand),
    /// Keep runs in the store until it is lifted: legal holds.
    #[command(
        subcommand,
        after_help = "\
Examples:
  stepgate hold add --principal ci-agent --note 'case 7'
  stepgate hold list
  stepgate hold lift last"
    )]
    Hold(HoldCommand),
    /// Arguments that are kept apart until you erase them.
    #[command(
        subcommand,
        after_help = "\
Examples:
  stepgate erasable show last
  stepgate erasable find --containing alice@example.org
  stepgate erasable erase --containing alice@example.org --reason 'request 4711'

Which arguments are erasable is said in the configuration, by `erasable` of a tool or a tool server,
and in policies, by `@erasable`."
    )]
    Erasable(ErasableCommand),
    /// Copy store, sandbox, policies and configuration into a new directory, while the gateway serves.
    #[command(after_help = "\
Examples:
  stepgate backup /backups/monday
  stepgate --store postgres://gate@db/stepgate backup /backups/monday --no-sandbox
  stepgate backup /backups/monday --json | jq .heads_digest

The store is copied as it is at one moment, whatever it is kept in, and the copy is verified. The files \
of the sandbox are copied right after it. Tokens are not copied. The directory must not be there yet, and \
has its name only once it is whole.")]
    Backup(BackupArgs),
    /// Restore a backup into an empty data directory, or into an empty PostgreSQL database.
    #[command(after_help = "\
Examples:
  stepgate --data /srv/gate restore /backups/monday
  stepgate --data /srv/a --store postgres://gate@db/stepgate restore /backups/monday
  stepgate --data /srv/gate restore /backups/monday --store-only

A backup of either engine is restored into either. What came after the backup is forgotten: a step that \
is asked again then runs again. `stepgate verify --heads` with heads that were saved later shows that. \
Runs that were under way are recovered by the next start, as after a crash. Only what verifies is \
restored: a backup of a broken store (`backup --no-verify`) is evidence, and `stepgate --data DIR verify` \
looks at it.")]
    Restore(RestoreArgs),
    /// List the tools that a proposal can name, and what is off; accept a tool that is new or has changed.
    #[command(after_help = "\
Examples:
  stepgate tools
  stepgate tools diff sonos.set_volume
  stepgate tools accept sonos.set_volume
  stepgate tools --json | jq 'select(.standing == \"changed\")'

A tool is known by its definition: description and schemas. One that has changed since it was \
accepted, or that came to a server later, is denied until an operator accepts it. A tool without a mode \
in the configuration is not offered.")]
    Tools {
        #[command(subcommand)]
        command: Option<ToolsCommand>,
    },
    /// Check policies, explain a decision, prove what holds for all calls, or try changed policies on recorded history and
    /// on what happens.
    #[command(
        subcommand,
        after_help = "\
Examples:
  stepgate policy check
  stepgate policy explain sonos.set_volume volume=20
  stepgate policy prove asks --tool bank.transfer --arg 'amount > 100'
  stepgate policy diff ~/.local/share/stepgate/policies ./new-policies
  stepgate policy replay ./new-policies
  stepgate policy shadow"
    )]
    Policy(PolicyCommand),
    /// List the nodes that share the store: their leases, their runs, and the policies in force on each.
    #[command(after_help = "\
Examples:
  stepgate --store postgres://gate@db/stepgate nodes
  stepgate nodes --json")]
    Nodes,
    /// Show how far each audit stream has come, export events, or send them to a stream once more.
    #[command(
        subcommand,
        after_help = "\
Examples:
  stepgate audit list
  stepgate audit export --format ocsf > events.jsonl
  stepgate audit send siem --from 1042 --to 2000

Streams are the [[audit]] of the configuration; `stepgate serve` sends every event out by them."
    )]
    Audit(AuditCommand),
    /// Try the receivers of notifications, or show how far each has come.
    #[command(
        subcommand,
        after_help = "\
Examples:
  stepgate notify test
  stepgate notify test on-call
  stepgate notify list

Receivers are the [[notify]] of the configuration; `stepgate serve` tells them."
    )]
    Notify(NotifyCommand),
    /// Bring every interrupted run to its end, and name those that need a person.
    ///
    /// Every other writing command does this first, and a gateway does it by itself; beside a gateway, this
    /// command asks it for a pass now. Exits 1 where a run needs a person.
    #[command(after_help = "\
Examples:
  stepgate recover
  stepgate --data /srv/gate recover --json")]
    Recover,
    /// Read JSON from standard input and print its RFC 8785 form.
    #[command(after_help = "\
Examples:
  echo '{\"b\":1, \"a\":2}' | stepgate canon")]
    Canon(CanonArgs),
    /// Read JSON from standard input and print the SHA-256 of its RFC 8785 form.
    #[command(after_help = "\
Examples:
  echo '{\"b\":1, \"a\":2}' | stepgate digest
  stepgate runs export last | jq '.entries[0]' | stepgate digest --without entry_digest")]
    Digest(CanonArgs),
    /// Look at data directory, database, sandbox and system, and say what is wrong.
    #[command(after_help = "\
Examples:
  stepgate doctor
  stepgate doctor --json")]
    Doctor,
    /// Measure durable steps a second against the bare cost of the same rows.
    #[command(after_help = "\
Examples:
  stepgate bench
  stepgate bench --clients 1,64 --steps 5000 --json
  stepgate bench --dir /mnt/disk        on the disk that matters
  stepgate bench --via all --actions READ_FILE
  stepgate bench --via process --via http --store postgres://gate@localhost/bench

--via http and --via mcp send requests to a gateway in this process, on a free port of 127.0.0.1. Clients and gateway \
share the processor.")]
    Bench(BenchArgs),
    /// Ask the gateway whether it is ready, and exit with 0 only if it is: for health checks.
    ///
    /// The question is `GET /readyz`, over the socket of the data directory or at --url. A gateway that is about to
    /// stop, or whose store does not answer, is not ready.
    #[command(after_help = "\
Examples:
  stepgate ready
  stepgate --data /srv/gate ready --json
  stepgate --url https://gate.example.com --token-file operator.token ready")]
    Ready,
    /// Print a sample configuration.
    #[command(
        subcommand,
        after_help = "\
Examples:
  stepgate config sample > stepgate.toml"
    )]
    Config(ConfigCommand),
    /// Print the completion script of a shell.
    #[command(after_help = "\
Examples:
  stepgate completions bash > /etc/bash_completion.d/stepgate")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages into a directory, one for each command.
    #[command(after_help = "\
Examples:
  stepgate man /usr/local/share/man/man1
  stepgate man . && man ./stepgate-serve.1")]
    Man {
        /// The directory. It must be there.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every key of the configuration, commented out, with its meaning, its range and its default.
    #[command(after_help = "\
Examples:
  stepgate config sample > stepgate.toml")]
    Sample,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Print what to write into a client's configuration, so that it comes to this gate.
    #[command(after_help = "\
Examples:
  stepgate mcp config --client claude-code > .mcp.json
  stepgate --data /srv/gate mcp config --client claude-desktop
  stepgate --url https://gate.example.com mcp config --client cursor

The configuration goes to standard output, and what to do with it to standard error. It has no token: \
clients that come over HTTP read it from the environment, or ask for it.")]
    Config {
        /// The client.
        #[arg(long)]
        client: McpClient,
        /// Let the client start `stepgate mcp`, instead of coming over HTTP. Claude Desktop always does.
        #[arg(long)]
        stdio: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// One request, and the end; otherwise the lines of standard input.
    #[arg(value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Go on with the conversation in this session: its id, or its beginning; `last` for the one with the newest turn.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<Named<SessionId>>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address and port; port 0 for any that is free. `serve.bind` of the configuration otherwise.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<String>,
    /// Speak TLS on the address, with this certificate: PEM, with those that lead to its issuer.
    /// `serve.tls_certificate` of the configuration otherwise.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The certificate's key: PEM, without a password. `serve.tls_key` of the configuration otherwise.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Without TLS, listen where other machines can hear it, although nothing is encrypted.
    #[arg(long)]
    pub(crate) insecure_bind: bool,
    /// Do not write a line for each request to standard error.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    /// The approvals' ids, as `stepgate approvals` lists them, or their beginnings; `last` for the newest that
    /// waits.
    #[arg(value_name = "ID", required = true, num_args = 1..=100)]
    pub(crate) ids: Vec<Named<ApprovalId>>,
    /// Why; it is recorded, for operators and auditors.
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NotifyCommand {
    /// Send a test message to one receiver or to all, and say for each whether it arrived.
    #[command(after_help = "\
Examples:
  stepgate notify test
  stepgate notify test on-call --json

The exit code is 0 if every message arrived, and 1 otherwise.")]
    Test {
        /// The receiver; all otherwise.
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// List the receivers: how far each has come in the events, how many wait for it, and its last error.
    #[command(after_help = "\
Examples:
  stepgate notify list
  stepgate notify list --json")]
    List,
}

#[derive(Debug, Args)]
pub(crate) struct CanonArgs {
    /// Leave this member of the outermost object out.
    #[arg(long, value_name = "KEY")]
    pub(crate) without: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Show what has changed in a tool's definition since it was accepted.
    #[command(after_help = "\
Examples:
  stepgate tools diff sonos.set_volume
  stepgate tools diff sonos.set_volume --json

Lines that begin with - are as accepted, with + as the server says now. A tool that is new has no other.")]
    Diff {
        /// The tool.
        #[arg(value_name = "TOOL", value_parser = ToolName::parse)]
        name: ToolName,
    },
    /// Accept the present definitions of tools.
    #[command(after_help = "\
Examples:
  stepgate tools accept sonos.set_volume sonos.get_volume
  stepgate tools accept sonos.set_volume --definition 1f0c62a99b3d

`stepgate tools --json` shows the definitions. With --definition, what has changed again since you looked \
is refused.")]
    Accept {
        /// The tools.
        #[arg(value_name = "TOOL", required = true, value_parser = ToolName::parse)]
        names: Vec<ToolName>,
        /// The definition that you have seen, or its first 12 characters: no other is accepted.
        #[arg(long, value_name = "DIGEST")]
        definition: Option<String>,
    },
}

/// A client whose configuration is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpClient {
    /// Claude Code.
    ClaudeCode,
    /// Claude Desktop; it always starts a program.
    ClaudeDesktop,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    Vscode,
    /// Codex: command line, editor and app.
    Codex,
}
