//! The README's commands, run as they stand.

use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::read;
use crate::binary::{Output, finish};

const BUILD_AND_RUN: &str = "cargo run --release --";

/// The fenced blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// A directory of a newcomer, with the binary on the path in place of the build.
struct Desk {
    directory: TempDir,
}

impl Desk {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        symlink(env!("CARGO_BIN_EXE_stepgate"), directory.path().join("stepgate")).unwrap();
        Self { directory }
    }

    fn sh(&self, script: &str) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.directory.path().display());
        let mut command = Command::new("sh");
        command.env_clear().env("PATH", path).current_dir(self.directory.path());
        let output = finish(command.args(["-e", "-u", "-c", script]), b"");
        assert_eq!(output.code, 0, "{script}\n{}{}", output.stdout, output.stderr);
        output
    }
}

/// The commands of a block, without the name that a newcomer gives the binary.
fn without_alias(block: &str) -> String {
    block
        .lines()
        .filter(|line| !line.starts_with("alias "))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn the_commands_of_the_readme_do_what_it_says() {
    let page = read("README.md");
    let shell = blocks(&page, "sh");
    let desk = Desk::new();

    let first = shell[0].lines().find_map(|line| line.strip_prefix(BUILD_AND_RUN)).unwrap();
    let printed = desk.sh(&format!("stepgate{first}")).stdout;
    let response: Value = serde_json::from_str(&printed).unwrap();
    let promised = blocks(&page, "json")[0].replace('…', response["proposal_id"].as_str().unwrap());
    assert_eq!(printed, promised);

    let told = desk.sh(&without_alias(&shell[1])).stdout;
    for word in ["WRITE_FILE", "COMPLETED", "verified: 1 runs"] {
        assert!(told.contains(word), "{word} is not in\n{told}");
    }
    assert!(told.ends_with("verified\n"), "{told}");

    let read = desk.sh(&shell[2]).stdout;
    let response: Value = serde_json::from_str(&read).unwrap();
    assert_eq!(response["result"]["content"], "hello, gate");
    let again = desk.sh(&shell[2]).stdout;
    assert_eq!(again, read, "send it again, and the recorded response comes back");
    assert_eq!(shell.len(), 3, "a block that nobody runs");
}

#[test]
fn the_first_two_commands_are_to_run_it_and_to_pass_all_tests() {
    let page = read("README.md");
    let block = &blocks(&page, "sh")[0];
    let commands: Vec<_> =
        block.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    assert_eq!(commands.len(), 2, "{block}");
    assert!(commands[0].starts_with(BUILD_AND_RUN), "{block}");
    assert_eq!(commands[1], "cargo xtask test");
    assert!(read(".ci/run").trim_end().ends_with("exec cargo xtask test"));
    assert!(page.lines().count() <= 100, "one page");
}

#[test]
fn the_heads_of_the_documentation_are_saved_and_stand() {
    let desk = Desk::new();
    desk.sh("stepgate run THINK");
    let commands = &blocks(&read("docs/verifying.md"), "sh")[0];
    let told = desk.sh(commands).stdout;
    assert!(told.contains("all 2 saved heads stand"), "{told}");
}
