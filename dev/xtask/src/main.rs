//! The project's own commands. `cargo xtask test` is the one that passes or fails a change.

mod agentdojo;
mod apt;
mod bench;
mod book;
mod ecosystem;
mod mcp_overhead;
mod mutants;
mod podman;
mod postgres;
mod scaling;
mod tests;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use stepgate_package::{CARGO_DEB_VERSION, Packing, Profile};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test    everything that must pass: formatting, tests, lints, documentation, dependencies
  fast    formatting, unit tests and lints only
  lint    formatting and lints only
  simulate [--seeds N] [--from M] | --seed N [--trace]
          many simulated lifetimes of several nodes, or one of them event by event
  policy-differential [--cases N] [--seed S]
          random tools, policies and calls before the gate and before a plain evaluator; a million of them
  mutants FILE... [--tests PACKAGE[:TEST_PREFIX,...]]... [--only NUMBER,...]
          changes the code in one place at a time, and names the changes that no test notices
  book    the documentation as a site, in `target/book`, with every link followed
  package [--debug]
          the Debian package, with manual pages and completions, in `target/debian`
  setup   what `test` installs before it tests: the dependency checker, tool servers, clients, PostgreSQL, Prometheus, podman
  bench [--record]
          the instructions of the parts of a step; `test` compares those of a debug build with recorded ones
  decision-cost
          the processor time of a decision, with few policies and with 200, in new sessions and in long ones
  budget-rate [POSTGRES-URL]
          steps a second with a budget that every call is charged to and without one, on SQLite or PostgreSQL
  mcp-overhead [--debug]
          what the gate costs a call, against the same tool called directly
  scaling [--binary PATH] [--quick]
          what a step costs the store, what one PostgreSQL carries, how sessions spread over several
  archive-million [--runs N] [--binary PATH]
          a million runs archived while steps are taken, then a backup, a restore and `verify`; they need 25 GB meanwhile
  receivers [--binary PATH] [--quick]
          the rate and the times of steps without receivers of telemetry and audit events, and with receivers that answer
          at once, slowly, not at all, or with lies
  agentdojo [--suite NAME]... [--row NAME]... [--limit TASKS]
          attacks on agents before the flow rules of `policies/examples`, without a model; writes docs/agentdojo.md

Examples:
  cargo xtask test
  CARGO_TARGET_DIR=/var/tmp/stepgate cargo xtask test";

const CARGO_DENY_VERSION: &str = "0.20.2";
const MDBOOK_VERSION: &str = "0.5.4";

fn main() -> anyhow::Result<()> {
    // Asked of cargo when it runs this: a clone of its own may share the target directory, and this program in it.
    let own = env::var("CARGO_MANIFEST_DIR").context("start this with `cargo xtask`")?;
    env::set_current_dir(Path::new(&own).ancestors().nth(2).context("no workspace")?)?;
    let command = env::args().nth(1);
    match command.as_deref() {
        Some("test") => {
            format()?;
            install_for_tests()?;
            tests::run(cargo(["test", "--workspace", "--all-targets", "--no-fail-fast"]))?;
            bench::check(&target()?, false)?;
            lint()?;
            documentation()?;
            site()?;
            dependencies()
        }
        Some("fast") => {
            format()?;
            tests::run(cargo(["test", "--workspace", "--lib", "--bins"]))?;
            lint()
        }
        Some("lint") => format().and_then(|()| lint()),
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
            install_mdbook()?;
            install_for_tests()
        }
        Some("decision-cost") => {
            let status =
                cargo(["run", "--release", "--quiet", "--package", "stepgate-bench"]).status()?;
            ensure!(status.success(), "the decisions could not be measured");
            Ok(())
        }
        Some("bench") => match env::args().nth(2).as_deref() {
            None => bench::measure(&target()?),
            Some("--record") => bench::check(&target()?, true),
            Some(other) => bail!("there is no option `{other}`\n{USAGE}"),
        },
        Some("book") => site(),
        Some("budget-rate") => {
            let run = ["run", "--release", "--quiet", "--package", "stepgate-bench", "--", "rate"];
            let status = cargo(run).args(env::args().nth(2)).status()?;
            ensure!(status.success(), "the rate could not be measured");
            Ok(())
        }
        Some("package") => package(),
        Some("mcp-overhead") => {
            let is_debug = env::args().nth(2).as_deref() == Some("--debug");
            mcp_overhead::measure(&target()?, is_debug)
        }
        Some("scaling") => scaling::measure(&target()?),
        Some("archive-million") => scaling::archive(&target()?),
        Some("receivers") => scaling::receivers(&target()?),
        Some("agentdojo") => agentdojo::measure(&target()?, env::args().skip(2)),
        Some("--help" | "-h" | "help") => {
            println!("{USAGE}");
            Ok(())
        }
        Some(other) => bail!("there is no command `{other}`\n{USAGE}"),
        None => bail!("which command?\n{USAGE}"),
    }
}

fn format() -> anyhow::Result<()> {
    run("format", cargo(["fmt", "--all", "--check"]))
}

fn lint() -> anyhow::Result<()> {
    run(
        "lints",
        cargo(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    )
}

/// The documentation of the code: its examples hold, and every link in it leads somewhere.
fn documentation() -> anyhow::Result<()> {
    run("doc tests", cargo(["test", "--workspace", "--doc", "--quiet"]))?;
    let mut doc = cargo(["doc", "--workspace", "--no-deps", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run("documentation of the code", doc)
}

/// The documentation for people.
fn site() -> anyhow::Result<()> {
    let first = book::build(&install_mdbook()?, &target()?.join("book"))?;
    println!("{}", first.display());
    Ok(())
}

/// mdBook, with its search and without its web server. Unoptimized: it is built in a fifth of the time, and the site in a second.
fn install_mdbook() -> anyhow::Result<PathBuf> {
    let options = ["--debug", "--no-default-features", "--features", "search"];
    install_tool("mdbook", MDBOOK_VERSION, &options)
}

/// What the tests start besides the programs of this repository.
fn install_for_tests() -> anyhow::Result<()> {
    ecosystem::install(&tools()?.join("ecosystem"))?;
    install_tool("cargo-deb", CARGO_DEB_VERSION, &[])?;
    podman::install(&tools()?.join("podman"))?;
    install_prometheus()?;
    install_rsyslog()?;
    bench::install()?;
    postgres::install()?;
    postgres::install_patroni()
}

/// Prometheus scrapes a gateway in a test, and its `promtool` checks the alerts.
fn install_prometheus() -> anyhow::Result<()> {
    if ["prometheus", "promtool"].iter().all(|name| Path::new("/usr/bin").join(name).exists()) {
        return Ok(());
    }
    apt::install("Prometheus, which the tests start (once)", &["prometheus"])
        .context("install Prometheus by hand, or run this command as root on Debian")
}

/// rsyslog takes an audit stream over TLS in a test.
fn install_rsyslog() -> anyhow::Result<()> {
    let installed =
        Command::new("dpkg-query").args(["--show", "rsyslog", "rsyslog-openssl"]).output();
    if installed.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    apt::install("rsyslog, which the tests start (once)", &["rsyslog", "rsyslog-openssl"])
        .context("install rsyslog by hand, or run this command as root on Debian")
}

/// Builds the program, and packs it.
fn package() -> anyhow::Result<()> {
    let profile = match env::args().nth(2).as_deref() {
        None => Profile::Release,
        Some("--debug") => Profile::Dev,
        Some(other) => bail!("there is no option `{other}`\n{USAGE}"),
    };
    let mut build = cargo(["build", "--locked", "--package", "stepgate"]);
    build.args((profile == Profile::Release).then_some("--release"));
    run("build", build)?;
    install_tool("cargo-deb", CARGO_DEB_VERSION, &[])?;
    let (repository, target) = (env::current_dir()?, target()?);
    let output = target.join("debian");
    let (target, output) = (target.as_path(), output.as_path());
    let packing = Packing { repository: &repository, target, profile, version: None, output };
    println!("{}", stepgate_package::make(&packing)?.display());
    Ok(())
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

/// Licences, sources, and which crate may depend on what.
fn dependencies() -> anyhow::Result<()> {
    let mut check = Command::new(install_checker()?);
    check.args(["--log-level", "error", "check", "bans", "licenses", "sources"]);
    run("dependencies", check)
}

fn install_checker() -> anyhow::Result<PathBuf> {
    install_tool("cargo-deny", CARGO_DENY_VERSION, &[])
}

/// Builds a program of Cargo's registry once, beside the build's own output.
fn install_tool(name: &str, version: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
    let tools = tools()?;
    let program = tools.join("bin").join(name);
    let installed = Command::new(&program).arg("--version").output();
    let is_current =
        installed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version));
    if !is_current {
        let mut install = cargo(["install", name, "--locked", "--quiet", "--version", version]);
        install.args(options).arg("--root").arg(&tools);
        run(&format!("{name} (built once)"), install)?;
    }
    Ok(program)
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

fn run(name: &str, mut command: Command) -> anyhow::Result<()> {
    println!("== {name}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{name} failed: {command:?}");
    println!("== {name}: passed in {:.1} s", start.elapsed().as_secs_f32());
    Ok(())
}
