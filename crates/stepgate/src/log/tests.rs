use std::sync::{Arc, Mutex};

use serde_json::json;
use tracing::{error, info, info_span, warn};
use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// Keeps the fields of every event instead of writing them.
struct Kept(Arc<Mutex<Vec<(Level, Fields)>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Kept {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        keep_fields(attributes, id, &context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let kept = (*event.metadata().level(), fields_of(event, &context));
        self.0.lock().unwrap().push(kept);
    }
}

fn kept(log: impl FnOnce()) -> (Level, Fields) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let subscriber = Registry::default().with(Kept(Arc::clone(&lines)));
    tracing::subscriber::with_default(subscriber, log);
    let mut lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 1);
    lines.pop().unwrap()
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn a_line_for_machines_has_its_time_level_and_message_and_the_fields_of_its_request() {
    let (level, fields) = kept(|| {
        let _request = info_span!("request", request_id = "r-1").entered();
        info!(principal = "alice", status = 200_u64, "GET /healthz");
    });
    let mut line: Value = serde_json::from_str(&json(level, fields)).unwrap();
    let time = line.as_object_mut().unwrap().remove("time").unwrap();
    assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
    let expected = json!({
        "level": "info",
        "message": "GET /healthz",
        "principal": "alice",
        "request_id": "r-1",
        "status": 200,
    });
    assert_eq!(line, expected);
}

#[test]
fn a_line_for_people_adds_what_the_message_does_not_say_and_plays_no_tricks() {
    let (level, fields) = kept(|| {
        let _request = info_span!("request", request_id = "r-\u{1b}[2J").entered();
        warn!(server = "files", "files is off: \u{202e}why");
    });
    let line = plain(&text(level, fields));
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(time.ends_with('Z'), "{line}");
    assert_eq!(rest, "WARN  files is off: <U+202E>why request_id=r-<U+001B>[2J");
}

#[test]
fn a_text_of_several_lines_looks_like_one_line_of_the_log() {
    let (level, fields) = kept(|| error!("not loaded\n2026-01-01T00:00:00.000Z INFO  all is well"));
    let line = plain(&text(level, fields));
    let (_, rest) = line.split_once(' ').unwrap();
    assert_eq!(rest, "ERROR not loaded\n    2026-01-01T00:00:00.000Z INFO  all is well");
}

#[test]
fn requests_are_named_also_where_only_errors_are_told() {
    let log = Log { format: LogFormat::Json, level: Level::ERROR, audience: Audience::Service };
    let lines = Arc::new(Mutex::new(Vec::new()));
    let subscriber = Registry::default().with(log).with(Kept(Arc::clone(&lines)));
    tracing::subscriber::with_default(subscriber, || {
        let _request = info_span!(target: "stepgate_http", "request", request_id = "r-1").entered();
        info!(target: "stepgate_http", "left out");
        error!(target: "stepgate_http", "told");
        error!(target: "hyper", "left out too");
    });
    let lines = lines.lock().unwrap();
    let told: Vec<&Value> = lines.iter().map(|(_, fields)| &fields.0[MESSAGE]).collect();
    assert_eq!(told, ["told"]);
    assert_eq!(lines[0].1.0["request_id"], "r-1");
}

#[test]
fn a_command_tells_what_went_wrong_without_a_time() {
    let (level, fields) = kept(|| error!(server = "files", "files is off"));
    assert_eq!(plain(&told(level, fields)), "error: files is off");
    let (level, fields) = kept(|| info!("up again"));
    assert_eq!(plain(&told(level, fields)), "up again");
}
