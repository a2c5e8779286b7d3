//! Every check of `verify` by its own message. Most changes break several rules, and one of them would be enough to
//! find the change; here each rule must find it by itself, as it has to where the others were satisfied.

use serde_json::json;
use stepgate_core::digest::Digest;
use stepgate_store::sqlite::SqliteStore;
use tempfile::TempDir;

use super::{Tampered, database, fresh, report, servers};
use crate::gate::{Fixture, proposal};

/// Positions in `tool_runs` of the first database.
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

/// The row of a table that belongs to a run.
fn row(table: &str, position: u32, change: &str) -> String {
    let key = match table {
        "journal" | "checkpoints" | "effects" => "trace_id",
        _ => "tool_run_id",
    };
    format!("UPDATE {table} SET {change} WHERE {key} = {}", run(position))
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

fn payload(position: u32, was: &str, is: &str) -> String {
    let replaced = format!("CAST(replace(CAST(payload AS TEXT), '{was}', '{is}') AS BLOB)");
    row("tool_runs", position, &format!("payload = {replaced}"))
}

/// Changes one row, and looks for the problem at a place that begins like this.
async fn assert_named(original: &TempDir, change: &str, place: &str, what: &str) {
    let tampered = Tampered::copy_of(original.path());
    assert_eq!(tampered.connect().execute(change, []).unwrap(), 1, "{change}");
    let problems = tampered.report(&[]).await.problems;
    let is_it = |place: &str, what: &str, problem: &stepgate_core::verify::Problem| {
        problem.place.starts_with(place) && problem.what.contains(what)
    };
    let is_named = problems.iter().any(|problem| is_it(place, what, problem));
    assert!(is_named, "{change}\n  {place}: {what}\n  {problems:#?}");
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
    let other_session = "(SELECT session_id FROM sessions WHERE kind = 'system')";
    let rows = [
        (
            DONE,
            format!("session_id = {other_session}"),
            "journal of run",
            "the place of an artifact",
        ),
        (DONE, "principal_id = 'other'".into(), "journal of run", "principal_id"),
        (DONE, "tool_name = 'THINK'".into(), "tool_runs of run", "tool_name or input_json"),
        (DONE, "input_json = '{}'".into(), "tool_runs of run", "tool_name or input_json"),
        (DONE, "input_json = '{}'".into(), "tool_runs of run", "input_json does not follow"),
        (DONE, "output_json = '{}'".into(), "tool_runs of run", "output_json does not follow"),
        (DONE, "latency_ms = latency_ms + 1".into(), "tool_runs of run", "latency_ms does not"),
        (NOT_JSON, "input_json = '{}'".into(), "tool_runs of run", "input_json does not follow"),
        (WAITING, "status = 'started'".into(), "tool_runs of run", "status does not follow"),
        (STOPPED, "status = 'started'".into(), "tool_runs of run", "status does not follow"),
        (WAITING, "latency_ms = 1".into(), "tool_runs of run", "error_json or latency_ms does not"),
    ];
    for (position, change, place, what) in rows {
        assert_named(&original, &row("tool_runs", position, &change), place, what).await;
    }
    let payloads = [
        ("\"id\":\"550e", "\"id\":\"550f", "the payload''s id"),
        ("WRITE_FILE", "READ_FILE", "payload"),
        ("\"content\":\"x\"", "\"content\":\"y\"", "payload"),
    ];
    for (was, is, what) in payloads {
        let what = format!("{} does not follow", what.replace("''", "'"));
        assert_named(&original, &payload(WAITING, was, is), "tool_runs of run", &what).await;
    }
}

#[tokio::test]
async fn rows_around_a_run_that_contradict_it_are_found_one_by_one() {
    let original = database().await;
    let other_session = "(SELECT session_id FROM sessions WHERE kind = 'system')";
    let later = "'2030-01-01T00:00:00.000Z'";
    let context = |member: &str, value: &str| {
        let set = format!("json_set(approval_context_json, '$.{member}', {value})");
        row("approvals", APPROVED, &format!("approval_context_json = {set}"))
    };
    let zero = format!("'{}'", Digest::ZERO);
    let gone = |table: &str, key: &str, position: u32| {
        format!("DELETE FROM {table} WHERE {key} = {}", run(position))
    };
    let no_link = "link_number = NULL, link_prev = NULL, link_digest = NULL";
    let genesis =
        |change: &str| format!("{} AND sequence_number = 1", row("journal", WAITING, change));
    let first_event = |position: u32, change: &str| {
        format!(
            "UPDATE events SET {change} WHERE position =
                 (SELECT min(position) FROM events WHERE tool_run_id = {})",
            run(position)
        )
    };
    let binding = "the key's binding does not follow";
    let decision = "status, ts_resolved, approver_id or note";
    let rows = [
        (
            gone("checkpoints", "trace_id", DONE),
            "checkpoints of run",
            "the last checkpoint is missing",
        ),
        (
            format!(
                "{} AND checkpoint_sequence_number = 1",
                gone("checkpoints", "trace_id", DENIED)
            ),
            "checkpoints of run",
            "a pause without its checkpoint",
        ),
        (gone("records", "tool_run_id", DONE), "records of run", "the absence of a record"),
        (genesis(no_link), "journal of run", "the absence of an OPEN link"),
        (gone("effects", "trace_id", DONE), "effects of run", "journal without its key"),
        (row("effects", DONE, "idempotency_key = 'x'"), "effects of run", binding),
        (row("effects", DONE, "tool_server = 'x'"), "effects of run", binding),
        (row("effects", DONE, "tool_name = 'x'"), "effects of run", binding),
        (row("effects", DONE, &format!("asked_digest = {zero}")), "effects of run", binding),
        (row("effects", DONE, "settled = 0"), "effects of run", binding),
        (row("effects", WAITING, "settled = 1"), "effects of run", binding),
        (
            first_event(DONE, &format!("session_id = {other_session}")),
            "events of run",
            "the place of an event",
        ),
        (first_event(WAITING, "sequence_number = 9"), "journal of run", "an entry that an event"),
        (event(DONE, "run_recovered"), "events of run", "an event after the record without a link"),
        (event(WAITING, "run_recovered"), "events of run", "an event after the opening without"),
        (context("reason", "'x'"), "approvals of run", "what was asked"),
        (
            context("needs_approval_digest", &zero),
            "approvals of run",
            "the decision does not follow",
        ),
        (context("call_digest", &zero), "approvals of run", "the call does not follow"),
        (row("approvals", APPROVED, "approval_context_json = '{'"), "approvals of run", "context"),
        (
            row("approvals", APPROVED, "note = 'x'"),
            "approvals of run",
            "the decision does not follow",
        ),
        (row("approvals", APPROVED, "note = 'x'"), "approvals of run", decision),
        (row("approvals", APPROVED, "status = 'denied'"), "approvals of run", decision),
        (
            row("approvals", WAITING, &format!("ts_resolved = {later}")),
            "approvals of run",
            decision,
        ),
        (event(WAITING, "approval_denied"), "approvals of run", decision),
        (event(DONE, "approval_denied"), "approvals of run", decision),
        (gone("approvals", "tool_run_id", WAITING), "approvals of run", "what was asked"),
    ];
    for (change, place, what) in rows {
        assert_named(&original, &change, place, what).await;
    }
}

#[tokio::test]
async fn chains_and_counts_that_contradict_the_rows_are_found_one_by_one() {
    let original = database().await;
    let second_run_of_agent = 2;
    let same_as_the_first = format!(
        "link_number = (SELECT link_number FROM journal WHERE trace_id = {} AND sequence_number = 1)",
        run(DONE)
    );
    let at_the_end = "SELECT link_number, link_prev, session_id FROM (
         SELECT link_number, link_prev, tool_run_id FROM records
         UNION ALL SELECT link_number, link_prev, trace_id FROM journal
         UNION ALL SELECT link_number, link_prev, tool_run_id FROM events
             WHERE tool_run_id IS NOT NULL) JOIN tool_runs USING (tool_run_id)";
    let agents = "kind = 'default' AND principal_id = 'agent'";
    let rows = [
        // The row of a session names the link before its last one.
        (
            format!(
                "UPDATE sessions SET head_number = head_number - 1, head_digest =
                     (SELECT link_prev FROM ({at_the_end}) AS it
                      WHERE it.session_id = sessions.session_id AND link_number = head_number)
                 WHERE {agents}"
            ),
            "session ",
            "and its links end at",
        ),
        (
            format!(
                "{} AND sequence_number = 1",
                row("journal", second_run_of_agent, &same_as_the_first)
            ),
            "tool_runs of run",
            "position does not follow from the links",
        ),
        (
            "UPDATE events SET link_number = 1 WHERE tool_run_id IS NULL AND link_number = 2"
                .into(),
            "event ",
            "position does not follow from the links",
        ),
        (
            format!("UPDATE sessions SET last_step_index = 99 WHERE {agents}"),
            "session ",
            "last_step_index is 99",
        ),
        (
            format!("UPDATE sessions SET kind = 'named' WHERE {agents}"),
            "session ",
            "as the system session says",
        ),
        (format!("DELETE FROM sessions WHERE {agents}"), "session ", "has links and no row"),
        (format!("DELETE FROM sessions WHERE {agents}"), "session ", "was opened and is gone"),
        (row("records", DONE, &format!("tool_run_id = '{}'", fresh())), "records", "accounted for"),
        (row("effects", DONE, &format!("trace_id = '{}'", fresh())), "effects", "accounted for"),
    ];
    for (change, place, what) in rows {
        assert_named(&original, &change, place, what).await;
    }
    let originals = servers::database().await;
    let same_as_the_one_before = "UPDATE events SET link_number =
             (SELECT max(link_number) FROM events AS other
              WHERE other.tool_run_id = events.tool_run_id AND other.position < events.position)
         WHERE position = (SELECT position FROM events AS it WHERE link_number > 0 AND EXISTS
             (SELECT 1 FROM events AS before WHERE before.tool_run_id = it.tool_run_id
              AND before.position < it.position AND before.link_number > 0) LIMIT 1)";
    let what = "the order of the events";
    assert_named(&originals, same_as_the_one_before, "events of run", what).await;
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
