//! The project's own commands. `cargo xtask test` is the one that passes or fails a change.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test    everything that must pass: formatting, lints, dependencies, tests
  fast    formatting, lints and unit tests only
  lint    formatting and lints only

Examples:
  cargo xtask test
  CARGO_TARGET_DIR=/var/tmp/stepgate cargo xtask test";

const CARGO_DENY_VERSION: &str = "0.20.2";

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?;
    env::set_current_dir(root)?;
    let command = env::args().nth(1);
    match command.as_deref() {
        Some("test") => {
            lint()?;
            dependencies()?;
            run("tests", cargo(["test", "--workspace", "--quiet"]))
        }
        Some("fast") => {
            lint()?;
            run("unit tests", cargo(["test", "--workspace", "--lib", "--bins", "--quiet"]))
        }
        Some("lint") => lint(),
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

/// Licences, sources, and which crate may depend on what. The checker is built once, beside the
/// build's own output.
fn dependencies() -> anyhow::Result<()> {
    let tools = target_directory()?.join("tools");
    let checker = tools.join("bin/cargo-deny");
    let installed = Command::new(&checker).arg("--version").output();
    let is_current = installed
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(CARGO_DENY_VERSION));
    if !is_current {
        let mut install = cargo(["install", "cargo-deny", "--locked", "--quiet", "--version"]);
        install.arg(CARGO_DENY_VERSION).arg("--root").arg(&tools);
        run("dependency checker (built once)", install)?;
    }
    let mut check = Command::new(&checker);
    check.args(["--log-level", "error", "check", "bans", "licenses", "sources"]);
    run("dependencies", check)
}

fn target_directory() -> anyhow::Result<PathBuf> {
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

fn run(name: &str, mut command: Command) -> anyhow::Result<()> {
    println!("== {name}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{name} failed: {command:?}");
    println!("== {name}: passed in {:.1} s", start.elapsed().as_secs_f32());
    Ok(())
}
