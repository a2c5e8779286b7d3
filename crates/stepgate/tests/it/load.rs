//! Many clients at once, for a while: every answer is an outcome, memory stays flat, and afterwards
//! everything verifies.

mod client;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::binary::Place;
use crate::http_client::{Gateway, proposal};
use client::{Answer, Client};

/// Clients, each with a connection that it keeps.
const CLIENTS: usize = 64;
/// Principals that they share: steps of one session meet in its chain.
const PRINCIPALS: usize = 8;
/// Says for how many seconds, and how long otherwise.
const SECONDS_VARIABLE: &str = "STEPGATE_LOAD_SECONDS";
const SECONDS_DEFAULT: u64 = 20;
/// Longest proposal, so that one beyond it is cheap to send.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// How often memory is looked at.
const SAMPLE: Duration = Duration::from_millis(100);
/// How much the peak of the last quarter may lie above the peak of the quarter before it. Steps leave
/// nothing behind, so only this grows: the page caches of SQLite up to their limit, which a database of
/// this size reaches late; the shared index of its log, which is mapped; and what the allocator keeps
/// of the largest moment so far.
const RSS_GROWTH_KIB_MAX: u64 = 16 * 1024;
/// A round of this number, and each so many after it, asks a person; and sends too much.
const ROUNDS_BETWEEN_QUESTIONS: u64 = 8;
const ROUNDS_BETWEEN_FLOODS: u64 = 5;

#[test]
fn under_load_every_answer_is_an_outcome_memory_stays_flat_and_everything_verifies() {
    let place = Place::new();
    fs::create_dir_all(place.path().join("policies")).unwrap();
    let config = format!("[limits]\npayload_bytes_max = {PAYLOAD_BYTES_MAX}\n");
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    let policies = r#"
        @id("core")
        permit (principal, action in Action::"core", resource);
        @id("ask") @approval("a file is deleted")
        permit (principal, action == Action::"DELETE_FILE", resource);
    "#;
    fs::write(place.path().join("policies/all.cedar"), policies).unwrap();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let tokens: Vec<String> = (0..PRINCIPALS).map(|number| token(&place, number)).collect();

    let patience = seconds();
    let start = Instant::now();
    let is_over = AtomicBool::new(false);
    let (stop, stopped) = channel::<()>();
    let (tallies, samples) = std::thread::scope(|scope| {
        let pid = gateway.child.id();
        let sampler = scope.spawn(move || sampled(pid, &stopped));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let worker = Worker::new(&gateway, number, &tokens[number % PRINCIPALS]);
                let is_over = &is_over;
                scope.spawn(move || worker.work(start + patience, is_over))
            })
            .collect();
        let tallies: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        drop(stop);
        (tallies, sampler.join().unwrap())
    });
    let elapsed = start.elapsed();
    let tally = total(tallies);
    let growth = growth(&samples);
    report(&tally, elapsed, &samples);
    for outcome in
        ["SUCCESS", "VALIDATION_ERROR", "DENIED", "EXECUTION_ERROR", "APPROVAL_REQUIRED", "replay"]
    {
        assert!(tally.contains_key(outcome), "no {outcome} in {tally:?}");
    }
    assert!(growth <= RSS_GROWTH_KIB_MAX, "{growth} KiB more at the end: {samples:?}");

    gateway.signal(Signal::TERM);
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{verified:?}");
}

fn seconds() -> Duration {
    let text = std::env::var(SECONDS_VARIABLE);
    let seconds = text.map_or(SECONDS_DEFAULT, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

/// A token of a principal of its own. It is made on the machine: an operator who makes one over the network
/// does not decide on what it asks for.
fn token(place: &Place, number: usize) -> String {
    let name = format!("agent-{number}");
    let made = place.stepgate(["token", "create", "--name", &name, "--role", "agent"], "");
    assert_eq!(made.code, 0, "{made:?}");
    made.stdout.trim().to_owned()
}

type Tally = BTreeMap<String, u64>;

fn total(tallies: Vec<Tally>) -> Tally {
    let mut total = Tally::new();
    for (outcome, count) in tallies.into_iter().flatten() {
        *total.entry(outcome).or_default() += count;
    }
    total
}

fn report(tally: &Tally, elapsed: Duration, samples: &[u64]) {
    // A replay is counted with its outcome too.
    let answers: u64 =
        tally.iter().filter(|(word, _)| *word != "replay").map(|(_, count)| count).sum();
    let rate = answers as f64 / elapsed.as_secs_f64();
    println!("{answers} answers in {elapsed:.1?}, {rate:.0} a second: {tally:?}");
    let [first, second, third, fourth] = peaks(samples);
    println!("peak RSS of each quarter, KiB: {first} {second} {third} {fourth}");
}

/// The memory of the process, in KiB, until it is enough.
fn sampled(pid: u32, stopped: &Receiver<()>) -> Vec<u64> {
    let mut samples = Vec::new();
    while stopped.recv_timeout(SAMPLE) == Err(RecvTimeoutError::Timeout) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        samples.push(line.trim().trim_end_matches(" kB").parse().unwrap());
    }
    samples
}

fn peaks(samples: &[u64]) -> [u64; 4] {
    let quarter = samples.len() / 4;
    [0, 1, 2, 3].map(|number| samples[number * quarter..][..quarter].iter().copied().max().unwrap())
}

fn growth(samples: &[u64]) -> u64 {
    let [_, _, third, fourth] = peaks(samples);
    fourth.saturating_sub(third)
}

/// One client: an agent, and now and then the operator who answers it.
struct Worker {
    number: usize,
    agent: Client,
    address: SocketAddr,
    operator: String,
    tally: Tally,
}

impl Worker {
    fn new(gateway: &Gateway, number: usize, token: &str) -> Self {
        Self {
            number,
            agent: Client::new(gateway.address, token),
            address: gateway.address,
            operator: gateway.operator.clone(),
            tally: Tally::new(),
        }
    }

    /// Round after round; whoever finds something wrong stops the others too.
    fn work(mut self, until: Instant, is_over: &AtomicBool) -> Tally {
        let mut round = u64::try_from(self.number).unwrap();
        while Instant::now() < until && !is_over.load(Ordering::Relaxed) {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.round(round)));
            if let Err(panic) = done {
                is_over.store(true, Ordering::Relaxed);
                std::panic::resume_unwind(panic);
            }
            round += 1;
        }
        self.tally
    }

    fn round(&mut self, round: u64) {
        let path = format!("/sandbox/{}.txt", self.number);
        let file = json!({ "path": path });
        let text = format!("round {round}");
        let write = json!({ "path": path, "content": text });
        self.expect(200, "SUCCESS", &proposal("WRITE_FILE", write));
        let read = proposal("READ_FILE", file.clone());
        let first = self.expect(200, "SUCCESS", &read);
        assert_eq!(first.json()["result"]["content"], text);
        let again = self.expect(200, "SUCCESS", &read);
        assert_eq!((again.body, again.is_replay), (first.body, true));
        self.count("replay");
        let conflict = self.expect(422, "VALIDATION_ERROR", &read.replace(&path, "/sandbox/x.txt"));
        assert_eq!(conflict.json()["error"]["error_code"], "IDEMPOTENCY_CONFLICT");
        let missing = json!({ "path": "/sandbox/none.txt" });
        self.expect(200, "EXECUTION_ERROR", &proposal("READ_FILE", missing));
        let program = json!({ "path": "/sandbox/a.exe", "content": "x" });
        self.expect(403, "DENIED", &proposal("WRITE_FILE", program));
        self.expect(403, "DENIED", &proposal("run_command", json!({})));
        self.expect(200, "SUCCESS", &proposal("THINK", json!({})));
        self.expect(200, "SUCCESS", &proposal("LIST_FILES", json!({ "path": "/sandbox/" })));
        self.expect(400, "VALIDATION_ERROR", "{ not json");
        self.expect(400, "VALIDATION_ERROR", &proposal("READ_FILE", json!({ "path": 1 })));
        if round.is_multiple_of(ROUNDS_BETWEEN_FLOODS) {
            let flood = json!({ "path": path, "content": "x".repeat(PAYLOAD_BYTES_MAX) });
            let flooded = self.expect(400, "VALIDATION_ERROR", &proposal("WRITE_FILE", flood));
            assert_eq!(flooded.json()["error"]["error_code"], "PAYLOAD_TOO_LARGE");
        }
        if round.is_multiple_of(ROUNDS_BETWEEN_QUESTIONS) {
            let is_granted = (round / ROUNDS_BETWEEN_QUESTIONS).is_multiple_of(2);
            self.ask(&proposal("DELETE_FILE", file), is_granted);
        }
    }

    /// Asks a person, who decides, and then asks what became of it.
    fn ask(&mut self, delete: &str, is_granted: bool) {
        let notice = self.expect(202, "APPROVAL_REQUIRED", delete).json();
        let id = notice["result"]["approval_id"].as_str().unwrap().to_owned();
        let (word, status) = if is_granted { ("approve", "approved") } else { ("deny", "denied") };
        // People come and go: a connection that nobody uses for a while is not kept.
        let mut operator = Client::new(self.address, &self.operator);
        let decided = operator.send("POST", &format!("/v1/approvals/{id}/{word}"), &[], "{}");
        assert_eq!((decided.status, &decided.json()["status"]), (200, &json!(status)));
        let patience = [("prefer", "wait=30")];
        let ended = self.agent.send("POST", "/v1/steps", &patience, delete);
        let expected = if is_granted { (200, "SUCCESS") } else { (403, "DENIED") };
        let ended_with = ended.json()["outcome"].as_str().map(str::to_owned);
        assert_eq!((ended.status, ended_with.as_deref()), (expected.0, Some(expected.1)));
        self.count(expected.1);
    }

    fn expect(&mut self, status: u16, outcome: &str, body: &str) -> Answer {
        let answer = self.agent.send("POST", "/v1/steps", &[], body);
        let given: Value = answer.json()["outcome"].clone();
        assert_eq!((answer.status, &given), (status, &json!(outcome)), "{}", answer.body);
        self.count(outcome);
        answer
    }

    fn count(&mut self, outcome: &str) {
        *self.tally.entry(outcome.to_owned()).or_default() += 1;
    }
}
