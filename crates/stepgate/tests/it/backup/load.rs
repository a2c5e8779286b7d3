//! A backup while 64 clients write: nobody waits for it, and everything that was answered before it began
//! is in it.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::{Engine, Shelf, backed_up, heads, heads_of, restored};
use crate::binary::Place;
use crate::http_client::{Gateway, PATIENCE, exchange, proposal, request};

const CLIENTS: usize = 64;
/// Answers before the backup begins.
const ANSWERS_MIN: usize = 400;

/// What a client was answered: the proposal, the answer, and the file that it left.
struct Answered {
    client: usize,
    round: u32,
    proposal: String,
    answer: String,
}

/// Rounds of writing, renaming, deleting and reading, until it is enough.
fn work(gateway: &Gateway, client: usize, is_over: &AtomicBool, answered: &Mutex<Vec<Answered>>) {
    let mut round = 0;
    while !is_over.load(Ordering::Relaxed) {
        let own = format!("/sandbox/{client}.txt");
        let (new, old) =
            (format!("/sandbox/{client}-new.txt"), format!("/sandbox/{client}-old.txt"));
        let steps = [
            proposal("WRITE_FILE", json!({ "path": own, "content": round.to_string() })),
            proposal("WRITE_FILE", json!({ "path": new, "content": "x".repeat(2000) })),
            proposal("RENAME_FILE", json!({ "source": new, "destination": old })),
            proposal("DELETE_FILE", json!({ "path": old })),
            proposal("READ_FILE", json!({ "path": own })),
        ];
        for proposal in steps {
            let sent = request("POST", "/v1/steps", &gateway.agent, &[], &proposal);
            let reply = exchange(gateway.address, sent.as_bytes()).unwrap();
            assert_eq!(reply.status, 200, "{reply:?}");
            assert_eq!(reply.json()["outcome"], "SUCCESS", "{reply:?}");
            let answer = reply.body;
            answered.lock().unwrap().push(Answered { client, round, proposal, answer });
        }
        round += 1;
    }
}

/// Ends the work of all clients, also where a test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves clients, makes a backup in the middle, and gives what was answered before it began.
fn back_up_under_load(place: &Place, path: &Path) -> Vec<Answered> {
    let gateway = Gateway::start_with(place, &["--quiet"]);
    let (is_over, answered) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let begun = std::thread::scope(|scope| {
        let (gateway, is_over, answered) = (&gateway, &is_over, &answered);
        let ending = Ending(is_over);
        for client in 0..CLIENTS {
            scope.spawn(move || work(gateway, client, is_over, answered));
        }
        let count = || answered.lock().unwrap().len();
        let deadline = Instant::now() + 4 * PATIENCE;
        while count() < ANSWERS_MIN {
            assert!(Instant::now() < deadline, "only {} answers", count());
            std::thread::sleep(Duration::from_millis(5));
        }
        let begun = count();
        let start = Instant::now();
        let told = backed_up(place, path);
        let meanwhile = count() - begun;
        drop(ending);
        println!(
            "{begun} answers before, {meanwhile} in the {:?} of the backup: {told}",
            start.elapsed()
        );
        assert!(meanwhile > 0, "the gateway stood still");
        begun
    });
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    let mut answered = answered.into_inner().unwrap();
    answered.truncate(begun);
    answered
}

/// Everything that was answered is answered again, byte for byte; and the store goes on.
fn goes_on(place: &Place, answered: &[Answered]) {
    let last = |client: usize| {
        let rounds = answered.iter().filter(|answered| answered.client == client);
        rounds.map(|answered| answered.round).max()
    };
    for client in 0..CLIENTS {
        let Some(round) = last(client) else { continue };
        let file = place.path().join(format!("sandbox/{client}.txt"));
        let there: u32 = fs::read_to_string(file).unwrap().parse().unwrap();
        assert!(there >= round, "client {client}: {there}, and {round} was answered");
    }
    let gateway = Gateway::start_with(place, &["--quiet"]);
    for Answered { proposal, answer, .. } in answered {
        let again = gateway.propose(proposal);
        assert_eq!((again.status, &again.body), (200, answer));
        assert_eq!(again.headers["idempotent-replayed"], "true", "{proposal}");
    }
    let new = proposal("WRITE_FILE", json!({ "path": "/sandbox/new.txt", "content": "new" }));
    let done = gateway.propose(&new);
    assert_eq!(done.json()["outcome"], "SUCCESS", "{done:?}");
    let open = gateway.send("GET", "/v1/runs?status=started", &gateway.operator, "");
    assert_eq!(open.json()["runs"].as_array().map(Vec::len), Some(0), "{open:?}");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    heads(place);
}

fn check(source: Engine) {
    let (place, shelf) = (source.place(), Shelf::new());
    let path = shelf.path("busy");
    let answered = back_up_under_load(&place, &path);
    for target in Engine::ALL {
        let other = target.place();
        restored(&other, &path);
        assert_eq!(heads(&other), heads_of(&path), "{source:?} to {target:?}");
        goes_on(&other, &answered);
    }
}

#[test]
fn a_backup_of_sqlite_under_load_keeps_nobody_waiting_and_loses_nothing() {
    check(Engine::Sqlite);
}

#[test]
fn a_backup_of_postgresql_under_load_keeps_nobody_waiting_and_loses_nothing() {
    check(Engine::Postgres);
}
