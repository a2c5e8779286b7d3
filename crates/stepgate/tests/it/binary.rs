//! The binary itself, with a data directory of its own.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A data directory that goes away at the end.
pub(crate) struct Place {
    directory: TempDir,
    variables: Vec<(&'static str, OsString)>,
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(Vec::new())
    }

    /// With these variables in the environment of every command.
    pub(crate) fn with(variables: Vec<(&'static str, OsString)>) -> Self {
        Self { directory: TempDir::new().unwrap(), variables }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("stepgate.db")
    }

    /// The command, with this data directory and nothing of the caller's environment.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = command(&self.path(), args);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the command to its end.
    pub(crate) fn stepgate<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: impl AsRef<[u8]>,
    ) -> Output {
        finish(&mut self.command(args), input.as_ref())
    }
}

pub(crate) fn command<S: AsRef<OsStr>>(data: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepgate"));
    command.env_clear().arg("--data").arg(data).args(args);
    command
}

pub(crate) fn finish(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // From a thread of its own: the child may answer before it has read everything.
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Output {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
