//! Instructions that the parts of a step take, counted by callgrind: they do not depend on what else the machine does. The
//! test command compares those of a debug build with a recorded budget.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::{apt, cargo, run};

/// What is counted, and how often it is done more in the second of two counts: their difference has no start-up in it.
const PARTS: [(&str, &str, u64); 4] = [
    ("decision", "PARSE to AUTHORIZE", 40),
    ("step", "a whole step over the store in memory", 40),
    ("canonical", "the canonical form of a proposal", 400),
    ("digest", "the digest of a proposal", 400),
];
/// Done before the counting begins: the first ones fill caches.
const FIRST: u64 = 20;
/// The recorded counts of a debug build: a part and a number on each line.
const BUDGETS: &str = "dev/bench/budgets.txt";
/// How far a count may be from its budget, in percent: hash maps and copies differ a little from run to run and from
/// processor to processor.
const APART_MAX_PERCENT: u64 = 15;

/// Installs valgrind, where it is missing.
pub(crate) fn install() -> anyhow::Result<()> {
    if Command::new("valgrind").arg("--version").output().is_ok() {
        return Ok(());
    }
    apt::install("valgrind, which counts instructions (once)", &["valgrind"])
        .context("install valgrind by hand, or run this command as root on Debian")
}

/// Prints the counts of a release build.
pub(crate) fn measure(target: &Path) -> anyhow::Result<()> {
    install()?;
    run("build", cargo(["build", "--release", "--quiet", "--package", "stepgate-bench"]))?;
    println!("| part | instructions |\n|---|---|");
    for (part, title, more) in PARTS {
        println!("| {title} | {} |", count(&target.join("release"), part, more)?);
    }
    Ok(())
}

/// Compares the counts of a debug build with the budgets, or records them.
pub(crate) fn check(target: &Path, is_recording: bool) -> anyhow::Result<()> {
    install()?;
    run("build", cargo(["build", "--quiet", "--package", "stepgate-bench"]))?;
    let mut counts = BTreeMap::new();
    for (part, _, more) in PARTS {
        counts.insert(part, count(&target.join("debug"), part, more)?);
    }
    if is_recording {
        let lines = counts.iter().map(|(part, count)| format!("{part} {count}\n"));
        return fs::write(BUDGETS, lines.collect::<String>()).context(BUDGETS);
    }
    let budgets = fs::read_to_string(BUDGETS).context(BUDGETS)?;
    let budget = |part: &str| {
        let line = budgets.lines().find_map(|line| line.strip_prefix(part)?.strip_prefix(' '));
        let number = line.and_then(|number| number.parse::<u64>().ok());
        number.with_context(|| format!("`{part}` has no budget in {BUDGETS}"))
    };
    for (part, count) in counts {
        let budget = budget(part)?;
        let most = budget * APART_MAX_PERCENT / 100;
        println!("{part}: {count} instructions, {budget} recorded");
        ensure!(
            count.abs_diff(budget) <= most,
            "`{part}` takes {count} instructions and {budget} are recorded: find out why, or record what is right \
             with `cargo xtask bench --record`"
        );
    }
    Ok(())
}

/// The instructions of doing a part once.
fn count(programs: &Path, part: &str, more: u64) -> anyhow::Result<u64> {
    let before = counted(programs, part, FIRST)?;
    let after = counted(programs, part, FIRST + more)?;
    Ok(after.saturating_sub(before) / more)
}

/// All instructions of a process that does a part so many times.
fn counted(programs: &Path, part: &str, times: u64) -> anyhow::Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(programs.join("stepgate-bench")).args(["count", part, &times.to_string()]);
    let output = valgrind.output().context("valgrind cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{part}` cannot be counted:\n{said}");
    let line = said.lines().find_map(|line| line.split_once("Collected : "));
    let number = line.and_then(|(_, number)| number.trim().parse().ok());
    number.with_context(|| format!("callgrind says no number:\n{said}"))
}
