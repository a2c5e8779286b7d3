//! Every check of `verify` by its own message. Most changes break several rules, and one of them would be enough to
//! find the change; here each rule must find it by itself, as it has to where the others were satisfied.

use serde_json::json;
use stepgate_core::digest::Digest;
use stepgate_core::verify::Problem;
use stepgate_store::sqlite::SqliteStore;
use tempfile::TempDir;

use super::{Tampered, database, fresh, report, servers};
use crate::gate::{Fixture, proposal};

/// Positions in `tool_runs` of the first database. The keys of the first six runs are in `effects`.
const DONE: u32 = 1;
const NOT_JSON: u32 = 4;
const APPROVED: u32 = 7;
const DENIED: u32 = 8;
const STOPPED: u32 = 11;
const WAITING: u32 = 12;

/// The run at a position.
fn run(position: u32) -> String {
    format!("(SELECT tool_run_id FROM tool_runs WHERE position = {position})")
}

/// The rows of a table that belong to a run.
fn of_run(table: &str, position: u32) -> String {
    let key = match table {
        "journal" | "checkpoints" | "effects" => "trace_id",
        _ => "tool_run_id",
    };
    format!("{key} = {}", run(position))
}

fn row(table: &str, position: u32, change: &str) -> String {
    format!("UPDATE {table} SET {change} WHERE {}", of_run(table, position))
}

fn gone(table: &str, position: u32) -> String {
    format!("DELETE FROM {table} WHERE {}", of_run(table, position))
}

/// A member of the record of a run.
fn record(position: u32, member: &str, value: &str) -> String {
    let change = format!("record = json_set(record, '$.{member}', {value})");
    row("records", position, &change)
}

/// An event without a link, after the last one.
fn event(position: u32, event_type: &str) -> String {
    format!(
        "INSERT INTO events (event_id, ts, session_id, tool_run_id, event_type, payload_json,
                             sequence_number)
         SELECT '{}', ts, session_id, tool_run_id, '{event_type}', '{{}}', 1
         FROM tool_runs WHERE position = {position}",
        fresh()
    )
}

/// A second binding of the key of a run, for a trace.
fn effect(position: u32, trace_id: &str) -> String {
    format!(
        "INSERT INTO effects (idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled)
         SELECT idempotency_key, tool_server, bound_tool, lower(hex(asked_digest)), {trace_id}, settled
         FROM tool_runs WHERE position = {position}"
    )
}

fn payload(position: u32, was: &str, is: &str) -> String {
    let replaced = format!("CAST(replace(CAST(payload AS TEXT), '{was}', '{is}') AS BLOB)");
    row("tool_runs", position, &format!("payload = {replaced}"))
}

/// Changes one row, and looks for a problem whose place begins like this, and whose text begins or ends like that.
async fn assert_named(original: &TempDir, change: &str, place: &str, what: &str) {
    let tampered = Tampered::copy_of(original.path());
    assert_eq!(tampered.connect().execute(change, []).unwrap(), 1, "{change}");
    let problems = tampered.report(&[]).await.problems;
    let is_said = |said: &str| said.starts_with(what) || said.ends_with(what);
    let is_it = |it: &Problem| it.place.starts_with(place) && is_said(&it.what);
    assert!(problems.iter().any(is_it), "{change}\n  {place}: {what}\n  {problems:#?}");
}

#[tokio::test]
async fn a_record_that_contradicts_its_run_is_found_member_by_member() {
    let original = database().await;
    let (zero, id) = (format!("'{}'", Digest::ZERO), format!("'{}'", fresh()));
    let later = "'2030-01-01T00:00:00.000Z'";
    let rows = [
        ("run_id", id.as_str(), "records of run", "run_id does not follow"),
        ("session_id", &id, "tool_runs of run", "session_id does not follow"),
        ("principal_id", "'other'", "tool_runs of run", "principal_id does not follow"),
        ("step_index", "9", "tool_runs of run", "step_index does not follow"),
        ("received_at", later, "tool_runs of run", "ts does not follow"),
        ("payload_digest", &zero, "tool_runs of run", "payload does not follow"),
        ("payload_bytes", "9", "tool_runs of run", "payload_bytes does not follow"),
        ("status", "'error'", "tool_runs of run", "status does not follow"),
        ("action", "'THINK'", "tool_runs of run", "tool_name does not follow"),
        ("action", "'THINK'", "records of run", "action does not follow"),
        ("completed_at", later, "tool_runs of run", "latency_ms does not follow"),
        ("error_code", "'TIMEOUT'", "tool_runs of run", "error_json does not follow"),
        ("response_digest", &zero, "tool_runs of run", "output_json or error_json does not follow"),
        ("events_digest", &zero, "events of run", "digest does not follow"),
        ("approval_digest", &zero, "approvals of run", "digest does not follow"),
        ("last_entry_digest", &zero, "records of run", "last_entry_digest does not follow"),
        ("last_entry_digest", "NULL", "records of run", "last_entry_digest does not follow"),
        ("outcome", "'DENIED'", "records of run", "outcome does not follow"),
        ("guarantee", "'at_most_once'", "records of run", "guarantee does not follow"),
        ("schema_version", "'1.0.1'", "records of run", "schema_version does not follow"),
        ("proposal_id", &id, "records of run", "proposal_id does not follow"),
        ("reasoning", "'a trick'", "records of run", "reasoning does not follow"),
        ("args_summary.content", "'y'", "records of run", "args_summary does not follow"),
        ("args_summary", "NULL", "records of run", "args_summary does not follow"),
        ("reasoning", "'a test '", "records of run", "record_digest does not follow"),
    ];
    for (member, value, place, what) in rows {
        assert_named(&original, &record(DONE, member, value), place, what).await;
    }
    let summary = record(NOT_JSON, "args_summary", "json('{}')");
    assert_named(&original, &summary, "records of run", "args_summary does not follow").await;
    let spaced = row("records", DONE, "record = record || ' '");
    assert_named(&original, &spaced, "records of run", "form does not follow").await;
}

#[tokio::test]
async fn a_row_of_a_run_that_contradicts_the_others_is_found_column_by_column() {
    let original = database().await;
    let elsewhere = "session_id = (SELECT session_id FROM sessions WHERE kind = 'system')";
    let rows = [
        (DONE, elsewhere, "journal of run", "the place of an artifact"),
        (DONE, "principal_id = 'other'", "journal of run", "principal_id"),
        (DONE, "tool_name = 'THINK'", "tool_runs of run", "tool_name or input_json"),
        (DONE, "input_json = '{}'", "tool_runs of run", "tool_name or input_json"),
        (DONE, "input_json = '{}'", "tool_runs of run", "input_json does not follow"),
        (DONE, "output_json = '{}'", "tool_runs of run", "output_json does not follow"),
        (DONE, "latency_ms = latency_ms + 1", "tool_runs of run", "latency_ms does not"),
        (NOT_JSON, "input_json = '{}'", "tool_runs of run", "input_json does not follow"),
        (WAITING, "status = 'started'", "tool_runs of run", "status does not follow"),
        (STOPPED, "status = 'started'", "tool_runs of run", "status does not follow"),
        (WAITING, "latency_ms = 1", "tool_runs of run", "output_json, error_json or"),
    ];
    for (position, change, place, what) in rows {
        assert_named(&original, &row("tool_runs", position, change), place, what).await;
    }
    let payloads = [
        ("\"id\":\"550e", "\"id\":\"550f", "the payload's id does not follow"),
        ("WRITE_FILE", "READ_FILE", "payload does not follow"),
        ("\"content\":\"x\"", "\"content\":\"y\"", "payload does not follow"),
    ];
    for (was, is, what) in payloads {
        assert_named(&original, &payload(WAITING, was, is), "tool_runs of run", what).await;
    }
}

#[tokio::test]
async fn rows_around_a_run_that_contradict_it_are_found_one_by_one() {
    let original = database().await;
    let elsewhere = "session_id = (SELECT session_id FROM sessions WHERE kind = 'system')";
    let no_link = "link_number = NULL, link_prev = NULL, link_digest = NULL";
    let first_event = |position: u32, change: &str| {
        let first = "(SELECT min(position) FROM events WHERE";
        let its = of_run("events", position);
        format!("UPDATE events SET {change} WHERE position = {first} {its})")
    };
    let pause = format!("{} AND checkpoint_sequence_number = 1", gone("checkpoints", DENIED));
    let genesis = format!("{} AND sequence_number = 1", row("journal", WAITING, no_link));
    let asked = format!("asked_digest = '{}'", Digest::ZERO);
    let binding = "the key's binding does not follow";
    let no_key = "idempotency_key = NULL, tool_server = NULL, bound_tool = NULL,
                  asked_digest = NULL, settled = NULL";
    let a_key = "idempotency_key = 'x', tool_server = 'core', bound_tool = 'THINK',
                 asked_digest = zeroblob(32), settled = 1";
    let rows = [
        (gone("checkpoints", DONE), "checkpoints of run", "the last checkpoint is missing"),
        (pause, "checkpoints of run", "a pause without its checkpoint"),
        (gone("records", DONE), "records of run", "the absence of a record"),
        (genesis, "journal of run", "the absence of an OPEN link"),
        (gone("effects", DONE), "binding of run", "journal without its key"),
        (row("effects", DONE, "idempotency_key = 'x'"), "binding of run", binding),
        (row("effects", DONE, "tool_server = 'x'"), "binding of run", binding),
        (row("effects", DONE, "tool_name = 'x'"), "binding of run", binding),
        (row("effects", DONE, &asked), "binding of run", binding),
        (row("effects", DONE, "settled = 0"), "binding of run", binding),
        (row("tool_runs", APPROVED, no_key), "binding of run", "journal without its key"),
        (row("tool_runs", NOT_JSON, a_key), "binding of run", "journal without its key"),
        (row("tool_runs", APPROVED, "idempotency_key = 'x'"), "binding of run", binding),
        (row("tool_runs", APPROVED, "tool_server = 'x'"), "binding of run", binding),
        (row("tool_runs", APPROVED, "bound_tool = 'x'"), "binding of run", binding),
        (row("tool_runs", APPROVED, "asked_digest = zeroblob(32)"), "binding of run", binding),
        (row("tool_runs", APPROVED, "settled = 0"), "binding of run", binding),
        (row("tool_runs", WAITING, "settled = 1"), "binding of run", binding),
        (first_event(DONE, elsewhere), "events of run", "the place of an event"),
        (
            first_event(WAITING, "sequence_number = 9"),
            "journal of run",
            "the absence of an entry that an",
        ),
        (event(DONE, "run_recovered"), "events of run", "an event after the record without a link"),
        (event(WAITING, "run_recovered"), "events of run", "an event after the opening without"),
    ];
    for (change, place, what) in rows {
        assert_named(&original, &change, place, what).await;
    }
}

#[tokio::test]
async fn an_approval_that_contradicts_its_run_is_found_column_by_column() {
    let original = database().await;
    let context = |member: &str, value: &str| {
        let set = format!("json_set(approval_context_json, '$.{member}', '{value}')");
        row("approvals", APPROVED, &format!("approval_context_json = {set}"))
    };
    let zero = Digest::ZERO.to_string();
    let resolved = "ts_resolved = '2030-01-01T00:00:00.000Z'";
    let decided = "status, ts_resolved, approver_id or note";
    let rows = [
        (context("reason", "x"), "what was asked"),
        (gone("approvals", WAITING), "what was asked"),
        (context("needs_approval_digest", &zero), "the decision does not follow"),
        (row("approvals", APPROVED, "note = 'x'"), "the decision does not follow"),
        (context("call_digest", &zero), "the call does not follow"),
        (
            row("approvals", APPROVED, "approval_context_json = '{'"),
            "STATE_CHECKSUM_MISMATCH: approval context",
        ),
        (row("approvals", APPROVED, "note = 'x'"), decided),
        (row("approvals", APPROVED, "status = 'denied'"), decided),
        (row("approvals", WAITING, resolved), decided),
        (event(WAITING, "approval_denied"), decided),
        (event(DONE, "approval_denied"), decided),
    ];
    for (change, what) in rows {
        assert_named(&original, &change, "approvals of run", what).await;
    }
}

#[tokio::test]
async fn chains_and_counts_that_contradict_the_rows_are_found_one_by_one() {
    let original = database().await;
    let agents = "kind = 'default' AND principal_id = 'agent'";
    // The row of the session names the link before its last one.
    let cut = format!(
        "UPDATE sessions SET head_number = head_number - 1, head_digest = (
             SELECT link_prev FROM (
                 SELECT link_number, link_prev, tool_run_id FROM records
                 UNION ALL SELECT link_number, link_prev, trace_id FROM journal
                 UNION ALL SELECT link_number, link_prev, tool_run_id FROM events)
             JOIN tool_runs USING (tool_run_id)
             WHERE session_id = sessions.session_id AND link_number = head_number)
         WHERE {agents}"
    );
    let first = format!("(SELECT min(link_number) FROM journal WHERE {})", of_run("journal", DONE));
    let second_run = row("journal", 2, &format!("link_number = {first}"));
    let second_run = format!("{second_run} AND sequence_number = 1");
    let second_event =
        "UPDATE events SET link_number = 1 WHERE tool_run_id IS NULL AND link_number = 2";
    let nowhere = |column: &str| format!("{column} = '{}'", fresh());
    let session = |change: &str| format!("UPDATE sessions SET {change} WHERE {agents}");
    let no_session = format!("DELETE FROM sessions WHERE {agents}");
    let order = "position does not follow from the links";
    let rows = [
        (cut, "session ", "ends at link"),
        (second_run, "tool_runs of run", order),
        (second_event.into(), "event ", order),
        (session("last_step_index = 99"), "session ", "last_step_index is 99"),
        (session("kind = 'named'"), "session ", "is not as the system session says"),
        (no_session.clone(), "session ", "has links and no row"),
        (no_session, "session ", "was opened and is gone"),
        (row("records", DONE, &nowhere("tool_run_id")), "records", "accounted for"),
        (row("effects", DONE, &nowhere("trace_id")), "effects", "accounted for"),
        (effect(APPROVED, "tool_run_id"), "effects", "accounted for"),
        (effect(APPROVED, "'nowhere'"), "effects", "accounted for"),
    ];
    for (change, place, what) in rows {
        assert_named(&original, &change, place, what).await;
    }
}

#[tokio::test]
async fn two_events_of_a_run_under_one_link_number_are_found() {
    let original = servers::database().await;
    let before = "SELECT max(link_number) FROM events AS before
                  WHERE before.tool_run_id = events.tool_run_id AND before.position < events.position";
    let change = format!(
        "UPDATE events SET link_number = ({before}) WHERE position =
             (SELECT max(position) FROM events WHERE link_number > 0 AND ({before}) > 0)"
    );
    assert_named(&original, &change, "events of run", "the order of the events").await;
}

#[tokio::test]
async fn a_payload_that_was_too_deep_for_the_limits_of_its_time_verifies() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("stepgate.db");
    let store = SqliteStore::open(&path, Default::default()).unwrap();
    let mut fixture = Fixture::with_store(std::sync::Arc::new(store));
    fixture.gate.limits.json_depth_max = 2;
    let deep = proposal(1, "THINK", json!({ "thought": { "of": { "a": "thought" } } }));
    assert_eq!(fixture.record_of(deep).await.proposal_id, None);
    assert_eq!(report(&path, &[]).await.problems, []);
}
