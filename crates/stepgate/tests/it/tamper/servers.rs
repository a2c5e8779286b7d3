//! Rows that only tool servers and operators leave behind: caps, redacted arguments, results that could
//! not be used or came too late, calls in doubt and what settled them, pins, policies and tokens.

use std::sync::Arc;

use serde_json::{Value, json};
use stepgate_core::digest::Digest;
use stepgate_core::event::{Event, EventType};
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::gate::Gate;
use stepgate_core::ids::{ArtifactId, PrincipalId, RunId};
use stepgate_core::late::{self, LateResult};
use stepgate_core::ports::{Failed, Said};
use stepgate_core::recover::{self, Scope};
use stepgate_core::run::{Status, Word};
use stepgate_core::step::{self, Person, Settlement};
use stepgate_core::tool::{Delivery, Mode};
use stepgate_store::sqlite::SqliteStore;
use tempfile::TempDir;

use crate::gate::{Fixture, proposal, submit};
use crate::older_keys::keep_in_effects;
use crate::spec_002::bench::{Behaviour, Bench, HomeRules};

const AGENDA: &str = "calendar.get_agenda";
const VOLUME: &str = "sonos.set_volume";
const DRAFT: &str = "mail.draft";

/// A database with every kind of them.
pub(super) async fn database() -> TempDir {
    let place = TempDir::new().unwrap();
    let store = SqliteStore::open(&place.path().join("stepgate.db"), Default::default()).unwrap();
    let mut fixture =
        Fixture::with_store(Arc::new(store)).with_policy(HomeRules { volume_max: Some(30) });
    let bench = Arc::new(Bench::default());
    bench.offer(AGENDA, Mode::ReadOnly, Delivery::Redispatch, Behaviour::Acts);
    bench.offer(VOLUME, Mode::ExecuteGated, Delivery::Ask, Behaviour::Acts);
    bench.offer(DRAFT, Mode::Draft, Delivery::Ask, Behaviour::StopsBefore);
    fixture.gate.tools = Arc::clone(&bench) as _;
    granted_with_a_cap(&fixture).await;
    unusable_results(&fixture, &bench).await;
    own_error(&fixture, &bench).await;
    bench.behave(VOLUME, Behaviour::ActsAndStops);
    settled_by_a_person(&fixture).await;
    still_in_doubt(&fixture).await;
    what_operators_did(&fixture.gate).await;
    drop(fixture);
    assert_eq!(keep_in_effects(&place.path().join("stepgate.db"), 2), 2);
    place
}

/// A run with a cap and a redacted argument, asked about and granted.
async fn granted_with_a_cap(fixture: &Fixture) {
    let (run_id, granted) = ask_and_grant(fixture, 20).await;
    assert!(granted.is_ok(), "{granted:?}");
    assert_eq!(status(fixture, run_id).await, Status::Ok);
}

async fn ask_and_grant(
    fixture: &Fixture,
    number: u32,
) -> (RunId, Result<step::Answer, step::Refused>) {
    let args = json!({ "volume": 50, "pin": "1234" });
    let asked = fixture.submit(proposal(number, VOLUME, args)).await;
    let approval = fixture.dossier(&asked).await.approval.unwrap();
    let note = Some("not so loud".to_owned());
    let person = Person::Approves { approver_id: operator(), note };
    (asked.run_id, step::resume(&fixture.gate, approval.approval_id, person).await)
}

/// A result that failed its schema, and one that came after the time was over.
async fn unusable_results(fixture: &Fixture, bench: &Bench) {
    let said = Said::Unusable(Digest::of_bytes(b"unusable"));
    let detail = Some("not as its schema says".to_owned());
    let failure = ExecutionFailure::OutputInvalid;
    let failed = Failed { failure, detail, said, in_doubt: false };
    bench.behave(AGENDA, Behaviour::Fails(failed));
    let answer = fixture.submit(proposal(21, AGENDA, json!({}))).await;
    assert_eq!(status(fixture, answer.run_id).await, Status::Error);
    bench.behave(AGENDA, Behaviour::Fails(ExecutionFailure::Timeout.into()));
    let answer = fixture.submit(proposal(22, AGENDA, json!({}))).await;
    assert_eq!(status(fixture, answer.run_id).await, Status::Timeout);
    come_late(&fixture.gate, answer.run_id).await;
}

/// What a tool said about its failure.
pub(super) const SAID: &str = r#"{"content":[{"type":"text","text":"no calendar today"}]}"#;

/// A tool that failed and said so.
async fn own_error(fixture: &Fixture, bench: &Bench) {
    let said = Said::Error(SAID.to_owned());
    let failed = Failed { said, ..ExecutionFailure::ToolFailed.into() };
    bench.behave(AGENDA, Behaviour::Fails(failed));
    let answer = fixture.submit(proposal(25, AGENDA, json!({}))).await;
    assert_eq!(status(fixture, answer.run_id).await, Status::Error);
}

/// A call in doubt whose result came late, and which an operator settled.
async fn settled_by_a_person(fixture: &Fixture) {
    let (run_id, stopped) = ask_and_grant(fixture, 23).await;
    assert!(stopped.is_err(), "{stopped:?}");
    come_late(&fixture.gate, run_id).await;
    let settlement = Settlement::Succeeded(Some(r#"{"volume":30}"#.into()));
    step::resolve(&fixture.gate, run_id, settlement, operator(), None).await.unwrap();
}

/// A call that stays in doubt, with a redacted argument and a late result.
async fn still_in_doubt(fixture: &Fixture) {
    let args = json!({ "volume": 40, "pin": "4321" });
    submit(&fixture.gate, proposal(24, DRAFT, args.clone())).await.unwrap_err();
    let notice = fixture.submit(proposal(24, DRAFT, args)).await;
    assert!(matches!(notice.word(), Word::Notice(_)));
    come_late(&fixture.gate, notice.run_id).await;
    assert!(fixture.dossier(&notice).await.sealed.is_some());
}

async fn come_late(gate: &Gate, run_id: RunId) {
    let result_digest = Digest::of_bytes(b"late");
    late::note(gate, LateResult { run_id, succeeded: true, result_digest }).await.unwrap();
}

/// The events of the system session, as the gateway writes them.
async fn what_operators_did(gate: &Gate) {
    let token_id = ArtifactId::new(gate.world.fresh_uuid());
    let digest = Digest::of_bytes(b"some");
    let token = json!({
        "token_id": token_id, "principal_id": "ci", "role": "auditor", "hash": digest,
    });
    let accepted =
        json!({ "accepted_by": operator(), "definition_digest": digest, "tool": VOLUME });
    let rows: [(EventType, Value); 4] = [
        (EventType::PolicyLoaded, json!({ "policy_hash": digest })),
        (EventType::ToolAccepted, accepted),
        (EventType::TokenCreated, token),
        (EventType::TokenRevoked, json!({ "token_id": token_id })),
    ];
    for (event_type, payload) in rows {
        let event = Event {
            event_id: ArtifactId::new(gate.world.fresh_uuid()),
            event_type,
            payload,
            run_id: None,
            sequence_number: 0,
            session_id: gate.system_session().await.unwrap().session_id,
            ts: gate.world.now(),
        };
        gate.store.append_event(event).await.unwrap();
    }
}

async fn status(fixture: &Fixture, run_id: RunId) -> Status {
    fixture.gate.store.dossier(run_id).await.unwrap().unwrap().run.status
}

fn operator() -> PrincipalId {
    PrincipalId::parse("operator").unwrap()
}

/// A call that was sent, without the entry that says so, would be sent a second time.
#[tokio::test]
async fn a_call_in_doubt_whose_last_entry_is_gone_is_found_and_never_sent() {
    let original = database().await;
    let tampered = super::Tampered::copy_of(original.path());
    let cut = "DELETE FROM journal WHERE position = (SELECT max(position) FROM journal)";
    assert_eq!(tampered.connect().execute(cut, []).unwrap(), 1);
    let problems = tampered.report(&[]).await.problems;
    assert!(problems.iter().any(|problem| problem.place.starts_with("journal")), "{problems:?}");
    let path = tampered.place.path().join("stepgate.db");
    let store = SqliteStore::open(&path, Default::default()).unwrap();
    let mut fixture =
        Fixture::with_store(Arc::new(store)).with_policy(HomeRules { volume_max: Some(30) });
    let bench = Arc::new(Bench::default());
    bench.offer(DRAFT, Mode::Draft, Delivery::Ask, Behaviour::Acts);
    fixture.gate.tools = Arc::clone(&bench) as _;
    let report = recover::recover(&fixture.gate, Scope::Servers).await.unwrap();
    assert_eq!((report.quarantined.len(), bench.sent()), (1, vec![]), "{report:?}");
}

/// The payload as it came, of a run with redacted arguments, stands in `sealed_payloads` until the run
/// is over: the one table whose rows go again. Its arguments are covered, because the run's row has
/// their digests. The rest is not, because nothing of it is used: neither what stands around the
/// arguments, nor a row's position, nor a row of a run that is over.
#[tokio::test]
async fn sealed_arguments_that_are_changed_or_gone_are_found() {
    let original = database().await;
    let secret = "CAST(replace(CAST(payload AS TEXT), '4321', '9999') AS BLOB)";
    let space = "CAST(CAST(payload AS TEXT) || ' ' AS BLOB)";
    let finished = "(SELECT tool_run_id FROM tool_runs WHERE status = 'ok' LIMIT 1)";
    let rows = [
        (format!("UPDATE sealed_payloads SET payload = {secret}"), true),
        ("UPDATE sealed_payloads SET payload = x'7b7d'".into(), true),
        ("UPDATE sealed_payloads SET tool_run_id = 'x'".into(), true),
        (format!("UPDATE sealed_payloads SET tool_run_id = {finished}"), true),
        ("DELETE FROM sealed_payloads".into(), true),
        (format!("UPDATE sealed_payloads SET payload = {space}"), false),
        ("UPDATE sealed_payloads SET position = position + 1".into(), false),
        (
            format!(
                "INSERT INTO sealed_payloads (tool_run_id, payload) VALUES ({finished}, x'00')"
            ),
            false,
        ),
    ];
    for (change, is_found) in rows {
        let tampered = super::Tampered::copy_of(original.path());
        assert_eq!(tampered.connect().execute(&change, []).unwrap(), 1, "{change}");
        let problems = tampered.report(&[]).await.problems;
        assert_eq!(!problems.is_empty(), is_found, "{change}: {problems:?}");
    }
}
