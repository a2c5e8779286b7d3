//! Many runs leave a store for archives while steps are taken; then a backup, `verify`, a restore, and `verify` of what was
//! restored. Prints the tables of `docs/retention.md`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;

use super::client::Work;
use super::load::{Crowd, Sessions, Taken};
use super::node::{Node, Policy};

/// The first part of the runs is archived beside many clients, the rest beside few: many make runs faster than they leave.
const MANY: usize = 64;
const FEW: usize = 2;
const PART_BESIDE_MANY: u64 = 10;
/// How long it is measured without archiving.
const ALONE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(200);
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// Most runs of an archive.
const RUNS_PER_FILE: u64 = 256;

/// How the command is called.
struct Options {
    runs: u64,
    binary: Option<PathBuf>,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Self { runs: 1_000_000, binary: None };
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("`{word}` takes a value"))?;
            match word.as_str() {
                "--runs" => options.runs = value.parse().context("`--runs` takes a number")?,
                "--binary" => options.binary = Some(fs::canonicalize(value)?),
                other => bail!("there is no option `{other}`: --runs N, --binary PATH"),
            }
        }
        Ok(options)
    }
}

/// What clients saw while it was looked on.
struct Row {
    what: String,
    per_second: f64,
    p50: f64,
    p99: f64,
    archived_per_second: f64,
}

/// Archives, backs up, verifies and restores. Fails where anything is found.
pub(crate) fn archive(target: &Path) -> anyhow::Result<()> {
    let options = Options::parse(env::args().skip(2))?;
    let stepgate = match options.binary {
        Some(binary) => binary,
        None => super::built(target, false)?,
    };
    let directory = target.join("archive-million");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    let place = Place { stepgate, data: directory.join("data") };
    let archived = place.archive_under_load(options.runs)?;
    place.backup_and_restore(&directory, archived)?;
    // A million runs are tens of gigabytes.
    fs::remove_dir_all(&directory)?;
    Ok(())
}

struct Place {
    stepgate: PathBuf,
    data: PathBuf,
}

impl Place {
    /// Prints the first table, and answers how many runs were archived.
    fn archive_under_load(&self, runs: u64) -> anyhow::Result<u64> {
        let node = Node::start(&self.stepgate, &self.data, None, Policy::Nobody)?;
        let (operator, pid) = (node.operator.clone(), node.pid());
        let nodes = [node];
        let is_done = AtomicBool::new(false);
        let (mut rows, mut steps) = (Vec::new(), 0);
        let mut look = |what: String, clients, until: &dyn Fn() -> bool| {
            let (row, taken) = self.beside(&nodes, what, clients, until)?;
            rows.push(row);
            steps += taken;
            anyhow::Ok(())
        };
        let began = Instant::now();
        look(format!("{MANY} clients, nothing archived"), MANY, &|| began.elapsed() > ALONE)?;
        let archived = thread::scope(|scope| {
            let archiving = scope.spawn(|| {
                let archived = self.archive_until(runs, &operator);
                is_done.store(true, Ordering::Relaxed);
                archived
            });
            let first = runs / PART_BESIDE_MANY / RUNS_PER_FILE;
            let is_done = || is_done.load(Ordering::Relaxed);
            let enough = || is_done() || self.files() >= first;
            look(format!("{MANY} clients, archiving"), MANY, &enough)?;
            look(format!("{FEW} clients, archiving"), FEW, &is_done)?;
            archiving.join().map_err(|_| anyhow!("the archiving stopped"))?
        })?;
        let memory = peak_mib(pid)?;
        let [node] = nodes;
        node.stop()?;
        println!("\n| | steps/s | p50 ms | p99 ms | runs archived a second |");
        println!("|---|---|---|---|---|");
        for Row { what, per_second, p50, p99, archived_per_second } in rows {
            println!(
                "| {what} | {per_second:.0} | {p50:.1} | {p99:.1} | {archived_per_second:.0} |"
            );
        }
        println!(
            "\n{archived} runs left the store for {} archives ({} MiB) while it took {steps} steps; the database \
             has {} MiB, and the gateway had at most {memory} MiB of memory.",
            self.files(),
            mib_beneath(&self.data.join("archives"))?,
            fs::metadata(self.data.join("stepgate.db"))?.len() >> 20,
        );
        Ok(archived)
    }

    /// Lets clients work until it is so. How that was, and how many steps they took.
    fn beside(
        &self,
        nodes: &[Node],
        what: String,
        clients: usize,
        until: &dyn Fn() -> bool,
    ) -> anyhow::Result<(Row, usize)> {
        println!("{what} …");
        let mut crowd = Crowd::gather(nodes, clients, Sessions::OfClients, Work::Read)?;
        let (before, begin) = (self.files(), Instant::now());
        let (taken, ()) = crowd.work(|| {
            let mut told = Instant::now();
            while !until() {
                thread::sleep(LOOK);
                if told.elapsed() > TOLD_EVERY {
                    told = Instant::now();
                    let runs = self.files() * RUNS_PER_FILE;
                    println!(
                        "  {:.0} s: about {runs} runs archived",
                        begin.elapsed().as_secs_f64()
                    );
                }
            }
            Ok(())
        })?;
        let seconds = begin.elapsed().as_secs_f64();
        let archived = (self.files() - before) * RUNS_PER_FILE;
        let mut times: Vec<f64> = taken.iter().map(milliseconds).collect();
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
        let per_second = times.len() as f64 / seconds;
        let archived_per_second = archived as f64 / seconds;
        Ok((Row { what, per_second, p50: at(50), p99: at(99), archived_per_second }, times.len()))
    }

    /// Archives again and again whatever is over, until so many runs have left the store.
    fn archive_until(&self, runs: u64, operator: &str) -> anyhow::Result<u64> {
        let mut archived = 0;
        while archived < runs {
            let args = ["--json", "archive", "run", "--before", "0s"];
            let made: Value =
                serde_json::from_str(&self.must(&self.data, &args, Some(operator))?)?;
            let archives = made.get("archives").and_then(Value::as_array).context("no archives")?;
            archived += archives.iter().filter_map(|it| it.get("runs")?.as_u64()).sum::<u64>();
        }
        Ok(archived)
    }

    /// Prints the second table.
    fn backup_and_restore(&self, directory: &Path, archived: u64) -> anyhow::Result<()> {
        let restored = directory.join("restored");
        let paths = [directory.join("backup"), self.data.join("archives")];
        let [backup, archives] = &paths.map(|path| path.display().to_string());
        println!("\n| with {archived} archived runs | s |\n|---|---|");
        let timed = |what, data, args: &[&str]| {
            let begin = Instant::now();
            let said = self.must(data, args, None)?;
            println!("| {what} | {:.0} |", begin.elapsed().as_secs_f64());
            anyhow::Ok(said)
        };
        timed("a backup, with its verification", &self.data, &["backup", backup])?;
        let verify = ["--json", "verify", "--archives", archives];
        let before = timed("`verify` of store and archives", &self.data, &verify)?;
        timed("a restore, with its verification", &restored, &["restore", backup])?;
        let after = timed("`verify` of the restored store and the archives", &restored, &verify)?;
        let [before, after] = [counted(&before)?, counted(&after)?];
        ensure!(before == after, "the restored store is another one: {before:?}, {after:?}");
        let counted: Vec<_> = after.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!(
            "\n`verify` found nothing, and counted the same before and after: {}",
            counted.join(", ")
        );
        Ok(())
    }

    /// Runs a command that must succeed, and answers what it prints.
    fn must(&self, data: &Path, args: &[&str], token: Option<&str>) -> anyhow::Result<String> {
        let mut command = Command::new(&self.stepgate);
        command.env_clear().arg("--data").arg(data).args(args).stdin(Stdio::null());
        command.envs(token.map(|token| ("STEPGATE_TOKEN", token)));
        let output = command.output()?;
        let [said, trouble] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        ensure!(output.status.success(), "{args:?}: {}\n{said}{trouble}", output.status);
        Ok(said.into_owned())
    }

    /// How many archives there are.
    fn files(&self) -> u64 {
        let files = fs::read_dir(self.data.join("archives")).into_iter().flatten().flatten();
        let is_archive =
            |file: &fs::DirEntry| file.file_name().to_string_lossy().ends_with(".archive.jsonl");
        files.filter(is_archive).count() as u64
    }
}

/// What `verify` has counted.
fn counted(report: &str) -> anyhow::Result<Vec<(&'static str, u64)>> {
    let report: Value = serde_json::from_str(report)?;
    let number = |name| {
        let number = report.get(name).and_then(Value::as_u64);
        Ok((name, number.with_context(|| format!("`verify` says no `{name}`"))?))
    };
    ["runs", "entries", "archived_runs", "archives_read"].into_iter().map(number).collect()
}

fn milliseconds(taken: &Taken) -> f64 {
    (taken.end - taken.begin).as_secs_f64() * 1000.0
}

fn mib_beneath(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for file in fs::read_dir(directory)? {
        bytes += file?.metadata()?.len();
    }
    Ok(bytes >> 20)
}

/// The most memory that a process has had.
fn peak_mib(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).context("no VmHWM")?;
    Ok(kib.parse::<u64>()? >> 10)
}
