//! Erasable arguments: kept apart from the journal, found, erased, and what `verify` says of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use stepgate_core::erasable::{self, ErasableTarget, Found};
use stepgate_core::event::EventType;
use stepgate_core::hold::{self, HoldOrder, HoldTarget};
use stepgate_core::ids::RunId;
use stepgate_core::step::Answer;
use stepgate_core::verify;
use stepgate_store::{MemoryStore, SqliteStore};

use super::{House, VOLUME, operator};
use crate::gate::{DenyAll, agent};

const WORDS: &str = "correct horse";

/// A house whose loudspeaker has an erasable pin.
fn house() -> House {
    let house = House::new();
    house.bench.change(VOLUME, |tool| tool.erasable = vec!["pin".into()]);
    house
}

fn run(answer: &Answer) -> RunId {
    answer.run_id
}

/// A run that is over, with these erasable words.
async fn over(house: &House, number: u32, words: &str) -> RunId {
    let (answer, approval_id) = house.ask(number, json!({ "volume": 20, "pin": words })).await;
    house.approve(approval_id).await.unwrap();
    run(&answer)
}

/// The erasable arguments of a run, where there are some.
async fn kept(house: &House, run_id: RunId) -> Option<Value> {
    let row = house.fixture.gate.store.erasable(run_id).await.unwrap()?;
    Some(Value::Object(row.arguments().unwrap().unwrap()))
}

async fn problems(house: &House) -> Vec<String> {
    let report = verify::verify(&*house.fixture.gate.store, &[], |_| {}).await.unwrap();
    report.problems.into_iter().map(|it| format!("{}: {}", it.place, it.what)).collect()
}

async fn erase(house: &House, target: ErasableTarget) -> Found {
    erasable::erase(&house.fixture.gate, &target, "asked to", &operator()).await.unwrap()
}

#[tokio::test]
async fn an_erasable_argument_is_kept_apart_and_the_chain_verifies_before_and_after() {
    let house = house();
    let run_id = over(&house, 1, WORDS).await;
    assert_eq!(house.bench.sent()[0].args, json!({ "volume": 20, "pin": WORDS }));
    assert_eq!(kept(&house, run_id).await, Some(json!({ "pin": WORDS })));
    let dossier = house.fixture.gate.store.dossier(run_id).await.unwrap().unwrap();
    let first = &dossier.events[0].event;
    assert_eq!(first.event_type, EventType::ErasableStored);
    assert_eq!(first.payload["arguments"], json!(["pin"]));
    assert!(!dossier.run.input_json.unwrap().contains(WORDS));
    assert_eq!(problems(&house).await, Vec::<String>::new());
    let erased = erase(&house, ErasableTarget::Run(run_id)).await;
    assert_eq!(erased, Found { runs: vec![run_id], ..Found::default() });
    assert_eq!(kept(&house, run_id).await, None);
    assert_eq!(problems(&house).await, Vec::<String>::new());
    let (event, said) =
        erasable::erasure_of(&*house.fixture.gate.store, run_id).await.unwrap().unwrap();
    assert_eq!((said.erased_by, said.reason.as_str()), (operator(), "asked to"));
    assert_eq!(said.runs, BTreeSet::from([run_id]));
    assert_eq!(event.event_type, EventType::ErasableErased);
    // There is nothing left to erase.
    assert_eq!(erase(&house, ErasableTarget::Run(run_id)).await, Found::default());
}

#[tokio::test]
async fn a_denied_call_keeps_its_arguments_and_a_refused_proposal_keeps_none() {
    let mut house = house();
    house.fixture.gate.policy = Arc::new(DenyAll);
    let denied = house.set_volume(1, json!({ "volume": 20, "pin": WORDS })).await;
    assert_eq!(kept(&house, run(&denied)).await, Some(json!({ "pin": WORDS })));
    let refused = house.set_volume(2, json!({ "volume": "loud", "pin": WORDS })).await;
    assert_eq!(kept(&house, run(&refused)).await, None);
    let without = house.set_volume(3, json!({ "volume": 20 })).await;
    assert_eq!(kept(&house, run(&without)).await, None);
    house.verified().await;
}

#[tokio::test]
async fn runs_are_found_by_what_their_arguments_contain_by_session_and_by_principal() {
    let house = house();
    let first = over(&house, 1, "write to Alice now").await;
    let second = over(&house, 2, "write to Bob").await;
    let store = &*house.fixture.gate.store;
    let found = async |target: ErasableTarget| erasable::find(store, &target).await.unwrap().runs;
    assert_eq!(found(ErasableTarget::Containing("Alice".into())).await, [first]);
    assert_eq!(found(ErasableTarget::Containing("alice".into())).await, []);
    assert_eq!(found(ErasableTarget::Containing("write to".into())).await, [first, second]);
    let session_id = store.dossier(first).await.unwrap().unwrap().run.arrival.session_id;
    assert_eq!(found(ErasableTarget::Session(session_id)).await, [first, second]);
    assert_eq!(found(ErasableTarget::Principal(agent())).await, [first, second]);
    assert_eq!(found(ErasableTarget::Principal(operator())).await, []);
    let erased = erase(&house, ErasableTarget::Containing("Bob".into())).await;
    assert_eq!(erased.runs, [second]);
    assert_eq!(found(ErasableTarget::Principal(agent())).await, [first]);
    house.verified().await;
}

#[tokio::test]
async fn a_hold_and_an_open_step_keep_their_arguments() {
    let house = house();
    let held = over(&house, 1, WORDS).await;
    let (open, approval_id) = house.ask(2, json!({ "volume": 20, "pin": WORDS })).await;
    let free = over(&house, 3, WORDS).await;
    let order = HoldOrder { held_by: operator(), note: None, target: HoldTarget::Run(held) };
    hold::make(&house.fixture.gate, order).await.unwrap();
    let erased = erase(&house, ErasableTarget::Principal(agent())).await;
    let expected =
        Found { runs: vec![free], held: vec![held], open: vec![run(&open)], unreadable: vec![] };
    assert_eq!(erased, expected);
    house.approve(approval_id).await.unwrap();
    assert_eq!(house.bench.sent().pop().unwrap().args["pin"], WORDS);
    assert_eq!(kept(&house, held).await, Some(json!({ "pin": WORDS })));
    house.verified().await;
}

/// Rows that were changed, deleted or added behind the gateway's back.
#[tokio::test]
async fn changed_lost_and_added_arguments_show() {
    for (sql, expected) in [
        (
            "UPDATE erasable_args SET args = CAST('{\"pin\":\"other\"}' AS BLOB)",
            "not those of the run",
        ),
        ("UPDATE erasable_args SET args = CAST('{\"volume\":20}' AS BLOB)", "not those of the run"),
        ("UPDATE erasable_args SET args = x'00'", "no JSON object"),
        ("UPDATE erasable_args SET session_id = tool_run_id", "session_id does not follow"),
        ("UPDATE erasable_args SET tool_run_id = session_id", "there is no such run"),
        ("DELETE FROM erasable_args", "no event says that they were erased"),
        (
            "INSERT INTO erasable_args (tool_run_id, session_id, args)
             SELECT tool_run_id, session_id, CAST('{}' AS BLOB) FROM tool_runs
             WHERE tool_run_id NOT IN (SELECT tool_run_id FROM erasable_args)",
            "no event says that they were stored",
        ),
    ] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("stepgate.db");
        let open = || Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
        let mut house = house();
        house.fixture.gate.store = open();
        over(&house, 1, WORDS).await;
        let plain = house.set_volume(2, json!({ "volume": 20 })).await;
        assert!(kept(&house, run(&plain)).await.is_none());
        house.fixture.gate.store = Arc::new(MemoryStore::new());
        let stranger = rusqlite::Connection::open(&path).unwrap();
        stranger.execute_batch("DROP TRIGGER erasable_args_no_update").unwrap();
        stranger.execute_batch(sql).unwrap();
        drop(stranger);
        house.fixture.gate.store = open();
        let found = problems(&house).await;
        assert!(found.iter().any(|it| it.contains(expected)), "{sql}: {found:?}");
    }
}

/// A run whose row cannot be read keeps its arguments, and no other run's.
#[tokio::test]
async fn a_damaged_run_does_not_keep_others_from_being_erased() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("stepgate.db");
    let open = || Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
    let mut house = house();
    house.fixture.gate.store = open();
    let (damaged, sound) = (over(&house, 1, WORDS).await, over(&house, 2, WORDS).await);
    house.fixture.gate.store = Arc::new(MemoryStore::new());
    let stranger = rusqlite::Connection::open(&path).unwrap();
    let names: Vec<String> = {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'trigger'";
        let mut names = stranger.prepare(sql).unwrap();
        names.query_map([], |row| row.get(0)).unwrap().flatten().collect()
    };
    for name in names.iter().filter(|name| name.starts_with("tool_runs_")) {
        stranger.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    let changed = stranger
        .execute("UPDATE tool_runs SET ts = 'never' WHERE tool_run_id = ?1", [damaged.to_string()]);
    assert_eq!(changed, Ok(1));
    drop(stranger);
    house.fixture.gate.store = open();
    let found = erase(&house, ErasableTarget::Containing(WORDS.into())).await;
    let expected = Found { runs: vec![sound], unreadable: vec![damaged], ..Found::default() };
    assert_eq!(found, expected);
    let told = problems(&house).await;
    assert!(told.iter().any(|it| it.contains("column ts")), "{told:?}");
}

/// Arguments that come back after they were erased, as from an older backup.
#[tokio::test]
async fn arguments_that_are_put_back_after_their_erasure_show() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("stepgate.db");
    let open = || Arc::new(SqliteStore::open(&path, Default::default()).unwrap());
    let mut house = house();
    house.fixture.gate.store = open();
    let run_id = over(&house, 1, WORDS).await;
    erase(&house, ErasableTarget::Run(run_id)).await;
    assert_eq!(problems(&house).await, Vec::<String>::new());
    house.fixture.gate.store = Arc::new(MemoryStore::new());
    let stranger = rusqlite::Connection::open(&path).unwrap();
    let back = "INSERT INTO erasable_args (tool_run_id, session_id, args)
                SELECT tool_run_id, session_id, CAST('{\"pin\":\"correct horse\"}' AS BLOB)
                FROM tool_runs";
    stranger.execute_batch(back).unwrap();
    drop(stranger);
    house.fixture.gate.store = open();
    let found = problems(&house).await;
    assert!(found.len() == 1 && found[0].contains("were erased, and are there"), "{found:?}");
}
