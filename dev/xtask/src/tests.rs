//! Runs the tests, and says how many there were and which took longest.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};

/// How many of the slowest tests are listed.
const SLOWEST: usize = 20;
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
}

impl Summary {
    /// Reads a line. Whether it is worth printing: a test that passed is not.
    fn read(&mut self, line: &str) -> bool {
        self.passed += count(line, " passed");
        self.failed += count(line, " failed");
        let Some((name, rest)) = line.strip_prefix("test ").and_then(|it| it.split_once(" ... "))
        else {
            return true;
        };
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
    let mut child = cargo.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("no output")?;
    let mut summary = Summary::default();
    for line in BufReader::new(output).lines() {
        let line = line?;
        if summary.read(&line) {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    summary.print_slowest();
    let Summary { passed, failed, .. } = summary;
    println!("== tests: {:.1} s", start.elapsed().as_secs_f32());
    println!("{passed} passed, {failed} failed");
    ensure!(status.success() && failed == 0 && passed > 0, "tests failed: {cargo:?}");
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
}
