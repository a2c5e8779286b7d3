//! Grants and votes that were forged. The forger computes every digest and link of the system session
//! again, so only the runs that used a grant or needed a vote can contradict it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rusqlite::params;
use serde_json::{Value, json};
use stepgate_core::approvers::Required;
use stepgate_core::consent::{self, NewGrant};
use stepgate_core::digest::Digest;
use stepgate_core::ids::{ApprovalId, PrincipalId};
use stepgate_core::json::canonical;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{
    ApprovalNeed, Policy, PolicyDecision, PolicyRequest, PolicyVerdict, Sessions, Store,
};
use stepgate_core::session::{Head, Link, LinkKind, SessionKind};
use stepgate_core::step::{self, Person};
use stepgate_core::verify::{self, Problem};
use stepgate_store::sqlite::SqliteStore;
use tempfile::TempDir;

use super::{Tampered, fresh};
use crate::gate::{AskAlways, Fixture, proposal};

/// Asks for three people about everything.
struct AskThree;

impl Policy for AskThree {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let required = vec![Required { approvers: BTreeSet::new(), quorum: 3 }];
        let need = ApprovalNeed { reason: "three people".into(), required };
        let verdict = PolicyVerdict::RequireApproval(need);
        PolicyDecision { verdict, ..BuiltInRule.decide(request) }
    }
}

fn person(name: &str) -> PrincipalId {
    PrincipalId::parse(name).unwrap()
}

/// A database with a grant that was used twice, and an approval that three people gave together.
async fn database() -> TempDir {
    let place = TempDir::new().unwrap();
    let store = SqliteStore::open(&place.path().join("stepgate.db"), Default::default()).unwrap();
    let mut fixture = Fixture::with_store(Arc::new(store)).with_policy(AskAlways);
    let approval_id = ask(&fixture, 1).await;
    let approves = |name| Person::Approves { approver_id: person(name), note: None };
    step::resume(&fixture.gate, approval_id, approves("operator")).await.unwrap();
    let args = BTreeMap::new();
    let new = NewGrant { approval_id, args, uses_max: 2, life_ms: 60_000, note: None };
    consent::create_grant(&fixture.gate, &person("operator"), new).await.unwrap();
    for number in [2, 3] {
        assert_eq!(fixture.submit(write(number)).await.approval_id(), None);
    }
    fixture.gate.policy = Arc::new(AskThree);
    let approval_id = ask(&fixture, 4).await;
    for name in ["ada", "bob"] {
        consent::vote(&fixture.gate, approval_id, &person(name), None).await.unwrap();
    }
    let people = ["ada", "bob", "eve"].map(person).into();
    step::resume_with(&fixture.gate, approval_id, approves("eve"), &people).await.unwrap();
    place
}

fn write(number: u32) -> String {
    proposal(number, "WRITE_FILE", json!({ "path": "/sandbox/a.txt", "content": "x" }))
}

async fn ask(fixture: &Fixture, number: u32) -> ApprovalId {
    fixture.submit(write(number)).await.approval_id().unwrap()
}

/// Closes the gaps in the positions, and computes the links of the system session again, as a forger would.
async fn link_again(tampered: &Tampered) {
    let rank = "(SELECT count(*) FROM events AS other WHERE other.position <= events.position)";
    tampered.connect().execute(&format!("UPDATE events SET position = {rank}"), []).unwrap();
    let path = tampered.place.path().join("stepgate.db");
    let (session_id, events) = {
        let store = SqliteStore::open_read_only(&path).unwrap();
        let sessions = store.sessions().await.unwrap();
        let mut system = sessions.iter().filter(|session| session.kind == SessionKind::System);
        (system.next().unwrap().session_id, store.loose_events().await.unwrap())
    };
    let connection = tampered.connect();
    let mut head = Head::EMPTY;
    for event in events.iter().map(|linked| &linked.event) {
        let link = Link::after(&head, session_id, LinkKind::Event, None, Digest::of(event));
        let update = "UPDATE events SET link_number = ?1, link_prev = ?2, link_digest = ?3
                      WHERE event_id = ?4";
        let number = i64::try_from(link.number).unwrap();
        let (prev, digest) = (link.prev.to_string(), link.digest.to_string());
        let row = params![number, prev, digest, event.event_id.to_string()];
        assert_eq!(connection.execute(update, row).unwrap(), 1);
        head = link.head();
    }
    let update = "UPDATE sessions SET head_number = ?1, head_digest = ?2 WHERE kind = 'system'";
    let number = i64::try_from(head.number).unwrap();
    connection.execute(update, params![number, head.digest.to_string()]).unwrap();
}

/// `json_set` puts a new member last, wherever it belongs.
fn canonical_again(tampered: &Tampered) {
    let connection = tampered.connect();
    let select = "SELECT payload_json FROM events WHERE event_type = 'grant_created'";
    let Ok(text) = connection.query_row(select, [], |row| row.get::<_, String>(0)) else { return };
    let payload: Value = serde_json::from_str(&text).unwrap();
    let update = "UPDATE events SET payload_json = ?1 WHERE event_type = 'grant_created'";
    connection.execute(update, [canonical::text_of(&payload)]).unwrap();
}

/// The problems of a copy that these statements changed, whose system session was linked again.
async fn problems_after(original: &TempDir, statements: &[String]) -> Vec<Problem> {
    let tampered = Tampered::copy_of(original.path());
    for statement in statements {
        assert_eq!(tampered.connect().execute(statement, []).unwrap(), 1, "{statement}");
    }
    canonical_again(&tampered);
    link_again(&tampered).await;
    tampered.report(&[]).await.problems
}

const NO_GRANT: &str = "no grant permits the call";
const NO_VOTE: &str = "an approver has no vote";

#[tokio::test]
async fn a_grant_that_does_not_permit_its_uses_is_found_though_its_chain_is_whole() {
    let original = database().await;
    assert_eq!(problems_after(&original, &[]).await, []);
    // The second use was made some milliseconds after the first, which is the 3rd run.
    let use_of = |run: u32| {
        format!(
            "(SELECT journal.ts FROM journal JOIN tool_runs ON trace_id = tool_run_id
              WHERE artifact_type = 'supervisor_decision' AND tool_runs.position = {run})"
        )
    };
    let set = |path: &str, value: &str| {
        format!(
            "UPDATE events SET payload_json = json_set(payload_json, '$.{path}', {value})
             WHERE event_type = 'grant_created'"
        )
    };
    let rows = [
        ("DELETE FROM events WHERE event_type = 'grant_created'".to_owned(), 2),
        (
            format!(
                "UPDATE events SET event_id = '{}' WHERE event_type = 'grant_created'",
                fresh()
            ),
            2,
        ),
        (set("uses_max", "3"), 0),
        (set("uses_max", "1"), 1),
        (set("uses_max", "0"), 2),
        (set("expires_at", &use_of(3)), 1),
        (set("expires_at", &use_of(2)), 2),
        (set("principal_id", "'other'"), 2),
        (set("tool_name", "'READ_FILE'"), 2),
        (set("tool_server", "'elsewhere'"), 2),
        (set("tool_definition_digest", &format!("'{}'", Digest::ZERO)), 2),
        (set("executor_id", "'elsewhere'"), 2),
        (set("args.content.equals", "'y'"), 2),
        (set("args.more", "json('{\"equals\":1}')"), 2),
    ];
    for (change, uses) in rows {
        let problems = problems_after(&original, std::slice::from_ref(&change)).await;
        let expected = vec![NO_GRANT; uses];
        let found: Vec<_> = problems.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!(found, expected, "{change}: {problems:?}");
        assert!(problems.iter().all(|it| it.place.starts_with("journal of run")), "{problems:?}");
    }
}

#[tokio::test]
async fn a_vote_that_was_taken_away_is_found_though_its_chain_is_whole() {
    let original = database().await;
    let of = |name: &str| {
        format!("event_type = 'approval_voted' AND payload_json ->> 'approver_id' = '{name}'")
    };
    let set = |path: &str, value: &str| {
        let value = format!("json_set(payload_json, '$.{path}', '{value}')");
        format!("UPDATE events SET payload_json = {value} WHERE {}", of("bob"))
    };
    let rows = [
        (vec![format!("DELETE FROM events WHERE {}", of("ada"))], vec![NO_VOTE]),
        (vec![format!("DELETE FROM events WHERE {}", of("bob"))], vec![NO_VOTE]),
        (vec![set("approver_id", "mallory")], vec![NO_VOTE]),
        (vec![set("approver_id", "ada")], vec![NO_VOTE]),
        (vec![set("approval_id", &fresh().to_string())], vec![NO_VOTE]),
        (
            ["ada", "bob"].map(|it| format!("DELETE FROM events WHERE {}", of(it))).into(),
            vec![NO_VOTE],
        ),
        (vec![set("note", "fine")], vec![]),
    ];
    for (changes, expected) in rows {
        let problems = problems_after(&original, &changes).await;
        let found: Vec<_> = problems.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!(found, expected, "{changes:?}: {problems:?}");
    }
}

/// Its call and its end are in one commit, after that of the use: the OPEN link covers the use alone.
#[tokio::test]
async fn a_granted_action_that_touches_nothing_verifies() {
    let fixture = Fixture::new().with_policy(AskAlways);
    let finish = |number| proposal(number, "FINISH", json!({ "response": "done" }));
    let approval_id = fixture.submit(finish(1)).await.approval_id().unwrap();
    let approves = Person::Approves { approver_id: person("operator"), note: None };
    step::resume(&fixture.gate, approval_id, approves).await.unwrap();
    let args = BTreeMap::new();
    let new = NewGrant { approval_id, args, uses_max: 1, life_ms: 60_000, note: None };
    consent::create_grant(&fixture.gate, &person("operator"), new).await.unwrap();
    assert_eq!(fixture.submit(finish(2)).await.approval_id(), None);
    let report = verify::verify(&*fixture.gate.store, &[], |_| {}).await.unwrap();
    assert_eq!((report.problems, report.runs), (vec![], 2));
}

/// A forger who leaves the links as they were.
#[tokio::test]
async fn an_event_of_a_grant_that_was_put_in_changed_or_taken_out_is_found() {
    let original = database().await;
    let copied = |event_type: &str, what: &str| {
        format!(
            "INSERT INTO events (event_id, ts, session_id, tool_run_id, event_type, payload_json,
                                 sequence_number, link_number, link_prev, link_digest)
             SELECT '{}', ts, session_id, {what} FROM events
             WHERE event_type = '{event_type}' LIMIT 1",
            fresh()
        )
    };
    let linked = "payload_json, sequence_number, link_number, link_prev, link_digest";
    let unlinked = "payload_json, sequence_number, NULL, NULL, NULL";
    let rows = [
        (
            copied("grant_created", &format!("NULL, event_type, {linked}")),
            "digest of what it links",
        ),
        (copied("grant_created", &format!("NULL, event_type, {unlinked}")), "has no link"),
        (
            copied("grant_used", &format!("tool_run_id, event_type, {unlinked}")),
            "the use of a grant",
        ),
        (
            copied("tool_succeeded", &format!("tool_run_id, 'grant_used', {unlinked}")),
            "the use of a grant",
        ),
        (copied("approval_voted", &format!("NULL, event_type, {unlinked}")), "has no link"),
        (
            "UPDATE events SET payload_json = json_set(payload_json, '$.uses_max', 3)
             WHERE event_type = 'grant_created'"
                .to_owned(),
            "digest of what it links",
        ),
        ("DELETE FROM events WHERE event_type = 'grant_created'".to_owned(), "follows link"),
        (
            "DELETE FROM events WHERE position =
                 (SELECT max(position) FROM events WHERE event_type = 'grant_used')"
                .to_owned(),
            "the use of a grant",
        ),
        (
            format!(
                "UPDATE events SET event_id = '{}' WHERE position =
                     (SELECT max(position) FROM events WHERE event_type = 'grant_used')",
                fresh()
            ),
            "the use of a grant",
        ),
    ];
    for (change, expected) in rows {
        let tampered = Tampered::copy_of(original.path());
        assert_eq!(tampered.connect().execute(&change, []).unwrap(), 1, "{change}");
        let problems = tampered.report(&[]).await.problems;
        let is_named = problems.iter().any(|problem| problem.what.contains(expected));
        assert!(is_named, "{change}: {problems:?}");
    }
}
