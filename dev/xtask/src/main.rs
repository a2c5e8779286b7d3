//! The project's own commands. `cargo xtask test` is the one that passes or fails a change.

mod ecosystem;
mod mcp_overhead;
mod mutants;
mod postgres;
mod scaling;

use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test    everything that must pass: formatting, lints, dependencies, tests
  fast    formatting, lints and unit tests only
  lint    formatting and lints only
  simulate [--seeds N] [--from M] | --seed N [--trace]
          many simulated lifetimes of several nodes, or one of them event by event
  policy-differential [--cases N] [--seed S]
          random tools, policies and calls before the gate and before a plain evaluator; a million of them
  mutants FILE... [--tests PACKAGE[:TEST_PREFIX,...]]...
          changes the code in one place at a time, and names the changes that no test notices
  setup   what `test` installs before it tests: the dependency checker, tool servers, clients, PostgreSQL
  mcp-overhead [--debug]
          what the gate costs a call, against the same tool called directly
  scaling [--binary PATH] [--quick]
          what a step costs the store, what one PostgreSQL carries, how sessions spread over several

Examples:
  cargo xtask test
  CARGO_TARGET_DIR=/var/tmp/stepgate cargo xtask test";

const CARGO_DENY_VERSION: &str = "0.20.2";

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("no workspace")?;
    env::set_current_dir(root)?;
    let command = env::args().nth(1);
    match command.as_deref() {
        Some("test") => {
            lint()?;
            dependencies()?;
            ecosystem::install(&tools()?.join("ecosystem"))?;
            postgres::install()?;
            tests(cargo([
                "test",
                "--workspace",
                "--no-fail-fast",
                "--quiet",
                "--lib",
                "--bins",
                "--tests",
            ]))
        }
        Some("fast") => {
            lint()?;
            tests(cargo(["test", "--workspace", "--quiet", "--lib", "--bins"]))
        }
        Some("lint") => lint(),
        Some("simulate") => {
            let mut simulate = cargo(["run", "--quiet", "--package", "stepgate-sim", "--"]);
            let status = simulate.args(env::args().skip(2)).status()?;
            ensure!(status.success(), "the simulation did not pass");
            Ok(())
        }
        Some("mutants") => mutants::run(env::args().skip(2), &target()?.join("mutants")),
        Some("policy-differential") => policy_differential(),
        Some("setup") => {
            install_checker()?;
            ecosystem::install(&tools()?.join("ecosystem"))?;
            postgres::install()
        }
        Some("mcp-overhead") => {
            let is_debug = env::args().nth(2).as_deref() == Some("--debug");
            mcp_overhead::measure(&target()?, is_debug)
        }
        Some("scaling") => scaling::measure(&target()?),
        Some("--help" | "-h" | "help") => {
            println!("{USAGE}");
            Ok(())
        }
        Some(other) => bail!("there is no command `{other}`\n{USAGE}"),
        None => bail!("which command?\n{USAGE}"),
    }
}

fn lint() -> anyhow::Result<()> {
    run("format", cargo(["fmt", "--all", "--check"]))?;
    run(
        "lints",
        cargo(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    )
}

/// The test of that name with many cases; it prints what a violation needs to be seen again.
fn policy_differential() -> anyhow::Result<()> {
    let (mut cases, mut seed) = (1_000_000_u64, 1_u64);
    let mut args = env::args().skip(2);
    while let Some(name) = args.next() {
        let number = args.next().and_then(|text| text.parse().ok());
        let number = number.with_context(|| format!("`{name}` needs a number"))?;
        match name.as_str() {
            "--cases" => cases = number,
            "--seed" => seed = number,
            other => bail!("there is no option `{other}`\n{USAGE}"),
        }
    }
    let mut test = cargo(["test", "--quiet", "--release", "--package", "stepgate-policy"]);
    test.args(["--test", "it", "differential", "--", "--nocapture"]);
    test.env("STEPGATE_DIFFERENTIAL_CASES", cases.to_string());
    test.env("STEPGATE_DIFFERENTIAL_SEED", seed.to_string());
    run("policies against a plain evaluator", test)
}

/// Licences, sources, and which crate may depend on what. The checker is built once, beside the
/// build's own output.
fn dependencies() -> anyhow::Result<()> {
    let mut check = Command::new(install_checker()?);
    check.args(["--log-level", "error", "check", "bans", "licenses", "sources"]);
    run("dependencies", check)
}

fn install_checker() -> anyhow::Result<PathBuf> {
    let tools = tools()?;
    let checker = tools.join("bin/cargo-deny");
    let installed = Command::new(&checker).arg("--version").output();
    let is_current = installed
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(CARGO_DENY_VERSION));
    if !is_current {
        let mut install = cargo(["install", "cargo-deny", "--locked", "--quiet", "--version"]);
        install.arg(CARGO_DENY_VERSION).arg("--root").arg(&tools);
        run("dependency checker (built once)", install)?;
    }
    Ok(checker)
}

/// Where the tools of the tests are kept: beside the build's own output, which outlives a clone.
fn tools() -> anyhow::Result<PathBuf> {
    Ok(target()?.join("tools"))
}

fn target() -> anyhow::Result<PathBuf> {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => Ok(directory.into()),
        None => Ok(env::current_dir()?.join("target")),
    }
}

fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Runs the tests, and closes with how many there were in all.
fn tests(mut command: Command) -> anyhow::Result<()> {
    println!("== tests");
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("no output")?;
    let (mut passed, mut failed) = (0, 0);
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        passed += count(&line, " passed");
        failed += count(&line, " failed");
    }
    let status = child.wait()?;
    println!("== tests: {:.1} s", start.elapsed().as_secs_f32());
    println!("{passed} passed, {failed} failed");
    ensure!(status.success() && failed == 0 && passed > 0, "tests failed: {command:?}");
    Ok(())
}

/// The number before a word in the closing line of a test binary.
fn count(line: &str, word: &str) -> u32 {
    let Some(results) = line.strip_prefix("test result: ") else { return 0 };
    let before = results.split(word).next().unwrap_or_default();
    before.rsplit([' ', ';']).next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn run(name: &str, mut command: Command) -> anyhow::Result<()> {
    println!("== {name}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{name} failed: {command:?}");
    println!("== {name}: passed in {:.1} s", start.elapsed().as_secs_f32());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn the_numbers_of_a_closing_line_are_read() {
        let line = "test result: ok. 143 passed; 2 failed; 0 ignored; finished in 72.38s";
        assert_eq!((count(line, " passed"), count(line, " failed")), (143, 2));
        assert_eq!(count("12 passed", " passed"), 0);
    }
}
