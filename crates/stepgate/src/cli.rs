//! The command line, with examples for every command.

mod grants;
mod lists;
mod named;
mod times;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use stepgate_core::ids::{ApprovalId, ArtifactId, PrincipalId, RunId, SessionId};
use stepgate_core::tool::ToolName;
use stepgate_gateway::tokens::Role;

use crate::log::LogFormat;
pub(crate) use grants::{Allowance, CreateGrantArgs, GrantsArgs, GrantsCommand};
pub(crate) use lists::{ApprovalsArgs, AttentionArgs, ListArgs, SessionsArgs, TurnsArgs};
pub(crate) use named::Named;
pub(crate) use times::{Span, When};

const EXAMPLES: &str = "\
Examples:
  stepgate serve
  stepgate run WRITE_FILE path=/sandbox/hello.txt content=hi
  stepgate step proposal.json
  stepgate approvals
  stepgate approve last
  stepgate top
  stepgate runs show last
  stepgate verify

Where a command takes an id, the beginning of the id does, from 8 characters on, as long as no other begins like it; \
so does `last`, for the newest.

Exit codes: 0 success, 10 VALIDATION_ERROR, 11 DENIED, 12 EXECUTION_ERROR, 13 waiting for approval,
14 in progress, 1 anything else.";

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
  stepgate runs --session last")]
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
  stepgate verify --bundle run.json            needs no data directory

Without saved heads, verify finds any change except a consistent rewrite of everything after it.")]
    Verify(VerifyArgs),
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
    /// Check policies, explain a decision, or try changed policies on recorded history.
    #[command(
        subcommand,
        after_help = "\
Examples:
  stepgate policy check
  stepgate policy explain sonos.set_volume volume=20
  stepgate policy replay ./new-policies"
    )]
    Policy(PolicyCommand),
    /// List the nodes that share the store: their leases, their runs, and the policies in force on each.
    #[command(after_help = "\
Examples:
  stepgate --store postgres://gate@db/stepgate nodes
  stepgate nodes --json")]
    Nodes,
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
  stepgate bench --dir /mnt/disk        on the disk that matters")]
    Bench(BenchArgs),
    /// Print the completion script of a shell.
    #[command(after_help = "\
Examples:
  stepgate completions bash > /etc/bash_completion.d/stepgate")]
    Completions {
        /// The shell.
        shell: Shell,
    },
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
pub(crate) struct StepArgs {
    /// The proposal's file; `-` for standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The session that the step joins; a whole id that is not known opens one. The beginning of an id, or `last`, is
    /// one that is there. Your default session otherwise.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<Named<SessionId>>,
    /// One proposal a line in, one response a line out.
    #[arg(long)]
    pub(crate) lines: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A core action, such as WRITE_FILE, or a tool of a server, such as sonos.set_volume.
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// Arguments: KEY=VALUE, or KEY:=JSON.
    #[arg(value_name = "KEY=VALUE", conflicts_with = "args")]
    pub(crate) pairs: Vec<String>,
    /// Arguments as a JSON object.
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    /// The proposal's id, to ask again without acting again. A fresh one otherwise.
    #[arg(long, value_name = "UUID")]
    pub(crate) id: Option<String>,
    /// Why; for the record alone.
    #[arg(long, value_name = "TEXT", default_value = "asked on the command line")]
    pub(crate) reasoning: String,
    /// The session that the step joins; a whole id that is not known opens one. The beginning of an id, or `last`, is
    /// one that is there. Your default session otherwise.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<Named<SessionId>>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RunsCommand>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Show a run: what was asked, decided, done and recorded.
    #[command(after_help = "\
Examples:
  stepgate runs show last
  stepgate runs show 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10 --json")]
    Show(OneRun),
    /// Write a run as one JSON object that anyone can verify.
    #[command(after_help = "\
Examples:
  stepgate runs export last > run.json
  stepgate verify --bundle run.json")]
    Export(OneRun),
    /// Say what became of a call in doubt, and bring its run to its end.
    #[command(after_help = "\
Examples:
  stepgate runs resolve ID --succeeded --result '{\"volume\":20}'
  stepgate runs resolve ID --failed
  stepgate runs resolve ID --redispatch      it is sent again, with the same call and key

A call is in doubt when Stepgate stopped between sending it and recording its effect, and nothing \
but a person can tell what became of it: its tool has `in_doubt = \"ask\"`, or cannot be asked.")]
    Resolve(ResolveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The run's id, or its beginning, or `last` for the newest whose call is in doubt or stuck.
    #[arg(value_name = "RUN")]
    pub(crate) run: Named<RunId>,
    #[command(flatten)]
    pub(crate) settled: Settled,
    /// What the tool gave, where it succeeded and that is known.
    #[arg(long, value_name = "JSON", requires = "succeeded")]
    pub(crate) result: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Settled {
    /// It was done.
    #[arg(long)]
    pub(crate) succeeded: bool,
    /// It was not done, and shall not be.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Send it again, with the same call and key.
    #[arg(long)]
    pub(crate) redispatch: bool,
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

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it, once.
    #[command(after_help = "\
Examples:
  stepgate token create --name ci-agent --role agent > ci.token
  stepgate token create --name night-shift --role operator --expires-in 30d")]
    Create {
        /// Who comes with it: the principal that policies and records name.
        #[arg(long, value_name = "NAME", value_parser = PrincipalId::parse)]
        name: PrincipalId,
        /// What it may be used for: `agent` proposes, `operator` decides, `auditor` reads.
        #[arg(long, value_parser = role())]
        role: Role,
        /// How long it is good for, such as `12h` or `30d`; until it is revoked otherwise.
        #[arg(long, value_name = "TIME", value_parser = Span::token_life)]
        expires_in: Option<Span>,
    },
    /// List the tokens that were not revoked, and when they expire.
    #[command(after_help = "\
Examples:
  stepgate token list --json")]
    List,
    /// Revoke a token. It is no longer good from then on, and neither are its event streams.
    #[command(after_help = "\
Examples:
  stepgate token revoke 0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10
  stepgate token revoke 0198b2c4-7a51")]
    Revoke {
        /// The token's id, as `token list` shows it, or its beginning, or `last` for the newest.
        #[arg(value_name = "ID")]
        id: Named<ArtifactId>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct OneRun {
    /// The run's id, or its beginning, or `last` for the newest of the agent that acts on this directory (`agent`);
    /// over --url, for the newest that the token may see.
    #[arg(value_name = "RUN")]
    pub(crate) run: Named<RunId>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Verify an exported run instead of the store; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["heads", "save_heads"])]
    pub(crate) bundle: Option<PathBuf>,
    /// Prove that these saved heads still stand.
    #[arg(long, value_name = "FILE")]
    pub(crate) heads: Option<PathBuf>,
    /// Save the heads for a later `--heads`. Only written when everything holds.
    #[arg(long, value_name = "FILE")]
    pub(crate) save_heads: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The directory that the backup becomes.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Leave the files of the sandbox to another backup, such as a snapshot of their file system.
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Do not verify the copy. Of a store that does not verify any more this keeps the evidence, as it is;
    /// `restore` refuses such a backup.
    #[arg(long)]
    pub(crate) no_verify: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The backup's directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Restore the store and nothing else, beside the sandbox, policies and configuration that are there.
    #[arg(long)]
    pub(crate) store_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CanonArgs {
    /// Leave this member of the outermost object out.
    #[arg(long, value_name = "KEY")]
    pub(crate) without: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Numbers of concurrent clients, one measurement each.
    #[arg(long, value_delimiter = ',', default_value = "1,64", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) clients: Vec<u32>,
    /// Steps of one measurement at 64 clients; fewer clients take proportionally fewer, at least 500.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(500..=10_000_000))]
    pub(crate) steps: u32,
    /// Actions to measure, each alone; MIX for thinking, listing, reading and writing in turns.
    #[arg(long, value_delimiter = ',', default_value = "READ_FILE,WRITE_FILE,MIX,THINK,FINISH")]
    pub(crate) actions: Vec<String>,
    /// Sessions that the steps are spread over.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) sessions: u32,
    /// Where the temporary data directory is made; the system's temporary directory otherwise.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
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

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a directory of policies: syntax, schema, cases, policies that can never apply.
    #[command(after_help = "\
Examples:
  stepgate policy check
  stepgate policy check ./new-policies --json

The exit code is 1 when the directory could not be loaded.")]
    Check {
        /// The directory; the one in force otherwise.
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Say what would be decided on a proposal, by which policy. Nothing is executed or recorded.
    #[command(after_help = "\
Examples:
  stepgate policy explain DELETE_FILE path=/sandbox/a.txt
  stepgate policy explain sonos.set_volume volume=90 --as ci-agent")]
    Explain {
        /// A core action or a tool of a server, as `run` takes it.
        #[arg(value_name = "TOOL")]
        tool: String,
        /// Arguments, as `run` takes them.
        #[arg(value_name = "KEY=VALUE", conflicts_with = "args")]
        pairs: Vec<String>,
        /// Arguments as a JSON object.
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
        /// As whom it is asked.
        #[arg(long = "as", value_name = "PRINCIPAL", default_value = "agent", value_parser = PrincipalId::parse)]
        principal: PrincipalId,
    },
    /// Ask changed policies what they would have decided on recorded history, and show every change.
    #[command(after_help = "\
Examples:
  stepgate policy replay ./new-policies
  stepgate policy replay ./new-policies --limit 100000 --json")]
    Replay {
        /// The changed policies.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The newest runs, at most so many.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
}

/// Parses a role by its name.
fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|name| name.parse::<Role>())
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
