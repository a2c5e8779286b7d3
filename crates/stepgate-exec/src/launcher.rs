//! How a tool server's process is started: the gateway runs its own program once more, as a launcher.
//!
//! ```text
//! gateway ── watcher ── command ── whatever the command starts
//!            └────────── one process group ──────────────────┘
//! ```
//!
//! The watcher waits for the gateway and for the command. When either of them ends, the watcher ends
//! everything that the command has started, also processes that have left the group. So no process outlives
//! the gateway, even if the gateway is killed, or if the command is only a starter (`npx`, `uvx`) whose
//! children would stay behind. The watcher itself ends last: as long as any process of a server runs, the
//! gateway is among its ancestors. The kernel kills the command when the watcher dies. The command is
//! confined before it begins: it has no capabilities, and Landlock hides files from it.

mod confine;
mod descendants;
mod privileges;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal};

pub use confine::is_available;
pub(crate) use descendants::end_children_of;
pub use privileges::protect_this_process;

/// The first argument that makes a program act as the launcher.
pub const WORD: &str = "__launch";

/// The second stage: confines itself, then replaces itself with the command.
const INNER: &str = "become";
/// The first stage: the watcher.
const WATCH: &str = "watch";
/// The file that the calling process was started from, even if it was renamed or replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Ends the list of hidden paths.
const SEPARATOR: &str = "--";

/// The program that launches tool servers: one whose `main` calls [`run`].
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
}

impl Launcher {
    /// The running program itself, also after its file was replaced by a newer one.
    pub fn this_program() -> Self {
        Self { program: THIS_PROGRAM.into() }
    }

    /// Starts a command as the child of the calling process.
    pub(crate) fn command(&self, hidden: &[PathBuf], command: &str, args: &[String]) -> Command {
        stage(WATCH, &self.program, hidden, command.as_ref(), args)
    }
}

/// Runs the launcher: `main` calls this if its first argument is [`WORD`]; `args` are the arguments after
/// it. It must be called before any other thread exists: Landlock restricts only the thread that asks for
/// it.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let stage = args.next().unwrap_or_default();
    let ended = match (stage.to_str(), LaunchArgs::read(args)) {
        (Some(WATCH), Some(args)) => watch(&args),
        (Some(INNER), Some(args)) => become_command(&args),
        (_, _) => Err("this word is for Stepgate's own use".to_owned()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&why);
            ExitCode::FAILURE
        }
    }
}

/// The arguments of both stages.
struct LaunchArgs {
    parent: Pid,
    hidden: Vec<PathBuf>,
    command: OsString,
    args: Vec<OsString>,
}

impl LaunchArgs {
    fn read(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let parent = args.next()?.to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let hidden = args.by_ref().take_while(|arg| arg != SEPARATOR).map(PathBuf::from).collect();
        Some(Self { parent, hidden, command: args.next()?, args: args.collect() })
    }
}

/// Waits for the gateway and the command, and ends the process group when either is gone.
fn watch(args: &LaunchArgs) -> Result<(), String> {
    // The environment has the secrets of one server, and other servers run as the same user.
    protect_this_process().map_err(told("cannot hide the environment from other processes"))?;
    let gateway = rustix::process::pidfd_open(args.parent, PidfdFlags::empty())
        .map_err(told("cannot watch the gateway"))?;
    // The gateway may have died before this line, and another process may have its id now.
    if rustix::process::getppid() != Some(args.parent) {
        return Err("the gateway is gone".to_owned());
    }
    // The caller may not have given this process a group of its own. At the end the whole group is killed,
    // so make one.
    if rustix::process::getpgrp() != rustix::process::getpid() {
        rustix::process::setpgid(None, None).map_err(told("cannot lead a process group"))?;
    }
    // Orphaned processes of the command become children of this process, so that the gateway can tell by
    // their ancestors which processes belong to tool servers.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(told("cannot keep what the command leaves behind"))?;
    let mut inner = stage(INNER, THIS_PROGRAM.as_ref(), &args.hidden, &args.command, &args.args);
    let mut child = inner.spawn().map_err(told("cannot start the second stage"))?;
    let pid = Pid::from_child(&child);
    let command = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .map_err(told("cannot watch the command"))?;
    let mut ends = [PollFd::new(&gateway, PollFlags::IN), PollFd::new(&command, PollFlags::IN)];
    while let Err(error) = poll(&mut ends, None) {
        if error != rustix::io::Errno::INTR {
            break;
        }
    }
    if let Ok(Some(status)) = child.try_wait() {
        say(&format!("{} ended: {}", args.command.display(), in_words(status)));
    }
    descendants::end_all();
    Ok(())
}

/// Writes a line to standard error and ignores a failure. If the gateway has ended or has closed this
/// server's pipe, `eprintln!` would panic, and the rest of the work must still be done.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "stepgate: {line}");
}

/// Formats an error with the operation that failed.
fn told<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// The command line of a stage, whose parent is the calling process.
fn stage(
    stage: &str,
    program: &Path,
    hidden: &[PathBuf],
    command: &OsStr,
    args: &[impl AsRef<OsStr>],
) -> Command {
    let mut line = Command::new(program);
    line.arg(WORD).arg(stage).arg(std::process::id().to_string());
    line.args(hidden).arg(SEPARATOR).arg(command).args(args);
    line
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Replaces this process by the command. Returns only on failure, with the reason.
fn become_command(args: &LaunchArgs) -> Result<(), String> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(told("cannot tie the command to the gateway"))?;
    if rustix::process::getppid() != Some(args.parent) {
        return Err("the gateway is gone".to_owned());
    }
    let wall = confine::keep_away_from(&args.hidden)
        .map_err(told("cannot keep the tool server away from the data directory"))?;
    if wall == confine::Wall::Missing {
        say("this kernel has no Landlock: the tool server can read what this user can read, the \
             data directory included");
    }
    // After Landlock: its rules must be made with the rights that this process still has.
    privileges::give_up().map_err(told("cannot give up the privileges of the gateway"))?;
    let error = Command::new(&args.command).args(&args.args).exec();
    Err(format!("cannot start `{}`: {error}", args.command.display()))
}

/// Whether the arguments of a program call the launcher: its first argument is [`WORD`].
pub fn is_called(first_argument: Option<&OsStr>) -> bool {
    first_argument.is_some_and(|word| word == WORD)
}
