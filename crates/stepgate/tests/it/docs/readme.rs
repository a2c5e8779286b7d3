//! The README's commands, run as they stand.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use super::read;
use crate::binary::{Output, finish};
use crate::http_client::PATIENCE;
use crate::terminal::at_a_terminal;

const BUILD_AND_RUN: &str = "cargo run --release --";

/// Where `serve` listens unless it is told otherwise. The tests take any port that is free.
const ADDRESS: &str = "127.0.0.1:7420";

/// The fenced blocks of a page in this language.
pub(crate) fn blocks(page: &str, language: &str) -> Vec<String> {
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

    fn shell(&self, script: &str) -> Command {
        let path = format!("{}:/usr/bin:/bin", self.directory.path().display());
        let mut command = Command::new("sh");
        // A home of its own: the data of who runs the tests is not touched.
        command.env_clear().env("PATH", path).env("HOME", self.directory.path());
        command.current_dir(self.directory.path());
        command.args(["-u", "-c", script]);
        command
    }

    fn sh(&self, script: &str) -> Output {
        let output = finish(&mut self.shell(&format!("set -e\n{script}")), b"");
        assert_eq!(output.code, 0, "{script}\n{}{}", output.stdout, output.stderr);
        output
    }

    /// The first terminal: a gateway in the background, and where it listens.
    fn serve(&self, arguments: &str) -> (Served, String) {
        let script = format!("exec stepgate {arguments} --bind 127.0.0.1:0 --quiet");
        let mut shell = self.shell(&script);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = shell.spawn().unwrap();
        let mut served = Served(child);
        let mut greeting = String::new();
        BufReader::new(served.0.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
        let address = greeting.split("http://").nth(1).unwrap().trim().to_owned();
        (served, address)
    }
}

/// A gateway that ends with its test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A `curl` that sends a proposal, or the same proposal where the machine has no `curl`.
fn sent(desk: &Desk, block: &str, address: &str) -> String {
    if finish(&mut desk.shell("command -v curl"), b"").code == 0 {
        return desk.sh(&block.replace(ADDRESS, address)).stdout;
    }
    let proposal = block.split("-d '").nth(1).unwrap().split('\'').next().unwrap();
    let mut step = desk.shell("stepgate step");
    finish(&mut step, proposal.as_bytes()).stdout.trim_end().to_owned()
}

#[test]
fn the_commands_of_the_readme_do_what_it_says() {
    let page = read("README.md");
    let shell = blocks(&page, "sh");
    let [first, curl, policy, ask, look] = shell.as_slice() else {
        panic!("a block that nobody runs: {} of them", shell.len());
    };
    let desk = Desk::new();
    let serve = first.lines().find_map(|line| line.strip_prefix(BUILD_AND_RUN)).unwrap();
    let (_served, address) = desk.serve(serve);

    let promised = &blocks(&page, "json")[0];
    assert_eq!(&format!("{}\n", sent(&desk, curl, &address)), promised);
    assert_eq!(&format!("{}\n", sent(&desk, curl, &address)), promised, "and so does it again");

    assert!(desk.sh(policy).stdout.contains("can be loaded"));
    let begin = Instant::now();
    let explain = "stepgate policy explain DELETE_FILE path=/sandbox/hello.txt";
    while !desk.sh(explain).stdout.contains("a person is asked because a file is deleted") {
        assert!(begin.elapsed() < PATIENCE, "the policy is never in force");
    }

    let (run, decide) = ask.split_once('\n').unwrap();
    let asked = finish(&mut desk.shell(run), b"");
    assert_eq!(asked.code, 13, "{asked:?}");
    let at_the_terminal = desk.shell(&format!("set -e\n{decide}"));
    let decided = at_a_terminal(&at_the_terminal, "y\n").stdout;
    for word in ["a file is deleted", "approve it? [y/N]", "approved"] {
        assert!(decided.contains(word), "{word} is not in\n{decided}");
    }

    let file = desk.directory.path().join(".local/share/stepgate/sandbox/hello.txt");
    while file.exists() {
        assert!(begin.elapsed() < PATIENCE, "it is never deleted");
    }
    let told = desk.sh(look).stdout;
    for word in ["DELETE_FILE", "approved by operator-at-terminal", "verified: 2 runs"] {
        assert!(told.contains(word), "{word} is not in\n{told}");
    }
    assert!(told.ends_with("verified\n"), "{told}");
}

#[test]
fn the_first_two_commands_are_to_run_it_and_to_pass_all_tests() {
    let page = read("README.md");
    let block = &blocks(&page, "sh")[0];
    let commands: Vec<_> =
        block.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    assert_eq!(commands.len(), 2, "{block}");
    assert_eq!(commands[0], format!("{BUILD_AND_RUN} serve"));
    assert_eq!(commands[1], "cargo xtask test");
    assert!(read(".ci/run").trim_end().ends_with("exec cargo xtask test"));
    assert!(page.lines().count() <= 100, "one page");
}

#[test]
fn the_oldest_supported_compiler_is_the_one_that_the_workflow_tests_with() {
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    assert!(read("README.md").contains(&format!("Rust {oldest} or later")));
    let workflow = read(".github/workflows/test.yml");
    assert!(workflow.contains(&format!("RUSTUP_TOOLCHAIN: \"{oldest}.0\"")), "{workflow}");
}

#[test]
fn the_heads_of_the_documentation_are_saved_and_stand() {
    let desk = Desk::new();
    desk.sh("stepgate run THINK");
    let commands = &blocks(&read("docs/verifying.md"), "sh")[0];
    let told = desk.sh(commands).stdout;
    assert!(told.contains("all 2 saved heads stand"), "{told}");
}
