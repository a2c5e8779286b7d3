//! The tests: which changes each reaches, and whether one of them fails with a change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::process::{Pid, Signal, kill_process_group};

/// A test program of a package.
pub(super) struct Program {
    /// The package's name, which is not always that of its directory.
    pub(super) name: String,
    pub(super) package: PathBuf,
    pub(super) path: PathBuf,
}

/// One test, what it reaches, and how long it took without a change.
struct Test {
    program: usize,
    name: String,
    reaches: BTreeSet<usize>,
    took: Duration,
}

pub(super) struct Suite {
    programs: Vec<Program>,
    tests: Vec<Test>,
}

pub(super) enum Outcome {
    Caught,
    /// A test took much longer than without the change, which an endless loop does, and a busy machine.
    TimedOut,
    Survived {
        tests: usize,
    },
}

/// Tests that run at the same time.
const WORKERS: usize = 2;

/// Most tests of one process.
const GROUP_MAX: usize = 40;

/// How long the tests of one change may take beyond what they took without it.
const EXTRA_WAIT: Duration = Duration::from_secs(30);

impl Suite {
    /// Runs every test once, without a change. A test that fails is left out.
    pub(super) fn load(
        programs: Vec<Program>,
        selected: &[String],
        reached: &Path,
    ) -> anyhow::Result<Self> {
        let mut names = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            let prefixes = prefixes(program, selected);
            let listed = program.command().args(["--list", "--format", "terse"]).output()?;
            let listed = String::from_utf8(listed.stdout)?;
            let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
            let is_selected = |name: &&str| prefixes.iter().any(|prefix| name.starts_with(prefix));
            names.extend(tests.filter(is_selected).map(|name| (index, name.to_owned())));
        }
        println!("{} tests", names.len());
        let _ = fs::remove_dir_all(reached);
        fs::create_dir_all(reached)?;
        let tests = in_parallel(&names, |at, (program, name)| {
            let file = reached.join(at.to_string());
            let mut command = programs.get(*program)?.command();
            command.args(["--exact", name]).env(super::REACHED, &file);
            let begun = Instant::now();
            let Some(status) = finish(&mut command, Duration::from_secs(600)) else {
                println!("too slow: {name}");
                return None;
            };
            if !status.success() {
                println!("fails without a change: {name}");
                return None;
            }
            let text = fs::read_to_string(&file).unwrap_or_default();
            let reaches = text.lines().filter_map(|line| line.parse().ok()).collect();
            let name = name.clone();
            Some(Test { program: *program, name, reaches, took: begun.elapsed() })
        });
        let tests: Vec<Test> = tests.into_iter().flatten().collect();
        for package in selected.iter().filter_map(|entry| entry.split(':').next()) {
            let has_tests = |test: &Test| {
                programs.get(test.program).map(|it| it.name.as_str()) == Some(package)
            };
            ensure!(tests.iter().any(has_tests), "no test of {package} passes without a change");
        }
        Ok(Self { programs, tests })
    }

    pub(super) fn run(&self, changes: &[usize]) -> BTreeMap<usize, Outcome> {
        let done = AtomicUsize::new(0);
        let outcomes = in_parallel(changes, |_, id| {
            let outcome = self.judge(*id);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(50) {
                println!("{done} of {}", changes.len());
            }
            (*id, outcome)
        });
        outcomes.into_iter().collect()
    }

    /// Quick tests first, in groups that double in time, until one fails.
    fn judge(&self, id: usize) -> Outcome {
        let mut tests: Vec<&Test> =
            self.tests.iter().filter(|test| test.reaches.contains(&id)).collect();
        tests.sort_by_key(|test| (test.took.as_millis().max(100).ilog2(), test.program));
        let same = |a: &&Test, b: &&Test| {
            a.program == b.program
                && a.took.as_millis().max(100).ilog2() == b.took.as_millis().max(100).ilog2()
        };
        for group in tests.chunk_by(same).flat_map(|group| group.chunks(GROUP_MAX)) {
            let Some(program) = group.first().and_then(|test| self.programs.get(test.program))
            else {
                continue;
            };
            let mut command = program.command();
            command.args(["--test-threads", "2", "--exact"]);
            command.args(group.iter().map(|test| &test.name)).env(super::SWITCH, id.to_string());
            let usual: Duration = group.iter().map(|test| test.took).sum();
            match finish(&mut command, usual * 3 + EXTRA_WAIT) {
                None => return Outcome::TimedOut,
                Some(status) if !status.success() => return Outcome::Caught,
                Some(_) => {}
            }
        }
        Outcome::Survived { tests: tests.len() }
    }
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command
    }
}

/// The selected prefixes of a program's tests: all of them where only the package is named.
fn prefixes(program: &Program, selected: &[String]) -> Vec<String> {
    let of_package = |entry: &String| match entry.split_once(':') {
        None => (*entry == program.name).then(|| vec![String::new()]),
        Some((name, list)) => {
            (name == program.name).then(|| list.split(',').map(ToOwned::to_owned).collect())
        }
    };
    selected.iter().filter_map(of_package).flatten().collect()
}

/// Waits, and kills the whole group where it takes too long.
fn finish(command: &mut Command, wait: Duration) -> Option<ExitStatus> {
    use std::os::unix::process::CommandExt as _;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().ok()?;
    let end = Instant::now() + wait;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            _ => {
                let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                let _ = group.map(|group| kill_process_group(group, Signal::KILL));
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// In the order of the items.
fn in_parallel<I: Sync, O: Send>(items: &[I], work: impl Fn(usize, &I) -> O + Sync) -> Vec<O> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = work(at, item);
                    if let Ok(mut done) = done.lock() {
                        done.insert(at, result);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_default().into_values().collect()
}
