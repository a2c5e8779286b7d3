//! A person at a terminal of their own, which no process of the test has started.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::binary::{Output, finish};
use crate::scene::python;

/// Runs a command where a person would, and types these answers. Everything that the terminal shows is in
/// `stdout`.
pub(crate) fn at_a_terminal(command: &Command, answers: &str) -> Output {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/terminal.py");
    let mut person = Command::new(python());
    person.arg(fixture).arg(answers).arg(found(command.get_program())).args(command.get_args());
    person.env_clear().env("PATH", "/usr/bin:/bin");
    person.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = command.get_current_dir() {
        person.current_dir(directory);
    }
    let Output { stdout, stderr, .. } = finish(&mut person, b"");
    let told: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
    Output {
        code: i32::try_from(told["code"].as_i64().unwrap()).unwrap(),
        stdout: told["output"].as_str().unwrap().to_owned(),
        stderr,
    }
}

/// A program by its path: the terminal looks nowhere.
fn found(program: &OsStr) -> std::path::PathBuf {
    let folders = ["", "/usr/bin", "/bin"];
    let paths = folders.iter().map(|folder| Path::new(folder).join(program));
    paths.into_iter().find(|path| path.is_file()).unwrap()
}
