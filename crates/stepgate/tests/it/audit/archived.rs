//! Events of runs that have left the store for archives: streams and commands replay them in their place.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::syslog::Liar;
use super::{configure, exported, is_whole, lines, position, stream, taken, think, waiting};
use crate::archives::{at_once, files};
use crate::binary::Place;
use crate::http_client::Gateway;
use crate::nodes::House;
use crate::notify::receivers::{Sink, free_address};
use crate::scene::{until, until_within};

fn hook(name: &str, address: &str) -> String {
    stream(name, "webhook", &format!("url = \"http://{address}/in\"\ntimeout_ms = 1000"))
}

/// Archives everything that is over, however young; the answer.
fn archive(gateway: &Gateway) -> Value {
    let before = json!({ "before": "2999-01-01T00:00:00.000Z" }).to_string();
    let made = gateway.send("POST", "/v1/archives", &gateway.operator, &before);
    assert_eq!(made.status, 200, "{made:?}");
    made.json()
}

fn archived_runs(answer: &Value) -> u64 {
    let archives = answer["archives"].as_array().unwrap();
    archives.iter().map(|it| it["runs"].as_u64().unwrap()).sum()
}

/// Neither a gap nor a duplicate, from the first event on.
fn assert_dense(events: &[Value]) {
    let positions: Vec<u64> = events.iter().map(position).collect();
    assert_eq!(positions, (1..=events.len() as u64).collect::<Vec<_>>());
}

#[test]
fn events_of_archived_runs_are_replayed_in_their_place() {
    for place in [Place::new(), House::new().alone("first")] {
        configure(&place, "");
        let gateway = Gateway::start(&place);
        (0..5).for_each(|_| think(&gateway));
        let first = exported(&place);
        assert_eq!(archived_runs(&archive(&gateway)), 4);
        (0..5).for_each(|_| think(&gateway));
        assert_eq!(archived_runs(&archive(&gateway)), 5);
        think(&gateway);
        assert_eq!(files(&place).len(), 2);
        let all = exported(&place);
        assert_dense(&all);
        assert_eq!(all[..first.len()], first, "they are as they were");
        let part = place.stepgate(["audit", "export", "--from", "4", "--to", "9"], "");
        assert_eq!(lines(&part.stdout), all[3..9]);

        // A stream that comes later begins with the first event that there ever was.
        drop(gateway);
        let sink = Sink::start();
        configure(&place, &hook("late", &sink.address));
        let gateway = Gateway::start(&place);
        until("the stream has all", || is_whole(&taken(&sink), &all));
        let arrived = taken(&sink);
        assert_eq!(arrived[..all.len()], all, "in order, and once");
        drop(gateway);
        let sent = place.stepgate(["audit", "send", "late", "--to", "20"], "");
        assert_eq!((sent.code, sent.stdout.as_str()), (0, "late: 20 events sent\n"), "{sent:?}");
        let again = taken(&sink);
        assert_eq!(again[again.len() - 20..], all[..20]);
    }
}

#[test]
fn many_archives_are_replayed_page_by_page_also_for_a_stream_of_some_types() {
    let place = Place::new();
    configure(&place, "");
    let gateway = Gateway::start(&place);
    for _ in 0..12 {
        (0..25).for_each(|_| think(&gateway));
        archive(&gateway);
    }
    assert_eq!(files(&place).len(), 12);
    let all = exported(&place);
    // Several pages of 256.
    assert!(all.len() > 600, "{}", all.len());
    assert_dense(&all);
    drop(gateway);
    let called: Vec<_> =
        all.iter().filter(|event| event["event_type"] == "tool_called").cloned().collect();
    let file = "path = \"called.jsonl\"\nevents = [\"tool_called\"]";
    configure(&place, &stream("called", "file", file));
    let _gateway = Gateway::start(&place);
    let sent = || lines(&fs::read_to_string(place.path().join("called.jsonl")).unwrap_or_default());
    until("the stream has all", || sent() == called);
}

#[test]
fn an_archive_that_is_missing_is_named_with_its_events_and_holds_up_a_stream() {
    let place = Place::new();
    configure(&place, "");
    let gateway = Gateway::start(&place);
    for _ in 0..2 {
        (0..5).for_each(|_| think(&gateway));
        archive(&gateway);
    }
    think(&gateway);
    let all = exported(&place);
    drop(gateway);
    let [file, other] = files(&place).try_into().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::copy(&other, elsewhere.join(other.file_name().unwrap())).unwrap();
    fs::rename(&file, elsewhere.join(&name)).unwrap();

    let is_told = |said: &str, count: usize| {
        let told = format!("archive {name} ({count} events, at positions ");
        assert!(said.contains(&told) && said.contains("is not in"), "{said}");
    };
    let part = place.stepgate(["audit", "export"], "");
    let left = lines(&part.stdout);
    assert!(part.code == 1 && left.len() < all.len(), "{part:?}");
    let missing = all.len() - left.len();
    is_told(&part.stderr, missing);
    let elsewhere = elsewhere.to_str().unwrap();
    let whole = place.stepgate(["audit", "export", "--archives", elsewhere], "");
    assert_eq!((whole.code, lines(&whole.stdout)), (0, all.clone()));

    let sink = Sink::start();
    configure(&place, &hook("late", &sink.address));
    let sent = place.stepgate(["audit", "send", "late"], "");
    assert_eq!((sent.code, taken(&sink)), (1, left), "{sent:?}");
    is_told(&sent.stderr, missing);

    // A stream waits for the file: what comes after it is not sent before.
    let before = taken(&sink).len();
    let gateway = Gateway::start(&place);
    until("the archive is named", || waiting(&place, "late").1.as_str().is_some());
    is_told(waiting(&place, "late").1.as_str().unwrap(), missing);
    think(&gateway);
    assert_eq!(taken(&sink).len(), before);
    let said = || waiting(&place, "late").1.as_str().unwrap_or_default().to_owned();
    let text = fs::read_to_string(Path::new(elsewhere).join(&name)).unwrap();
    fs::write(&file, text.replacen("THINK", "THUNK", 1)).unwrap();
    until("that it was changed", || said().contains("another digest"));
    fs::copy(other, &file).unwrap();
    until("that it is another one", || said().contains("is not the file that its event names"));
    assert_eq!(taken(&sink).len(), before);
    fs::write(&file, text).unwrap();
    until("the stream has all", || is_whole(&taken(&sink)[before..], &exported(&place)));
    until("it is well", || waiting(&place, "late") == (0, Value::Null));
}

#[test]
fn runs_stay_until_a_stream_that_is_behind_has_their_events() {
    for place in [Place::new(), House::new().alone("first")] {
        let down = free_address();
        configure(&place, &hook("siem", &down));
        let gateway = Gateway::start(&place);
        (0..5).for_each(|_| think(&gateway));
        let kept = archive(&gateway);
        assert_eq!((archived_runs(&kept), &kept["unread"]), (0, &json!(4)), "{kept}");
        let sink = Sink::at(&down);
        let all = exported(&place);
        until("the stream has all", || is_whole(&taken(&sink), &all));
        until("its cursor is there", || waiting(&place, "siem") == (0, Value::Null));
        assert_eq!(archived_runs(&archive(&gateway)), 4);
        think(&gateway);
        let all = exported(&place);
        until("the stream goes on", || is_whole(&taken(&sink), &all));
        assert_dense(&all);
    }
}

#[test]
fn nothing_is_missing_from_what_is_read_while_runs_leave_the_store() {
    for place in [Place::with(at_once()), House::new().alone_with("first", at_once())] {
        configure(&place, "");
        let gateway = Gateway::start(&place);
        let mut rounds = 0;
        while rounds < 8 || files(&place).len() < 8 {
            (0..5).for_each(|_| think(&gateway));
            assert_dense(&exported(&place));
            rounds += 1;
        }
        drop(gateway);
        // The new stream follows while older runs are archived behind it.
        let sink = Sink::start();
        configure(&place, &hook("late", &sink.address));
        let gateway = Gateway::start(&place);
        let count = files(&place).len();
        until("more archives", || {
            think(&gateway);
            files(&place).len() > count + 2
        });
        until("the stream has all", || is_whole(&taken(&sink), &exported(&place)));
    }
}

#[test]
fn events_of_archived_runs_are_sent_again_where_a_connection_ends() {
    let place = Place::new();
    configure(&place, "");
    let gateway = Gateway::start(&place);
    (0..5).for_each(|_| think(&gateway));
    archive(&gateway);
    think(&gateway);
    drop(gateway);
    let liar = Liar::start();
    let server = format!("host = \"127.0.0.1\"\ntls = false\nport = {}", liar.port);
    configure(&place, &stream("late", "syslog", &server));
    let gateway = Gateway::start(&place);
    let said = || waiting(&place, "late").1.as_str().unwrap_or_default().to_owned();
    until("the connection has ended", || said().contains("the connection ended"));
    liar.be_honest();
    think(&gateway);
    let patience = Duration::from_secs(90);
    until_within(patience, "the stream has all", || is_whole(&liar.events(), &exported(&place)));
}
