//! Rows in: every query, each by an index except the lists that people page through.

use std::sync::Arc;

use rusqlite::Connection;
use stepgate_core::approval::{Approval, ApprovalStatus, Resolution};
use stepgate_core::event::{Event, EventType};
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::checkpoint::CheckpointState;
use stepgate_core::journal::{
    Appended, Checkpoint, Entry, ExecutionState, Kind, Sealed, StateError, Tail,
};
use stepgate_core::json::{canonical, strict};
use stepgate_core::machine::State;
use stepgate_core::ports::{Dossier, LinkedEvent, Recollection, StoreError};
use stepgate_core::record::Record;
use stepgate_core::run::{Arrival, Ending, Payload, Run, Status};
use stepgate_core::session::{Head, Link, Session, SessionKind};

use super::cells::{Cells, Table, all, one};
use crate::plan::{Chain, Trace};

const SESSIONS: Table = table("sessions", "session_id");
pub(super) const TOOL_RUNS: Table = table("tool_runs", "tool_run_id");
const JOURNAL: Table = table("journal", "trace_id");
const RECORDS: Table = table("records", "tool_run_id");
const CHECKPOINTS: Table = table("checkpoints", "trace_id");
pub(super) const APPROVALS: Table = table("approvals", "tool_run_id");
const EVENTS: Table = table("events", "tool_run_id");
pub(super) const LOOSE_EVENTS: Table = table("events", "event_id");
const EFFECTS: Table = table("effects", "trace_id");
const SEALED_PAYLOADS: Table = table("sealed_payloads", "tool_run_id");

const fn table(name: &'static str, key: &'static str) -> Table {
    Table { name, key }
}

/// Where a session stands.
pub(super) fn chain(
    connection: &Connection,
    session_id: SessionId,
) -> Result<Option<Chain>, StoreError> {
    let sql = "SELECT session_id, head_number, head_digest, last_step_index FROM sessions
               WHERE session_id = ?1";
    one(connection, SESSIONS, sql, [session_id.to_string()], |cells| {
        Ok(Chain { head: head_of(cells)?, last_step_index: cells.number("last_step_index")? })
    })
}

/// A session.
pub(super) fn session(
    connection: &Connection,
    session_id: SessionId,
) -> Result<Option<Session>, StoreError> {
    let sql = "SELECT * FROM sessions WHERE session_id = ?1";
    one(connection, SESSIONS, sql, [session_id.to_string()], session_from)
}

/// The first session of this kind that belongs to the principal.
pub(super) fn session_of(
    connection: &Connection,
    principal_id: &PrincipalId,
    kind: SessionKind,
) -> Result<Option<Session>, StoreError> {
    let sql = "SELECT * FROM sessions WHERE principal_id = ?1 AND kind = ?2
               ORDER BY position LIMIT 1";
    let params = [principal_id.as_str(), kind.as_str()];
    one(connection, SESSIONS, sql, params, session_from)
}

/// Every session, in the order of their ids.
pub(super) fn sessions(connection: &Connection) -> Result<Vec<Session>, StoreError> {
    let sql = "SELECT * FROM sessions ORDER BY session_id";
    all(connection, SESSIONS, sql, [], session_from)
}

fn session_from(cells: &Cells<'_>) -> Result<Session, StoreError> {
    let principal = cells.text("principal_id")?;
    Ok(Session {
        session_id: cells.parsed("session_id")?,
        principal_id: PrincipalId::parse(principal)
            .map_err(|error| cells.mismatch("principal_id", error))?,
        kind: cells.spelled("kind", SessionKind::parse)?,
        ts: cells.parsed("ts")?,
        head: head_of(cells)?,
        last_step_index: cells.number("last_step_index")?,
    })
}

fn head_of(cells: &Cells<'_>) -> Result<Head, StoreError> {
    Ok(Head { number: cells.number("head_number")?, digest: cells.parsed("head_digest")? })
}

/// Where a trace stands.
pub(super) fn trace(connection: &Connection, run_id: RunId) -> Result<Option<Trace>, StoreError> {
    let sql = "SELECT tool_run_id, session_id, status,
               EXISTS (SELECT 1 FROM sealed_payloads AS sealed
                       WHERE sealed.tool_run_id = tool_runs.tool_run_id) AS is_sealed
               FROM tool_runs WHERE tool_run_id = ?1";
    let run = one(connection, TOOL_RUNS, sql, [run_id.to_string()], |cells| {
        let status = cells.spelled("status", Status::parse)?;
        Ok((cells.parsed("session_id")?, status, cells.number("is_sealed")? == 1))
    })?;
    let Some((session_id, status, is_sealed)) = run else {
        return Ok(None);
    };
    Ok(Some(Trace { session_id, status, tail: tail(connection, run_id)?, is_sealed }))
}

/// The state of a trace: its last entry, whose digest covers everything before it.
pub(super) fn state(
    connection: &Connection,
    run_id: RunId,
) -> Result<Option<ExecutionState>, StoreError> {
    let trace = trace(connection, run_id)?;
    Ok(trace.and_then(|trace| ExecutionState::of(run_id, trace.session_id, &trace.tail)))
}

fn tail(connection: &Connection, run_id: RunId) -> Result<Tail, StoreError> {
    let sql = "SELECT * FROM journal WHERE trace_id = ?1 ORDER BY sequence_number DESC LIMIT 1";
    let last = one(connection, JOURNAL, sql, [run_id.to_string()], entry_from)?;
    let Some(entry) = last else {
        return Ok(Tail::EMPTY);
    };
    if entry.entry_digest != entry.recomputed_digest() {
        let detail = format!("journal row {run_id}: the last entry does not have its digest");
        return Err(StateError::checksum(detail).into());
    }
    Ok(Tail {
        state: Some(entry.to_state),
        sequence_number: entry.sequence_number,
        entry_digest: entry.entry_digest,
    })
}

/// The entries after a sequence number, each with the link that stands in its row.
pub(super) fn entries(
    connection: &Connection,
    run_id: RunId,
    after: u64,
) -> Result<Vec<(Appended, Option<Link>)>, StoreError> {
    let sql = "SELECT * FROM journal WHERE trace_id = ?1 AND sequence_number > ?2
               ORDER BY sequence_number";
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let params = rusqlite::params![run_id.to_string(), after];
    all(connection, JOURNAL, sql, params, |cells| {
        let entry = entry_from(cells)?;
        let artifact = Sealed {
            kind: entry.artifact_type,
            id: entry.artifact_id,
            ts: entry.ts,
            digest: entry.artifact_digest,
            text: cells.text("artifact")?.to_owned(),
        };
        let link = cells.maybe_link()?;
        if link.is_some() && entry.sequence_number != 1 {
            return Err(cells.mismatch("link_number", "only a genesis opens a trace"));
        }
        Ok((Appended { entry, artifact }, link))
    })
}

fn entry_from(cells: &Cells<'_>) -> Result<Entry, StoreError> {
    let key = cells.owned("idempotency_key")?;
    Ok(Entry {
        artifact_digest: cells.parsed("artifact_digest")?,
        artifact_id: cells.parsed("artifact_id")?,
        artifact_type: cells.spelled("artifact_type", Kind::parse)?,
        entry_digest: cells.parsed("entry_digest")?,
        from_state: cells.spelled("from_state", State::parse)?,
        idempotency_key: key.map(IdempotencyKey::from_stored),
        prev_entry_digest: cells.parsed("prev_entry_digest")?,
        schema_id: Entry::SCHEMA_ID.into(),
        schema_version: Entry::SCHEMA_VERSION.into(),
        sequence_number: cells.number("sequence_number")?,
        to_state: cells.spelled("to_state", State::parse)?,
        tool_call_id: cells.maybe_parsed("tool_call_id")?,
        trace_id: cells.parsed("trace_id")?,
        ts: cells.parsed("ts")?,
    })
}

/// The checkpoint with the highest sequence number.
pub(super) fn latest_checkpoint(
    connection: &Connection,
    run_id: RunId,
) -> Result<Option<Checkpoint>, StoreError> {
    let sql = "SELECT * FROM checkpoints WHERE trace_id = ?1
               ORDER BY checkpoint_sequence_number DESC LIMIT 1";
    let params = [run_id.to_string()];
    one(connection, CHECKPOINTS, sql, params, checkpoint_from)
}

/// Whether a trace has a checkpoint at this number.
pub(super) fn has_checkpoint(
    connection: &Connection,
    run_id: RunId,
    number: u64,
) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM checkpoints WHERE trace_id = ?1 AND checkpoint_sequence_number = ?2";
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    let params = rusqlite::params![run_id.to_string(), number];
    Ok(one(connection, CHECKPOINTS, sql, params, |_| Ok(()))?.is_some())
}

fn checkpoint_from(cells: &Cells<'_>) -> Result<Checkpoint, StoreError> {
    let text = cells.text("checkpoint_state")?;
    let state: CheckpointState =
        serde_json::from_str(text).map_err(|error| cells.mismatch("checkpoint_state", error))?;
    if canonical::text_of(&state) != text {
        return Err(cells.mismatch("checkpoint_state", "not in canonical form"));
    }
    Ok(Checkpoint {
        checkpoint_digest: cells.parsed("checkpoint_digest")?,
        checkpoint_sequence_number: cells.number("checkpoint_sequence_number")?,
        checkpoint_state: state,
        schema_id: Checkpoint::SCHEMA_ID.into(),
        schema_version: Checkpoint::SCHEMA_VERSION.into(),
        trace_id: cells.parsed("trace_id")?,
        ts: cells.parsed("ts")?,
    })
}

/// What a key is bound to.
pub(super) fn binding(
    connection: &Connection,
    key: &IdempotencyKey,
) -> Result<Option<Binding>, StoreError> {
    let sql = "SELECT * FROM effects WHERE idempotency_key = ?1";
    one(connection, EFFECTS, sql, [key.as_str()], binding_from)
}

/// Whether a key is bound, told by the index alone.
pub(super) fn is_bound(connection: &Connection, key: &IdempotencyKey) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM effects WHERE idempotency_key = ?1";
    connection
        .prepare_cached(sql)
        .and_then(|mut select| select.exists([key.as_str()]))
        .map_err(|error| super::error::while_open(&error))
}

/// What a trace has bound.
pub(super) fn binding_of(
    connection: &Connection,
    run_id: RunId,
) -> Result<Option<Binding>, StoreError> {
    let sql = "SELECT * FROM effects WHERE trace_id = ?1";
    one(connection, EFFECTS, sql, [run_id.to_string()], binding_from)
}

fn binding_from(cells: &Cells<'_>) -> Result<Binding, StoreError> {
    Ok(Binding {
        idempotency_key: IdempotencyKey::from_stored(cells.text("idempotency_key")?.to_owned()),
        tool_server: cells.text("tool_server")?.to_owned(),
        tool_name: cells.text("tool_name")?.to_owned(),
        asked_digest: cells.parsed("asked_digest")?,
        trace_id: cells.parsed("trace_id")?,
        settled: match cells.number("settled")? {
            0 => false,
            1 => true,
            other => return Err(cells.mismatch("settled", format!("`{other}` is unknown"))),
        },
    })
}

/// An approval.
pub(super) fn approval(
    connection: &Connection,
    approval_id: ApprovalId,
) -> Result<Option<Approval>, StoreError> {
    let sql = "SELECT * FROM approvals WHERE approval_id = ?1";
    let params = [approval_id.to_string()];
    one(connection, APPROVALS, sql, params, approval_from)
}

/// The approval that a run has asked for.
pub(super) fn approval_of(
    connection: &Connection,
    run_id: RunId,
) -> Result<Option<Approval>, StoreError> {
    let sql = "SELECT * FROM approvals WHERE tool_run_id = ?1";
    one(connection, APPROVALS, sql, [run_id.to_string()], approval_from)
}

pub(super) fn approval_from(cells: &Cells<'_>) -> Result<Approval, StoreError> {
    let approver_id = match cells.maybe_text("approver_id")? {
        None => None,
        Some(text) => {
            Some(PrincipalId::parse(text).map_err(|error| cells.mismatch("approver_id", error))?)
        }
    };
    let note = cells.owned("note")?;
    let resolution = match cells.maybe_parsed("ts_resolved")? {
        Some(ts_resolved) => Some(Resolution { approver_id, note, ts_resolved }),
        None if approver_id.is_some() || note.is_some() => {
            return Err(cells.mismatch("ts_resolved", "is empty beside an approver or a note"));
        }
        None => None,
    };
    Ok(Approval {
        approval_context_json: cells.text("approval_context_json")?.to_owned(),
        approval_id: cells.parsed("approval_id")?,
        resolution,
        status: cells.spelled("status", ApprovalStatus::parse)?,
        tool_run_id: cells.parsed("tool_run_id")?,
        ts_requested: cells.parsed("ts_requested")?,
    })
}

/// A run.
pub(super) fn run(connection: &Connection, run_id: RunId) -> Result<Option<Run>, StoreError> {
    let sql = "SELECT * FROM tool_runs WHERE tool_run_id = ?1";
    one(connection, TOOL_RUNS, sql, [run_id.to_string()], run_from)
}

pub(super) fn run_from(cells: &Cells<'_>) -> Result<Run, StoreError> {
    let (output_json, error_json) = (cells.owned("output_json")?, cells.owned("error_json")?);
    let ending = match cells.maybe_number("latency_ms")? {
        Some(latency_ms) => Some(Ending { output_json, error_json, latency_ms }),
        None if output_json.is_some() || error_json.is_some() => {
            return Err(cells.mismatch("latency_ms", "is empty beside an output or an error"));
        }
        None => None,
    };
    let principal = cells.text("principal_id")?;
    Ok(Run {
        arrival: Arrival {
            run_id: cells.parsed("tool_run_id")?,
            session_id: cells.parsed("session_id")?,
            principal_id: PrincipalId::parse(principal)
                .map_err(|error| cells.mismatch("principal_id", error))?,
            step_index: cells.number("step_index")?,
            received_at: cells.parsed("ts")?,
            payload: Payload {
                bytes: Arc::from(cells.bytes("payload")?),
                length: cells.number("payload_bytes")?,
            },
        },
        tool_name: cells.owned("tool_name")?,
        input_json: cells.owned("input_json")?,
        status: cells.spelled("status", Status::parse)?,
        ending,
    })
}

/// Everything about one run. The caller holds a transaction, so that it is of one moment.
pub(super) fn dossier(
    connection: &Connection,
    run_id: RunId,
) -> Result<Option<Dossier>, StoreError> {
    let Some(run) = run(connection, run_id)? else {
        return Ok(None);
    };
    let rows = entries(connection, run_id, 0)?;
    let open_link = rows.first().and_then(|(_, link)| *link);
    let id = run_id.to_string();
    let checkpoints = "SELECT * FROM checkpoints WHERE trace_id = ?1
                       ORDER BY checkpoint_sequence_number";
    let events = "SELECT * FROM events WHERE tool_run_id = ?1 ORDER BY position";
    Ok(Some(Dossier {
        entries: rows.into_iter().map(|(appended, _)| appended).collect(),
        open_link,
        checkpoints: all(connection, CHECKPOINTS, checkpoints, [&id], checkpoint_from)?,
        approval: approval_of(connection, run_id)?,
        binding: binding_of(connection, run_id)?,
        events: all(connection, EVENTS, events, [&id], event_from)?,
        sealed: sealed(connection, &run)?,
        record: record(connection, &run)?,
        run,
    }))
}

/// What the answer to a known proposal is made of. The caller holds a transaction.
pub(super) fn recollection(
    connection: &Connection,
    run_id: RunId,
) -> Result<Option<Recollection>, StoreError> {
    let Some(run) = run(connection, run_id)? else {
        return Ok(None);
    };
    let record = record(connection, &run)?.map(|(record, _)| record);
    let last_sequence_number = tail(connection, run_id)?.sequence_number;
    Ok(Some(Recollection { run, last_sequence_number, record }))
}

/// The payload as it came, where it is kept apart. A run that is over has none.
fn sealed(connection: &Connection, run: &Run) -> Result<Option<Arc<[u8]>>, StoreError> {
    if run.status.is_final() {
        return Ok(None);
    }
    let sql = "SELECT * FROM sealed_payloads WHERE tool_run_id = ?1";
    let params = [run.arrival.run_id.to_string()];
    one(connection, SEALED_PAYLOADS, sql, params, |cells| Ok(Arc::from(cells.bytes("payload")?)))
}

/// The record of a run, with the status and the ending that the run's row holds of it.
fn record(connection: &Connection, run: &Run) -> Result<Option<(Record, Link)>, StoreError> {
    let sql = "SELECT * FROM records WHERE tool_run_id = ?1";
    let run_id = run.arrival.run_id;
    one(connection, RECORDS, sql, [run_id.to_string()], |cells| {
        let Some(ending) = run.ending.clone() else {
            return Err(cells.mismatch("tool_run_id", "a record of a run that is not over"));
        };
        let record = Record {
            run_id,
            text: cells.text("record")?.to_owned(),
            digest: cells.parsed("record_digest")?,
            status: run.status,
            ending,
        };
        Ok((record, cells.link()?))
    })
}

/// The event of this id.
pub(super) fn event(
    connection: &Connection,
    event_id: ArtifactId,
) -> Result<Option<Event>, StoreError> {
    let sql = "SELECT * FROM events WHERE event_id = ?1";
    let found = one(connection, LOOSE_EVENTS, sql, [event_id.to_string()], event_from)?;
    Ok(found.map(|linked| linked.event))
}

pub(super) fn event_from(cells: &Cells<'_>) -> Result<LinkedEvent, StoreError> {
    let text = cells.text("payload_json")?;
    let payload = strict::parse(text.as_bytes(), strict::DEPTH_MAX, strict::Integers::Any)
        .map_err(|refusal| cells.mismatch("payload_json", refusal))?;
    if canonical::text_of(&payload) != text {
        return Err(cells.mismatch("payload_json", "not in canonical form"));
    }
    let event = Event {
        event_id: cells.parsed("event_id")?,
        event_type: cells.spelled("event_type", EventType::parse)?,
        payload,
        run_id: cells.maybe_parsed("tool_run_id")?,
        sequence_number: cells.number("sequence_number")?,
        session_id: cells.parsed("session_id")?,
        ts: cells.parsed("ts")?,
    };
    let link = cells.maybe_link()?;
    Ok(LinkedEvent { event, link })
}
