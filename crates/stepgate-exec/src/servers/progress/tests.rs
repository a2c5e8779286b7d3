use serde_json::json;

use super::*;

/// A listener that collects what it is told.
fn listening() -> (Arc<Listener>, RunId, Arc<Mutex<Vec<CallProgress>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let run_id = RunId::new(uuid::Uuid::now_v7());
    let tell: Progress = Arc::new(move |said| heard.lock().unwrap().push(said));
    (Listener::new(run_id, tell), run_id, told)
}

fn hear(listener: &Listener, params: Value, now: Instant) -> bool {
    let Value::Object(params) = params else { panic!("parameters are an object") };
    listener.hear(&params, now)
}

#[test]
fn what_a_tool_says_is_told_with_everything_that_it_says() {
    let (listener, run_id, told) = listening();
    let now = Instant::now();
    assert!(hear(&listener, json!({ "progress": -1 }), now));
    assert!(hear(&listener, json!({ "progress": 0.5, "total": null, "message": null }), now));
    assert!(hear(&listener, json!({ "progress": 1, "total": 2.5, "message": "half" }), now));
    let said = |progress, total, message: Option<&str>| CallProgress {
        run_id,
        progress,
        total,
        message: message.map(str::to_owned),
    };
    let expected =
        [said(-1.0, None, None), said(0.5, None, None), said(1.0, Some(2.5), Some("half"))];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[test]
fn what_cannot_be_so_is_dropped_and_changes_nothing() {
    let (listener, _, told) = listening();
    let now = Instant::now();
    assert!(hear(&listener, json!({ "progress": 5 }), now));
    for nonsense in [
        json!({}),
        json!({ "progress": 5 }),
        json!({ "progress": 4.9 }),
        json!({ "progress": -1e300 }),
        json!({ "progress": "6" }),
        json!({ "progress": null }),
        json!({ "progress": 6, "total": "10" }),
        json!({ "progress": 6, "message": ["x"] }),
    ] {
        assert!(!hear(&listener, nonsense.clone(), now), "{nonsense}");
    }
    assert!(hear(&listener, json!({ "progress": 5.1 }), now));
    assert_eq!(told.lock().unwrap().len(), 2);
}

#[test]
fn a_message_is_told_up_to_the_limit_and_ends_with_a_whole_character() {
    let (listener, _, told) = listening();
    let max = PROGRESS_MESSAGE_BYTES_MAX;
    let rows = [
        "a".repeat(max),
        "a".repeat(max + 1),
        "ä".repeat(max),
        format!("{}ä", "a".repeat(max - 1)),
    ];
    for (number, message) in rows.iter().enumerate() {
        assert!(hear(&listener, json!({ "progress": number, "message": message }), Instant::now()));
    }
    let lengths: Vec<_> =
        told.lock().unwrap().iter().map(|said| said.message.as_ref().unwrap().len()).collect();
    assert_eq!(lengths, [max, max, max, max - 1]);
}

#[test]
fn only_so_much_is_told_in_a_second_and_then_again() {
    let (listener, _, told) = listening();
    let begin = Instant::now() + Duration::from_secs(10);
    let at = |ms: u64| begin + Duration::from_millis(ms);
    let max = u64::from(PROGRESS_PER_SECOND_MAX);
    for number in 0..max {
        assert!(hear(&listener, json!({ "progress": number }), at(number)));
    }
    assert!(!hear(&listener, json!({ "progress": 1000 }), at(999)));
    assert!(hear(&listener, json!({ "progress": 100 }), at(1000)));
    assert_eq!(told.lock().unwrap().len() as u64, max + 1);
}
