//! Runs the tests, and says how many there were and which took longest.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZero;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{env, iter, thread};

use anyhow::{Context, ensure};

/// How many of the slowest tests are listed.
const SLOWEST: usize = 20;
/// How long the tests may print nothing at all before the running test program is killed. The slowest test takes
/// three minutes.
const SILENCE_MAX: Duration = Duration::from_secs(10 * 60);
/// libtest tells the time of a test only with this variable. It is set for the test programs alone: set for the
/// compiler, it would build everything anew.
const WITH_TIMES: &str = "target.'cfg(all())'.runner=['env', 'RUSTC_BOOTSTRAP=1']";

/// What the lines of all test programs say together.
#[derive(Debug, Default, PartialEq)]
struct Summary {
    passed: u32,
    failed: u32,
    /// Seconds and names.
    times: Vec<(f64, String)>,
    /// The tests that libtest called slow, and that have not ended yet.
    slow: BTreeSet<String>,
}

impl Summary {
    /// Reads a line. Whether it is worth printing: a test that passed is not.
    fn read(&mut self, line: &str) -> bool {
        self.passed += count(line, " passed");
        self.failed += count(line, " failed");
        let Some(test) = line.strip_prefix("test ") else { return true };
        if let Some((name, _)) = test.split_once(" has been running for over ") {
            self.slow.insert(name.to_owned());
        }
        let Some((name, rest)) = test.split_once(" ... ") else { return true };
        self.slow.remove(name);
        let seconds = rest.split_once('<').and_then(|(_, time)| time.strip_suffix("s>"));
        self.times.extend(seconds.and_then(|it| it.parse().ok()).map(|it| (it, name.to_owned())));
        !rest.starts_with("ok")
    }

    fn print_slowest(&mut self) {
        self.times.sort_by(|one, other| other.0.total_cmp(&one.0));
        println!("== the slowest tests");
        for (seconds, name) in self.times.iter().take(SLOWEST) {
            println!("{seconds:8.1} s  {name}");
        }
    }
}

/// Runs `cargo test` with these arguments, which name no doc tests: rustdoc takes no runner for its own options.
pub(super) fn run(mut cargo: Command) -> anyhow::Result<()> {
    println!("== tests");
    let start = Instant::now();
    cargo.args(["--config", WITH_TIMES, "--", "-Z", "unstable-options", "--report-time"]);
    cargo.args(["--test-threads", &threads().to_string()]);
    cargo.envs(path_to_python().map(|path| ("PATH", path)));
    let mut child = cargo.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("no output")?;
    let lines = lines_of(output);
    let mut summary = Summary::default();
    let mut is_stuck = false;
    loop {
        match lines.recv_timeout(SILENCE_MAX) {
            Ok(line) if summary.read(&line) => println!("{line}"),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                is_stuck = true;
                report_silence(&summary)?;
                // A process that a test left behind can hold the output open after cargo has ended.
                if child.try_wait()?.is_some() {
                    break;
                }
                kill_test_program(&child)?;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait()?;
    summary.print_slowest();
    let Summary { passed, failed, .. } = summary;
    println!("== tests: {:.1} s", start.elapsed().as_secs_f32());
    println!("{passed} passed, {failed} failed");
    ensure!(!is_stuck && status.success() && failed == 0 && passed > 0, "tests failed: {cargo:?}");
    Ok(())
}

/// A search path where `python3` is the program itself. That of a version manager is a script, which takes longer to start than
/// Python does, and the tests start it hundreds of times.
fn path_to_python() -> Option<OsString> {
    let which = ["-c", "import sys; print(sys.executable)"];
    let output = Command::new("python3").args(which).output().ok()?;
    let python = String::from_utf8(output.stdout).ok()?;
    let directory = Path::new(python.trim()).parent()?.to_owned();
    let others = env::var_os("PATH")?;
    env::join_paths(iter::once(directory).chain(env::split_paths(&others))).ok()
}

/// Two tests a core: most of them wait for processes, disks and clocks. With five on two cores, those of the program took 8 %
/// less time (587 s instead of 635 s), and what is sensitive to load has less room.
fn threads() -> usize {
    2 * thread::available_parallelism().map_or(1, NonZero::get)
}

/// The lines of an output as they come.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    lines
}

/// Says which tests and which processes run.
fn report_silence(summary: &Summary) -> anyhow::Result<()> {
    println!("== the tests have printed nothing for {} minutes", SILENCE_MAX.as_secs() / 60);
    println!("these tests do not end: {:?}", summary.slow);
    Command::new("ps").args(["-eo", "pid,ppid,etime,stat,wchan:20,args", "--forest"]).status()?;
    Ok(())
}

/// Kills the test program that cargo waits for. Cargo goes on with the next one.
fn kill_test_program(cargo: &Child) -> anyhow::Result<()> {
    Command::new("pkill").args(["-KILL", "-P", &cargo.id().to_string()]).status()?;
    Ok(())
}

/// The number before a word in the closing line of a test program.
fn count(line: &str, word: &str) -> u32 {
    let Some(results) = line.strip_prefix("test result: ") else { return 0 };
    let before = results.split(word).next().unwrap_or_default();
    before.rsplit([' ', ';']).next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_numbers_of_a_closing_line_are_read() {
        let line = "test result: ok. 143 passed; 2 failed; 0 ignored; finished in 72.38s";
        assert_eq!((count(line, " passed"), count(line, " failed")), (143, 2));
        assert_eq!(count("12 passed", " passed"), 0);
    }

    #[test]
    fn a_test_that_passed_is_only_counted_and_one_that_failed_is_printed() {
        let mut summary = Summary::default();
        assert!(!summary.read("test a::b ... ok <1.250s>"));
        assert!(summary.read("test a::c ... FAILED <0.002s>"));
        assert!(summary.read("thread 'a::c' panicked at src/lib.rs:1:1:"));
        assert_eq!(summary.times, [(1.25, "a::b".to_owned()), (0.002, "a::c".to_owned())]);
    }

    #[test]
    fn a_slow_test_is_known_until_it_ends() {
        let mut summary = Summary::default();
        assert!(summary.read("test a::b has been running for over 60 seconds"));
        assert!(summary.slow.contains("a::b"));
        assert!(!summary.read("test a::b ... ok <61.000s>"));
        assert!(summary.slow.is_empty());
    }
}
