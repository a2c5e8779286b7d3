//! Reading rows: every query, each by an index except the lists that people page through.

use std::sync::Arc;

use rusqlite::Connection;
use stepgate_core::approval::Approval;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::{Appended, Checkpoint, ExecutionState, Tail};
use stepgate_core::ports::{Dossier, Recollection, StoreError};
use stepgate_core::record::Record;
use stepgate_core::run::{Run, Status};
use stepgate_core::session::{Link, Session, SessionKind};

use super::cells::{all, one};
use crate::plan::{Chain, Trace};
use crate::rows::{
    APPROVALS, CHECKPOINTS, Cells, EFFECTS, EVENTS, JOURNAL, LOOSE_EVENTS, RECORDS,
    SEALED_PAYLOADS, SESSIONS, TOOL_RUNS, appended_from, approval_from, binding_from, chain_from,
    checkpoint_from, event_from, record_from, run_from, session_from, tail_from,
};

/// The state of a session.
pub(super) fn chain(
    connection: &Connection,
    session_id: SessionId,
) -> Result<Option<Chain>, StoreError> {
    let sql = "SELECT session_id, head_number, head_digest, last_step_index FROM sessions
               WHERE session_id = ?1";
    one(connection, SESSIONS, sql, [session_id.to_string()], chain_from)
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

/// The state of a trace.
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
    let last = one(connection, JOURNAL, sql, [run_id.to_string()], tail_from)?;
    Ok(last.unwrap_or(Tail::EMPTY))
}

/// The entries after a sequence number, each with the link in its row.
pub(super) fn entries(
    connection: &Connection,
    run_id: RunId,
    after: u64,
) -> Result<Vec<(Appended, Option<Link>)>, StoreError> {
    let sql = "SELECT * FROM journal WHERE trace_id = ?1 AND sequence_number > ?2
               ORDER BY sequence_number";
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let params = rusqlite::params![run_id.to_string(), after];
    all(connection, JOURNAL, sql, params, appended_from)
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

/// What a key is bound to.
pub(super) fn binding(
    connection: &Connection,
    key: &IdempotencyKey,
) -> Result<Option<Binding>, StoreError> {
    let sql = "SELECT * FROM effects WHERE idempotency_key = ?1";
    one(connection, EFFECTS, sql, [key.as_str()], binding_from)
}

/// Whether a key is bound, found in the index alone.
pub(super) fn is_bound(connection: &Connection, key: &IdempotencyKey) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM effects WHERE idempotency_key = ?1";
    connection
        .prepare_cached(sql)
        .and_then(|mut select| select.exists([key.as_str()]))
        .map_err(|error| super::error::while_open(&error))
}

/// The binding of a trace's key.
pub(super) fn binding_of(
    connection: &Connection,
    run_id: RunId,
) -> Result<Option<Binding>, StoreError> {
    let sql = "SELECT * FROM effects WHERE trace_id = ?1";
    one(connection, EFFECTS, sql, [run_id.to_string()], binding_from)
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

/// A run.
pub(super) fn run(connection: &Connection, run_id: RunId) -> Result<Option<Run>, StoreError> {
    let sql = "SELECT * FROM tool_runs WHERE tool_run_id = ?1";
    one(connection, TOOL_RUNS, sql, [run_id.to_string()], run_from)
}

/// Everything about one run. The caller holds a transaction, so that all reads see one snapshot.
pub(super) fn dossier(
    connection: &Connection,
    run_id: RunId,
) -> Result<Option<Dossier>, StoreError> {
    let id = run_id.to_string();
    let Some(run) = run(connection, run_id)? else {
        return Ok(None);
    };
    let rows = entries(connection, run_id, 0)?;
    let sql = "SELECT * FROM checkpoints WHERE trace_id = ?1 ORDER BY checkpoint_sequence_number";
    let checkpoints = all(connection, CHECKPOINTS, sql, [&id], checkpoint_from)?;
    let sql = "SELECT * FROM events WHERE tool_run_id = ?1 ORDER BY position";
    let events = all(connection, EVENTS, sql, [&id], event_from)?;
    Ok(Some(Dossier {
        open_link: rows.first().and_then(|(_, link)| *link),
        entries: rows.into_iter().map(|(appended, _)| appended).collect(),
        checkpoints,
        approval: approval_of(connection, run_id)?,
        binding: binding_of(connection, run_id)?,
        events,
        sealed: sealed(connection, &run)?,
        record: record(connection, &run)?,
        run,
    }))
}

/// Reads a row, and counts it if its position is not after the last.
pub(super) fn until<T>(
    last: u64,
    read: impl Fn(&Cells<'_>) -> Result<T, StoreError>,
) -> impl Fn(&Cells<'_>) -> Result<(T, u64), StoreError> {
    move |cells| Ok((read(cells)?, u64::from(cells.number("position")? <= last)))
}

pub(super) fn unzip<T>(rows: Vec<(T, u64)>) -> (Vec<T>, u64) {
    let count = rows.iter().map(|(_, count)| count).sum();
    (rows.into_iter().map(|(row, _)| row).collect(), count)
}

/// The data for answering a known proposal again. The caller holds a transaction.
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

/// The original payload, where it is stored apart. A run that is over has none.
pub(super) fn sealed(connection: &Connection, run: &Run) -> Result<Option<Arc<[u8]>>, StoreError> {
    if run.status.is_final() {
        return Ok(None);
    }
    let sql = "SELECT * FROM sealed_payloads WHERE tool_run_id = ?1";
    let params = [run.arrival.run_id.to_string()];
    one(connection, SEALED_PAYLOADS, sql, params, |cells| Ok(Arc::from(cells.bytes("payload")?)))
}

/// The record of a run, with the status and the ending from the run's row.
fn record(connection: &Connection, run: &Run) -> Result<Option<(Record, Link)>, StoreError> {
    let sql = "SELECT * FROM records WHERE tool_run_id = ?1";
    let params = [run.arrival.run_id.to_string()];
    one(connection, RECORDS, sql, params, |cells| record_from(cells, run))
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
