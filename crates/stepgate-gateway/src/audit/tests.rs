mod ocsf;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stepgate_core::event::payload::{Request, value_from};
use stepgate_core::event::{Event, EventType};
use stepgate_core::ids::{ArtifactId, SessionId};
use stepgate_core::ports::PlacedEvent;
use stepgate_core::time::Timestamp;
use tokio::net::TcpListener;

use super::file::LogFile;
use super::line::{Level, line};
use super::syslog::Syslog;
use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

fn placed(event_type: EventType, payload: Value) -> PlacedEvent {
    let event = Event {
        event_id: ArtifactId::new(uuid::Uuid::now_v7()),
        event_type,
        payload,
        run_id: None,
        sequence_number: 3,
        session_id: SessionId::new(uuid::Uuid::now_v7()),
        ts: Timestamp::from_millisecond(1_700_000_000_123),
    };
    PlacedEvent { position: 42, event }
}

fn written(format: Format, placed: &PlacedEvent) -> Value {
    let line = line(format, placed, "agent");
    assert!(!line.text.contains('\n'), "an event is one line");
    serde_json::from_str(&line.text).unwrap()
}

fn request() -> Option<Request> {
    Some(Request { address: "192.0.2.7".into(), id: "r-1".into() })
}

#[test]
fn a_plain_event_has_its_position_its_principal_and_its_request() {
    let placed =
        placed(EventType::ToolCalled, value_from(json!({ "tool": "WRITE_FILE" }), request()));
    let event = written(Format::Json, &placed);
    assert_eq!((&event["position"], &event["principal_id"]), (&42.into(), &"agent".into()));
    assert_eq!(
        (&event["event_type"], &event["sequence_number"]),
        (&"tool_called".into(), &3.into())
    );
    assert_eq!(event["request"], json!({ "address": "192.0.2.7", "id": "r-1" }));
    assert_eq!(event["payload"], json!({ "tool": "WRITE_FILE" }));
    assert_eq!(event["run_id"], Value::Null);
}

#[test]
fn ocsf_says_who_acted_from_where_and_how_it_ended() {
    let payload = json!({ "tool": "mail.send", "error_code": "DENIED", "approver_id": "ann" });
    let placed = placed(EventType::ApprovalDenied, value_from(payload, request()));
    let event = written(Format::Ocsf, &placed);
    assert_eq!(event["actor"]["user"]["name"], "ann");
    assert_eq!(event["src_endpoint"]["ip"], "192.0.2.7");
    assert_eq!(
        event["api"],
        json!({
            "operation": "mail.send", "request": { "uid": "r-1" }, "service": { "name": "stepgate" },
        })
    );
    assert_eq!((&event["status_id"], &event["status_code"]), (&2.into(), &"DENIED".into()));
}

#[test]
fn a_refused_login_is_a_failed_authentication() {
    let refused = json!({ "address": "198.51.100.7", "count": 7 });
    let event = written(Format::Ocsf, &placed(EventType::LoginRefused, refused));
    assert_eq!((&event["class_uid"], &event["status_id"]), (&3002.into(), &2.into()));
    assert_eq!(
        (&event["src_endpoint"]["ip"], &event["count"]),
        (&"198.51.100.7".into(), &7.into())
    );
}

/// A line of so many bytes, which ends with its position.
fn sized(position: u64, bytes: usize) -> Line {
    let text = format!("{}{position:05}", "0".repeat(bytes.saturating_sub(5)));
    let (event_type, ts) = (EventType::ToolCalled, Timestamp::from_millisecond(0));
    Line { position, text, event_type, ts, level: Level::Info }
}

#[test]
fn batches_are_bounded_and_lose_nothing() {
    let lines: Vec<_> = (0..20).map(|position| sized(position, 300_000)).collect();
    let parts: Vec<_> = batches(&lines).collect();
    assert!(parts.iter().all(|part| part.len() == 3 || part.len() == 2), "{}", parts.len());
    let positions = parts.concat().iter().map(|line| line.position).collect::<Vec<_>>();
    assert_eq!(positions, (0..20).collect::<Vec<_>>());
    let large = [sized(1, 3_000_000), sized(2, 10), sized(3, 10)];
    let sizes: Vec<_> = batches(&large).map(<[Line]>::len).collect();
    assert_eq!(sizes, [1, 2], "one that is larger than a batch goes alone");
}

async fn append(file: &LogFile, positions: impl IntoIterator<Item = u64>) {
    let lines: Vec<_> = positions.into_iter().map(|position| sized(position, 99)).collect();
    file.append(&lines).await.unwrap();
}

fn positions(path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_full_file_is_renamed_and_the_oldest_goes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let file = LogFile::new(path.clone(), 1000, 2, TIMEOUT);
    for first in (0..40).step_by(5) {
        append(&file, first..first + 5).await;
    }
    assert_eq!(positions(&path), (30..40).collect::<Vec<_>>());
    assert_eq!(positions(&renamed(&path, 1)), (20..30).collect::<Vec<_>>());
    assert_eq!(positions(&renamed(&path, 2)), (10..20).collect::<Vec<_>>());
    assert!(!renamed(&path, 3).exists());
}

#[tokio::test]
async fn a_line_that_a_crash_cut_off_is_taken_away_before_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let file = LogFile::new(path.clone(), 10_000, 2, TIMEOUT);
    append(&file, [1, 2]).await;
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"cut off");
    fs::write(&path, bytes).unwrap();
    append(&file, [3]).await;
    assert_eq!(positions(&path), [1, 2, 3]);
}

#[tokio::test]
async fn a_very_long_line_that_a_crash_cut_off_is_taken_away_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let file = LogFile::new(path.clone(), u64::MAX, 2, TIMEOUT);
    append(&file, [1]).await;
    let mut bytes = fs::read(&path).unwrap();
    bytes.resize(bytes.len() + 9 * 1024 * 1024, b'x');
    fs::write(&path, bytes).unwrap();
    append(&file, [2]).await;
    assert_eq!(positions(&path), [1, 2]);
}

#[tokio::test]
async fn what_another_process_is_writing_is_not_taken_for_a_line_that_was_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let mut other = fs::File::create(&path).unwrap();
    other.lock().unwrap();
    other.write_all(b"0000").unwrap();
    let file = LogFile::new(path.clone(), 10_000, 2, TIMEOUT);
    let writing = tokio::spawn(async move { append(&file, [2]).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!writing.is_finished(), "it does not wait for the other");
    other.write_all(b"1\n").unwrap();
    drop(other);
    writing.await.unwrap();
    assert_eq!(positions(&path), [1, 2]);
}

#[tokio::test]
async fn a_file_that_another_process_keeps_locked_is_an_error_after_a_while() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let other = fs::File::create(&path).unwrap();
    other.lock().unwrap();
    let file = LogFile::new(path.clone(), 10_000, 2, Duration::from_millis(50));
    let trouble = file.append(&[sized(1, 9)]).await.unwrap_err();
    assert!(trouble.why().contains("another program keeps it locked"));
    drop(other);
    append(&file, [1]).await;
    assert_eq!(positions(&path), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_write_and_rename_the_same_file_lose_no_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let write = |first: u64| {
        let file = LogFile::new(path.clone(), 1000, 1000, TIMEOUT);
        async move {
            for position in first..first + 100 {
                append(&file, [position]).await;
            }
        }
    };
    let (one, other) = (tokio::spawn(write(0)), tokio::spawn(write(100)));
    one.await.unwrap();
    other.await.unwrap();
    let files = fs::read_dir(directory.path()).unwrap();
    let mut found: Vec<_> = files.flat_map(|file| positions(&file.unwrap().path())).collect();
    found.sort_unstable();
    assert_eq!(found, (0..200).collect::<Vec<_>>());
}

/// The kernel of a server that ends a connection with bytes that nobody has read breaks it.
#[tokio::test]
async fn a_syslog_server_that_breaks_the_connection_may_not_have_everything() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        // By then the client has said that it sends no more.
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(stream);
    });
    let mut syslog = Syslog::new("127.0.0.1", port, false, Duration::from_secs(9)).unwrap();
    syslog.send(&[sized(1, 99)]).await.unwrap();
    let why = syslog.close().await.unwrap_err().why();
    assert!(why.contains("it broke the connection"), "{why}");
    server.await.unwrap();
}

#[tokio::test]
async fn what_is_no_file_is_an_error_and_not_a_wait() {
    let directory = tempfile::tempdir().unwrap();
    let file = LogFile::new(directory.path().to_owned(), 10_000, 2, TIMEOUT);
    let trouble = file.append(&[sized(1, 9)]).await.unwrap_err();
    assert!(trouble.why().contains("it is not a file"));
}
