//! Models that misbehave, approvals in the middle, and crashes at every write.

use std::sync::Arc;

use serde_json::{Value, json};
use stepgate_agent::cancel::{Cancelled, cancel, cancelled};
use stepgate_agent::envelope::ToolCall;
use stepgate_agent::limits::ANSWER_BYTES_MAX;
use stepgate_agent::model::{Completion, Message, ModelError};
use stepgate_agent::ports::{Progress, Waiting};
use stepgate_agent::response::Response;
use stepgate_agent::stop::Stop;
use stepgate_agent::turn::TurnId;
use stepgate_agent::view::{Standing, view};
use stepgate_core::gate::Fault;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{
    Policy, PolicyDecision, PolicyRequest, PolicyVerdict, RunQuery, Runs, Store,
};
use stepgate_core::recover::{self, Scope};
use stepgate_core::step::{self, Person};
use stepgate_core::verify;
use stepgate_store::MemoryStore;
use stepgate_store::faulty::{Faults, FaultyStore, StopAt};
use tempfile::TempDir;

use crate::desk::{
    Desk, Ear, Said, after, asks, hello, principal, results, says, with_tools, write,
};

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { tool_call_id: id.into(), name: name.into(), arguments_json: arguments.into() }
}

fn saying(calls: Vec<ToolCall>) -> Said {
    Ok(Completion { model: "m".into(), calls, ..Completion::default() })
}

#[tokio::test]
async fn an_answer_that_cannot_be_used_ends_the_turn_and_runs_nothing() {
    let good = || call("c1", "WRITE_FILE", &write("a.txt").to_string());
    let rows: Vec<(&str, Said)> = vec![
        ("says nothing", saying(Vec::new())),
        ("says nothing", says(" ")),
        ("no id", saying(vec![good(), call("", "WRITE_FILE", "{}")])),
        ("no id", saying(vec![call(&"i".repeat(257), "WRITE_FILE", "{}")])),
        ("used in this turn before", saying(vec![good(), good()])),
        ("was not offered", saying(vec![good(), call("c2", "DELETE_FILE", "{}")])),
        ("was not offered", saying(vec![call("c2", "write_file", "{}")])),
        ("not strict JSON: SYNTAX", saying(vec![good(), call("c2", "WRITE_FILE", "{")])),
        ("not strict JSON: SYNTAX", saying(vec![call("c2", "WRITE_FILE", "{}, \"id\": \"x\"")])),
        ("not strict JSON: SYNTAX", saying(vec![call("c2", "WRITE_FILE", "")])),
        ("DUPLICATE_KEY", saying(vec![call("c2", "WRITE_FILE", r#"{"path":"a","path":"b"}"#)])),
        ("not an object", saying(vec![call("c2", "WRITE_FILE", "[]")])),
        (
            "more than 32 calls",
            saying((0..33).map(|n| call(&n.to_string(), "READ_FILE", "{}")).collect()),
        ),
        ("longer than", says(&"x".repeat(ANSWER_BYTES_MAX + 1))),
        ("is not one", Err(ModelError::Invalid("the body is not one".into()))),
    ];
    for (expected, said) in rows {
        let desk = Desk::new([said]);
        let answer = desk.ask("k1", hello("go")).await;
        let Err(Stop::Invoke(result)) = &answer else { panic!("{expected}: {answer:?}") };
        assert_eq!(result.errors[0].code, "MODEL_OUTPUT_INVALID", "{expected}");
        assert!(result.errors[0].message.contains(expected), "{expected}: {result:?}");
        assert!(!desk.has("a.txt"), "{expected}");
        assert_eq!(desk.ask("k1", hello("go")).await, answer, "it is recorded");
        assert_eq!(desk.times_asked(), 1);
    }
}

/// What the turn of this key has to be followed by.
async fn failed(desk: &Desk, key: &str) -> Response {
    let turn = TurnId::of(&principal(), key);
    let (session_id, standing) = view(&desk.agent, turn).await.unwrap().unwrap();
    assert!(matches!(standing, Standing::Failed(_)), "{standing:?}");
    Response {
        session_id: Some(session_id.to_string()),
        turn_id: Some(turn.to_string()),
        ..Response::default()
    }
}

fn user(text: &str) -> Message {
    Message::User { text: text.into(), images: Vec::new() }
}

#[tokio::test]
async fn a_turn_that_failed_can_be_followed_and_the_model_is_told_what_it_did() {
    let rows = [call("c2", "launch", "{}"), call("c1", "READ_FILE", "{}")];
    for bad in rows {
        let calls = [("c1", "WRITE_FILE", write("a.txt")), ("c9", "READ_FILE", json!({}))];
        let desk = Desk::new([asks(&calls), saying(vec![bad]), says("better")]);
        assert_eq!(desk.refused("k1", hello("go")).await, ["MODEL_OUTPUT_INVALID"]);
        let last = failed(&desk, "k1").await;
        desk.ask("k2", after(&last, "go on")).await.unwrap();
        let told = desk.told();
        let [system, go, asked, wrote, read, on] = &told[..] else { panic!("{told:?}") };
        assert_eq!(
            [system, go, on],
            [&Message::System("be brief".into()), &user("go"), &user("go on")]
        );
        let both = asks(&calls).unwrap().calls;
        assert_eq!(asked, &Message::Assistant { text: None, calls: both });
        for (message, id, outcome) in [(wrote, "c1", "SUCCESS"), (read, "c9", "VALIDATION_ERROR")] {
            let Message::Tool { tool_call_id, content } = message else { panic!("{message:?}") };
            let response: Value = serde_json::from_str(content.lines().next().unwrap()).unwrap();
            assert_eq!((tool_call_id.as_str(), &response["outcome"]), (id, &json!(outcome)));
            assert_eq!(content.contains("correct the arguments"), outcome != "SUCCESS");
        }
    }
}

#[tokio::test]
async fn calls_of_a_failed_turn_that_nobody_made_are_not_told() {
    let round = |n: usize| asks(&[(&*format!("c{n}"), "WRITE_FILE", write(&format!("{n}.txt")))]);
    let mut desk = Desk::new([round(1), round(2), says("sorry")]);
    desk.agent.limits.rounds_max = 2;
    assert_eq!(desk.refused("k1", hello("go")).await, ["ROUNDS_EXHAUSTED"]);
    let last = failed(&desk, "k1").await;
    desk.ask("k2", after(&last, "again")).await.unwrap();
    let told = desk.told();
    let [_, _, asked, Message::Tool { tool_call_id, .. }, last] = &told[..] else {
        panic!("{told:?}")
    };
    let first = round(1).unwrap().calls;
    assert_eq!(asked, &Message::Assistant { text: None, calls: first });
    assert_eq!((tool_call_id.as_str(), last), ("c1", &user("again")));
}

#[tokio::test]
async fn a_model_that_is_away_is_asked_again_by_the_same_request() {
    let rows = [
        (ModelError::TimedOut, "MODEL_TIMED_OUT"),
        (ModelError::Unavailable("503".into()), "MODEL_UNAVAILABLE"),
        (ModelError::Refused("401".into()), "MODEL_REFUSED"),
    ];
    for (error, code) in rows {
        let calls = [("c1", "WRITE_FILE", write("a.txt"))];
        let desk = Desk::new([asks(&calls), Err(error), says("done")]);
        assert_eq!(desk.refused("k1", hello("go")).await, [code]);
        let done = desk.ask("k1", hello("go")).await.unwrap();
        assert_eq!(done.response.primary_output_text.as_deref(), Some("done"));
        let runs = desk.agent.gate.store.runs(RunQuery { limit: 10, ..RunQuery::default() }).await;
        assert_eq!(runs.unwrap().len(), 1, "the call was made once");
    }
}

#[tokio::test]
async fn a_model_that_loops_is_stopped_after_eight_rounds() {
    let round = |n: usize| asks(&[(&*format!("c{n}"), "WRITE_FILE", write(&format!("{n}.txt")))]);
    let desk = Desk::new((1..=9).map(round));
    let answer = desk.ask("k1", hello("go")).await;
    let Err(Stop::Invoke(result)) = &answer else { panic!("{answer:?}") };
    assert_eq!(result.errors[0].code, "ROUNDS_EXHAUSTED");
    assert_eq!(desk.times_asked(), 8);
    assert!(desk.has("7.txt"));
    assert!(!desk.has("8.txt"), "nobody would be told");
    assert_eq!(desk.ask("k1", hello("go")).await, answer, "it is recorded");
}

#[tokio::test]
async fn eight_rounds_are_enough_where_the_eighth_is_the_answer() {
    let round = |n: usize| asks(&[(&*format!("c{n}"), "WRITE_FILE", write(&format!("{n}.txt")))]);
    let desk = Desk::new((1..=7).map(round).chain([says("done")]));
    assert!(desk.ask("k1", hello("go")).await.is_ok());
}

#[tokio::test]
async fn an_eighth_answer_with_calls_of_both_kinds_still_reaches_the_caller() {
    let round = |n: usize| asks(&[(&*format!("c{n}"), "WRITE_FILE", write(&format!("{n}.txt")))]);
    let both = asks(&[("s", "WRITE_FILE", write("8.txt")), ("c", "pick", json!({}))]);
    let desk = Desk::new((1..=7).map(round).chain([both, says("done")]));
    let calls = desk.ask("k1", with_tools(hello("go"), &["pick"])).await.unwrap().response;
    assert_eq!(calls.kind, "client_tool_continuation");
    assert!(desk.has("8.txt"));
    let done = desk.ask("k2", results(&calls, &[("c", "pick", "1")])).await.unwrap();
    assert_eq!(done.response.primary_output_text.as_deref(), Some("done"), "rounds count anew");
}

#[tokio::test]
async fn a_conversation_that_is_too_long_says_so_and_its_turn_is_over() {
    let mut desk = Desk::new([says("one"), says("two"), says("three")]);
    desk.agent.limits.turns_max = 1;
    let first = desk.ask("k1", hello("a")).await.unwrap().response;
    let second = desk.ask("k2", after(&first, "b")).await.unwrap().response;
    let answer = desk.ask("k3", after(&second, "c")).await;
    assert_eq!(desk.refused("k3", after(&second, "c")).await, ["CONVERSATION_TOO_LONG"]);
    failed(&desk, "k3").await;
    desk.agent.limits.turns_max = 2;
    assert_eq!(desk.ask("k3", after(&second, "c")).await, answer, "it is recorded");
    desk.agent.limits.turns_max = 1;
    desk.agent.limits.prompt_bytes_max = "be brief".len() + 3;
    assert_eq!(desk.refused("k4", hello("four")).await, ["CONVERSATION_TOO_LONG"]);
    failed(&desk, "k4").await;
    assert!(desk.ask("k5", hello("now")).await.is_ok(), "another session begins anew");
}

#[tokio::test]
async fn results_that_no_model_can_be_told_end_the_turn() {
    let round = |n: usize| {
        let path = json!({ "path": "/sandbox/long.txt" });
        asks(&[(&*format!("c{n}"), "READ_FILE", path)])
    };
    let mut desk = Desk::new([round(1), round(2), says("never")]);
    std::fs::write(desk.directory.path().join("long.txt"), "x".repeat(3000)).unwrap();
    desk.agent.limits.prompt_bytes_max = 5000;
    let answer = desk.ask("k1", hello("go")).await;
    assert_eq!(desk.refused("k1", hello("go")).await, ["CONVERSATION_TOO_LONG"]);
    assert_eq!(desk.ask("k1", hello("go")).await, answer, "it is recorded");
    assert_eq!(desk.times_asked(), 2);
    let last = failed(&desk, "k1").await;
    assert_eq!(desk.refused("k2", after(&last, "on")).await, ["CONVERSATION_TOO_LONG"]);
    desk.agent.limits.prompt_bytes_max = 50_000;
    desk.ask("k3", after(&last, "on")).await.unwrap();
    assert_eq!(desk.told().len(), 7, "what was read is told where there is room");
}

/// Asks a person about everything.
pub(crate) struct AskAlways;

impl Policy for AskAlways {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let verdict = PolicyVerdict::RequireApproval("everything is asked about".into());
        PolicyDecision { verdict, ..BuiltInRule.decide(request) }
    }
}

#[tokio::test]
async fn a_turn_waits_for_a_person_and_goes_on_as_they_decide() {
    for (granted, outcome) in [(true, "SUCCESS"), (false, "DENIED")] {
        let calls = [("c1", "WRITE_FILE", write("a.txt"))];
        let desk = Desk::new([asks(&calls), says("done")]).with_policy(AskAlways);
        let gate = desk.agent.gate.clone();
        let ear = Arc::new(Ear::default());
        let heard = Arc::clone(&ear);
        let asking =
            tokio::spawn(async move { (desk.ask_heard("k1", hello("go"), &heard).await, desk) });
        let waiting = loop {
            let waiting = ear.0.lock().unwrap().iter().find_map(waiting_of);
            match waiting {
                Some(waiting) => break waiting,
                None => tokio::task::yield_now().await,
            }
        };
        let approver_id = stepgate_core::ids::PrincipalId::parse("operator").unwrap();
        let person = match granted {
            true => Person::Approves { approver_id, note: None },
            false => Person::Denies { approver_id, note: None },
        };
        step::resume(&gate, waiting.approval_id.unwrap(), person).await.unwrap();
        let (done, desk) = asking.await.unwrap();
        let results = done.unwrap().response.tool_results.unwrap();
        let response: Value =
            serde_json::from_str(results[0].result_json.as_ref().unwrap()).unwrap();
        assert_eq!(response["outcome"], outcome);
        assert_eq!(desk.has("a.txt"), granted);
    }
}

/// What a turn is that waits for a person, and the desk that it is asked at.
async fn until_waiting(ear: &Ear) -> Waiting {
    loop {
        let waiting = ear.0.lock().unwrap().iter().find_map(waiting_of);
        match waiting {
            Some(waiting) => return waiting,
            None => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn a_turn_that_is_cancelled_while_a_person_is_asked_tells_the_model_what_became_of_the_call()
{
    let calls = [("c1", "WRITE_FILE", write("a.txt"))];
    let desk = Desk::new([asks(&calls), says("I know")]).with_policy(AskAlways);
    let (agent, ear) = (desk.agent.clone(), Arc::new(Ear::default()));
    let heard = Arc::clone(&ear);
    let asking =
        tokio::spawn(async move { (desk.ask_heard("k1", hello("go"), &heard).await, desk) });
    let waiting = until_waiting(&ear).await;
    let turn = TurnId::of(&principal(), "k1");
    assert_eq!(cancel(&agent, &principal(), turn).await, Ok(Cancelled::Done));
    let approver_id = stepgate_core::ids::PrincipalId::parse("operator").unwrap();
    let grants = Person::Approves { approver_id, note: None };
    step::resume(&agent.gate, waiting.approval_id.unwrap(), grants).await.unwrap();
    let (ended, desk) = asking.await.unwrap();
    assert_eq!(ended, Err(Stop::Invoke(cancelled())), "what works on the turn learns of it");
    let last = failed(&desk, "k1").await;
    desk.ask("k2", after(&last, "what happened?")).await.unwrap();
    let told = desk.told();
    let [_, _, asked, Message::Tool { tool_call_id, content }, _] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(asked, &Message::Assistant { text: None, calls: asks(&calls).unwrap().calls });
    let response: Value = serde_json::from_str(content).unwrap();
    assert_eq!((tool_call_id.as_str(), &response["outcome"]), ("c1", &json!("SUCCESS")));
}

pub(crate) fn waiting_of(progress: &Progress) -> Option<Waiting> {
    match progress {
        Progress::Waiting(waiting) => Some(waiting.clone()),
        Progress::Opened { .. }
        | Progress::Text(_)
        | Progress::Answered
        | Progress::Calling(_)
        | Progress::Called(_) => None,
    }
}

/// What a whole conversation says: three requests, with calls of both kinds.
fn conversation() -> Vec<Said> {
    let first = [
        ("s1", "WRITE_FILE", write("a.txt")),
        ("s2", "RENAME_FILE", json!({"source": "/sandbox/a.txt", "destination": "/sandbox/b.txt"})),
        ("c1", "pick", json!({})),
    ];
    let second = [("s3", "WRITE_FILE", write("c.txt"))];
    vec![asks(&first), asks(&second), says("done"), says("and more")]
}

/// The three requests, up to the first fault.
async fn converse(desk: &Desk) -> Result<Vec<String>, Stop> {
    let opened = desk.ask("k1", with_tools(hello("go"), &["pick"])).await?.response;
    let continued = desk.ask("k2", results(&opened, &[("c1", "pick", "1")])).await?.response;
    let followed = desk.ask("k3", after(&continued, "more")).await?.response;
    let text = |response| serde_json::to_string(&response).unwrap();
    Ok([opened, continued, followed].map(text).to_vec())
}

/// What of the texts does not depend on when they were made: session ids are fresh.
fn timeless(texts: &[String]) -> Vec<String> {
    texts
        .iter()
        .map(|text| {
            let mut value: Value = serde_json::from_str(text).unwrap();
            value["sessionId"] = json!("session");
            value.to_string()
        })
        .collect()
}

/// A model answers the same question alike: what was made durable of its answers is not asked again.
fn rest_of_the_conversation(answers: usize) -> Vec<Said> {
    conversation().split_off(answers)
}

#[tokio::test]
async fn a_conversation_that_is_stopped_at_any_write_ends_as_if_it_had_not_been() {
    let whole = Faults::new(StopAt::Never);
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Arc::clone(&whole)));
    let desk = Desk::with_store(store, conversation());
    let expected = timeless(&converse(&desk).await.unwrap());
    let writes = whole.writes();
    assert!(writes > 15, "{writes}");
    for number in 1..=writes {
        for stop in [StopAt::Before(number), StopAt::After(number)] {
            stopped_once(stop, &expected).await;
        }
    }
    println!("stops that changed nothing: {}", 2 * writes);
}

async fn stopped_once(stop: StopAt, expected: &[String]) {
    let (store, faults) = (MemoryStore::new(), Faults::new(stop));
    let directory = Arc::new(TempDir::new().unwrap());
    let faulty = Arc::new(FaultyStore::new(store.clone(), Arc::clone(&faults)));
    let desk = Desk::at(Arc::clone(&directory), faulty, 0, conversation());
    let answer = converse(&desk).await;
    assert!(matches!(answer, Err(Stop::Fault(Fault::Store(_)))), "{stop:?}: {answer:?}");
    assert!(faults.has_crashed());
    drop(desk);

    let reopened = store.reopened();
    let said = answers_in(&reopened).await;
    let rest = rest_of_the_conversation(said);
    let desk = Desk::at(directory, Arc::new(reopened.clone()), 1_000_000, rest);
    recover::recover(&desk.agent.gate, Scope::Core).await.unwrap();
    let texts = converse(&desk).await.unwrap_or_else(|stop_now| panic!("{stop:?}: {stop_now:?}"));
    assert_eq!(timeless(&texts), expected, "{stop:?}");
    assert!(desk.has("b.txt") && desk.has("c.txt") && !desk.has("a.txt"), "{stop:?}");
    let query = RunQuery { limit: 100, ..RunQuery::default() };
    assert_eq!(reopened.runs(query).await.unwrap().len(), 3, "{stop:?}: each call is one run");
    let report = verify::verify(&reopened, &[], |_| {}).await.unwrap();
    assert_eq!(report.problems, [], "{stop:?}");
}

/// How many answers of the model are durable.
async fn answers_in(store: &MemoryStore) -> usize {
    let events = store.loose_events().await.unwrap();
    let is_answer = stepgate_core::event::EventType::TurnAnswered;
    events.iter().filter(|linked| linked.event.event_type == is_answer).count()
}

#[tokio::test]
async fn of_two_who_work_on_the_same_turn_one_goes_on() {
    let store = MemoryStore::new();
    let directory = Arc::new(TempDir::new().unwrap());
    let desk = |said: Vec<Said>, ticks| {
        Desk::at(Arc::clone(&directory), Arc::new(store.clone()), ticks, said)
    };
    let one = desk(vec![says("one")], 0);
    let two = desk(vec![says("two")], 1_000_000);
    let (first, second) = tokio::join!(one.ask("k1", hello("go")), two.ask("k1", hello("go")));
    let answers = [first, second];
    let winners = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!(winners >= 1);
    for answer in &answers {
        if let Err(Stop::Invoke(result)) = answer {
            assert_eq!(result.errors[0].code, "TURN_IN_PROGRESS");
        }
    }
    let again = desk(Vec::new(), 2_000_000).ask("k1", hello("go")).await.unwrap();
    for won in answers.into_iter().filter_map(Result::ok) {
        assert_eq!(again.response, won.response, "there is one answer");
    }
}
