//! The same measurement on PostgreSQL, compared with `pgbench` on the same rows.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use indicatif::ProgressBar;
use stepgate_store::postgres::Scratch;
use tokio::process::Command;

use super::append_only::{self, Step};
use super::measure::Round;
use super::{Run, Way};
use crate::data_dir::DataDir;

/// Where Debian installs the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Most threads for pgbench's clients, because they share the cores with the server.
const THREADS_MAX: usize = 2;

/// One round: real steps in one schema, then their rows by pgbench in another, then their bytes in a file.
pub(super) async fn round(
    url: &str,
    directory: &Path,
    way: Way,
    run: Run,
    progress: &ProgressBar,
) -> anyhow::Result<Round> {
    let steps = Scratch::make(url, "stepgate_bench_steps").await?;
    let mut data = DataDir::at(directory);
    data.global.store = Some(steps.url().to_owned());
    let real = way.steps(data, run, progress).await?;
    let bare = Scratch::make(url, "stepgate_bench_bare").await?;
    let script = bare.script_of(&steps, run.clients).await?;
    let file = directory.join("step.sql");
    std::fs::write(&file, script.sql)?;
    let bare_per_second = pgbench(bare.url(), &file, run).await?;
    progress.inc(run.steps_of_round()?);
    steps.remove().await?;
    bare.remove().await?;
    let commits = vec![Step::of(script.commits); usize::try_from(real.latencies.len())?];
    let appended = append_only::append(directory, commits, run.clients).await?;
    progress.inc(run.steps_of_round()?);
    Ok(Round { real, verified_per_second: None, bare_per_second, appended })
}

async fn pgbench(url: &str, script: &Path, run: Run) -> anyhow::Result<f64> {
    let clients = run.clients;
    let program = program();
    let mut pgbench = Command::new(&program);
    pgbench.args(["--no-vacuum", "--protocol=prepared", "--define=step=0"]);
    pgbench.arg(format!("--client={clients}")).arg(format!("--jobs={}", clients.min(THREADS_MAX)));
    pgbench.arg(format!("--transactions={}", run.steps_of_client()));
    pgbench.arg(format!("--file={}", script.display())).arg(url);
    let output = pgbench.output().await.with_context(|| {
        format!("cannot run `{}`: install PostgreSQL's programs", program.display())
    })?;
    let (said, trouble) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && !trouble.contains("ERROR"), "{}", first_line(&trouble));
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
    rate.and_then(|rate| rate.parse().ok()).with_context(|| format!("pgbench says: {said}"))
}

/// The first error: all clients fail in the same way.
fn first_line(trouble: &str) -> &str {
    trouble.lines().next().unwrap_or("pgbench failed and does not say why")
}

/// Debian's newest pgbench, or the one on the path.
fn program() -> PathBuf {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin/pgbench"));
    let newest = programs.filter(|program| program.is_file()).max();
    newest.unwrap_or_else(|| "pgbench".into())
}
