use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::Signal;
use serde_json::Value;

use super::{ask, place};
use crate::binary::Place;
use crate::http_client::{Gateway, PATIENCE};

/// A command whose output is a pipe, line by line.
struct Watcher {
    child: Child,
    lines: Receiver<String>,
}

impl Watcher {
    fn of(place: &Place, args: &[&str]) -> Self {
        let mut command = place.bare_command(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let read = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            read.map_while(Result::ok).try_for_each(|line| tell.send(line).map_err(|_| ()))
        });
        Self { child, lines }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.next()).unwrap()
    }

    /// Not with SIGINT: where the tests run in the background, it is ignored.
    fn stop(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn approvals_are_watched_on_a_pipe_each_told_once() {
    let place = place();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let (first, _) = ask(&place, "first");
    let watcher = Watcher::of(&place, &["approvals", "--watch", "--json"]);
    assert_eq!(watcher.json()["approval_id"], first);
    for name in ["second", "third"] {
        let (id, run) = ask(&place, name);
        let told = watcher.json();
        assert_eq!((&told["approval_id"], &told["tool_run_id"]), (&id.into(), &run.into()));
        assert_eq!(told["context"]["args"]["path"], format!("/sandbox/{name}"));
    }
    let people = Watcher::of(&place, &["approvals", "--watch", "--principal", "agent"]);
    assert!(people.next().starts_with(&first), "the oldest first, in words");
    people.stop();
    watcher.stop();
    drop(gateway);
}

#[test]
fn a_watch_ends_with_its_gateway_and_needs_one() {
    let place = place();
    for command in ["approvals", "attention"] {
        let refused = place.stepgate([command, "--watch"], "");
        assert_eq!(refused.code, 1, "{refused:?}");
    }
    let (first, _) = ask(&place, "first");
    let refused = place.stepgate(["approvals", "--watch"], "");
    assert!(refused.code == 1 && refused.stderr.contains("stepgate serve"), "{refused:?}");
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let mut watcher = Watcher::of(&place, &["approvals", "--watch", "--json"]);
    assert_eq!(watcher.json()["approval_id"], first);
    gateway.signal(Signal::TERM);
    assert_eq!(watcher.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_comes_to_need_a_person_is_watched_each_told_once() {
    let place = place();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let (first, _) = ask(&place, "first");
    let watcher = Watcher::of(&place, &["attention", "--watch", "--json"]);
    assert_eq!(watcher.json()["subject"], first);
    let others =
        Watcher::of(&place, &["attention", "--watch", "--json", "--kind", "policy_not_loaded"]);
    let (second, _) = ask(&place, "second");
    assert_eq!(watcher.json()["subject"], second);
    std::fs::write(place.path().join("policies/broken.cedar"), "permit (").unwrap();
    for watcher in [&watcher, &others] {
        assert_eq!(watcher.json()["kind"], "policy_not_loaded");
    }
    watcher.stop();
    others.stop();
    drop(gateway);
}
