//! The binary, killed with SIGKILL at random moments, again and again on one data directory.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::binary::Place;
use crate::gate::proposal;
use crate::http_client::Gateway;
use crate::random::Random;
use crate::scene::{kill, python};

const KILLS: u32 = 200;
/// More than a process can answer before it is killed.
const PROPOSALS_A_LIFE: usize = 120;

/// The n-th proposal. Each group of three writes a file, renames it and deletes it: whatever is done
/// twice, or not at all, fails.
fn nth(number: usize) -> String {
    let group = number / 3;
    let (before, after) = (format!("/sandbox/{group}.txt"), format!("/sandbox/{group}.md"));
    let (action, args) = match number % 3 {
        0 => ("WRITE_FILE", json!({"path": before, "content": group.to_string()})),
        1 => ("RENAME_FILE", json!({"source": before, "destination": after})),
        _ => ("DELETE_FILE", json!({"path": after})),
    };
    proposal(u32::try_from(number).unwrap(), action, args)
}

/// Starts the binary, lets it answer a while, kills it, and returns what it printed in full.
fn live_and_die(place: &Place, first: usize, random: &mut Random) -> Vec<String> {
    let mut child = place
        .command(["step", "--lines"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        for number in first..first + PROPOSALS_A_LIFE {
            if writeln!(stdin, "{}", nth(number)).is_err() {
                break;
            }
        }
    });
    let answers_before_the_end = random.below(24);
    let patience = Duration::from_micros(random.below(3_000));
    let mut printed = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while u64::try_from(printed.len()).unwrap() < answers_before_the_end {
        match lines.next() {
            Some(line) => printed.push(line.unwrap()),
            None => break,
        }
    }
    let moment = Instant::now();
    while moment.elapsed() < patience {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What was printed before the end still counts; a line without its end was not.
    printed.extend(lines.map(Result::unwrap).filter(|line| line.ends_with('}')));
    writer.join().unwrap();
    printed
}

#[test]
fn a_killed_gateway_loses_nothing_and_repeats_nothing() {
    let place = Place::new();
    let seed = 0x5eed_1234_abcd;
    let mut random = Random(seed);
    let mut answered: Vec<String> = Vec::new();
    for _ in 0..KILLS {
        let printed = live_and_die(&place, answered.len(), &mut random);
        answered.extend(printed);
    }
    for (number, response) in answered.iter().enumerate() {
        let response: Value = serde_json::from_str(response).unwrap();
        assert_eq!(response["outcome"], "SUCCESS", "proposal {number}, seed {seed:#x}: {response}");
    }
    let again: String = (0..answered.len()).map(|number| nth(number) + "\n").collect();
    let output = place.stepgate(["step", "--lines"], again);
    assert_eq!(output.stdout.lines().collect::<Vec<_>>(), answered, "{}", output.stderr);
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{}", verified.stdout);
    println!("killed {KILLS} times, {} steps answered, seed {seed:#x}", answered.len());
    assert!(answered.len() > 500, "{}", answered.len());
}

/// Also in the life in which the gateway created its database.
#[test]
fn a_program_that_opens_and_closes_the_database_of_a_gateway_takes_nothing_away() {
    let place = Place::new();
    for life in 0..2 {
        let gateway = Gateway::start(&place);
        assert_eq!(gateway.propose(&nth(3 * life)).status, 200);
        let look = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM events').fetchall()";
        let database = place.path().join("stepgate.db");
        let looked = Command::new(python()).arg("-c").arg(look).arg(&database).status().unwrap();
        assert!(looked.success());
        let rename = nth(3 * life + 1);
        let answer = gateway.propose(&rename).body;
        assert!(answer.contains("SUCCESS"), "{answer}");
        kill(gateway);
        let gateway = Gateway::start(&place);
        // Done again, it would fail: the file is not there any more.
        assert_eq!(gateway.propose(&rename).body, answer, "life {life}");
        kill(gateway);
    }
}
