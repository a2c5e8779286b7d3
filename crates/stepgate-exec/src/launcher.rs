//! How a tool server's process is started: by this program itself, called once more.
//!
//! ```text
//! gateway ── watcher ── command ── whatever the command starts
//!            └────────── one process group ──────────────────┘
//! ```
//!
//! The watcher waits for the gateway and for the command, and whichever ends first, everything that the
//! command has started ends with it, also what has left the group. So nothing outlives the gateway,
//! also where it is killed and can do nothing more, and also where the command is only a starter (`npx`,
//! `uvx`) whose own children would stay behind. The watcher itself ends last: as long as anything of a
//! server runs, the gateway is among its ancestors.
//! The command dies with the watcher, by the kernel's hand, and is confined before it begins: it has no
//! capabilities, and Landlock hides files from it.

mod confine;
mod descendants;
mod privileges;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal};

pub use confine::is_available;
pub(crate) use descendants::end_children_of;
pub use privileges::protect_this_process;

/// The word that makes a program a launcher, as its first argument.
pub const WORD: &str = "__launch";

/// The second stage: confines itself and becomes the command.
const INNER: &str = "become";
/// The first stage: watches.
const WATCH: &str = "watch";
/// The file that the calling process was started from, whatever has become of its name.
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

    /// The command line that starts a command as the child of the calling process.
    pub(crate) fn arguments(
        &self,
        hidden: &[PathBuf],
        command: &str,
        args: &[String],
    ) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec![WORD.into(), WATCH.into()];
        line.push(std::process::id().to_string().into());
        line.extend(hidden.iter().map(|path| path.clone().into_os_string()));
        line.push(SEPARATOR.into());
        line.push(command.into());
        line.extend(args.iter().map(OsString::from));
        line
    }
}

/// What a program does whose first argument is [`WORD`]; `args` are the arguments after it. It must be
/// called before any other thread exists: Landlock binds the thread that asks for it.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let stage = args.next().unwrap_or_default();
    let ended = match (stage.to_str(), LaunchArgs::read(args)) {
        (Some(WATCH), Some(args)) => watch(&args),
        (Some(INNER), Some(args)) => Err(become_command(&args)),
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

/// Waits for the gateway and the command, and ends the group when either is gone.
fn watch(args: &LaunchArgs) -> Result<(), String> {
    // Its environment has the secrets of one server, and other servers run as the same user.
    protect_this_process().map_err(told("cannot hide the environment from other processes"))?;
    let gateway = rustix::process::pidfd_open(args.parent, PidfdFlags::empty())
        .map_err(told("cannot watch the gateway"))?;
    // The gateway may have died before this line, and its id may belong to somebody else now.
    if rustix::process::getppid() != Some(args.parent) {
        return Err("the gateway is gone".to_owned());
    }
    // Whoever called may not have given this process a group of its own, and at the end all of it dies.
    if rustix::process::getpgrp() != rustix::process::getpid() {
        rustix::process::setpgid(None, None).map_err(told("cannot lead a process group"))?;
    }
    // Whatever the command leaves behind becomes a child of this process, so that the gateway can tell
    // by their ancestors which processes are tool servers'.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(told("cannot keep what the command leaves behind"))?;
    let mut child = start(args).map_err(told("cannot start the second stage"))?;
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

/// Says a line to whoever may listen. A gateway that has ended, or has let go of this server, does not,
/// and the rest of the work must be done all the same: `eprintln!` would panic.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "stepgate: {line}");
}

/// An error with what it kept from happening.
fn told<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

fn start(args: &LaunchArgs) -> std::io::Result<Child> {
    let mut inner = Command::new(THIS_PROGRAM);
    inner.arg(WORD).arg(INNER).arg(std::process::id().to_string());
    inner.args(&args.hidden).arg(SEPARATOR).arg(&args.command).args(&args.args);
    inner.spawn()
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Becomes the command. Returns only with the reason why that was not possible.
fn become_command(args: &LaunchArgs) -> String {
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return format!("cannot tie the command to the gateway: {error}");
    }
    if rustix::process::getppid() != Some(args.parent) {
        return "the gateway is gone".to_owned();
    }
    if let Err(why) = confined(&args.hidden) {
        return why;
    }
    // After Landlock: its rules are made with the rights that this process still has.
    if let Err(error) = privileges::give_up() {
        return format!("cannot give up the privileges of the gateway: {error}");
    }
    let error = Command::new(&args.command).args(&args.args).exec();
    format!("cannot start `{}`: {error}", args.command.display())
}

fn confined(hidden: &[PathBuf]) -> Result<(), String> {
    let paths: Vec<&Path> = hidden.iter().map(PathBuf::as_path).collect();
    match confine::keep_away_from(&paths) {
        Ok(confine::Wall::Stands) => Ok(()),
        Ok(confine::Wall::Missing) => {
            say(
                "this kernel has no Landlock: the tool server can read what this user can read, the \
                 data directory included",
            );
            Ok(())
        }
        Err(error) => {
            Err(format!("cannot keep the tool server away from the data directory: {error}"))
        }
    }
}

/// Whether the arguments of a program call the launcher: its first argument is [`WORD`].
pub fn is_called(first_argument: Option<&OsStr>) -> bool {
    first_argument.is_some_and(|word| word == WORD)
}
