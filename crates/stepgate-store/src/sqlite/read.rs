//! Reading rows: what SQLite asks in words of its own, and what is put together of several queries.

use rusqlite::{Connection, Params};
use stepgate_core::ids::{IdempotencyKey, RunId, SessionId};
use stepgate_core::journal::Tail;
use stepgate_core::ports::{Dossier, OriginalPayload, Recollection};
use stepgate_core::run::{Run, Status};

use super::cells::{all, one};
use super::error;
use crate::Result;
use crate::chunk::Chunk;
use crate::payload_keys::PayloadKeys;
use crate::plan::{Chain, Trace};
use crate::rows::chain_from;
use crate::select::{self, Select};
use crate::tables::{Cell, SESSIONS, TOOL_RUNS};

pub(super) fn chain(connection: &Connection, session_id: SessionId) -> Result<Option<Chain>> {
    let sql = "SELECT session_id, head_number, head_digest, last_step_index FROM sessions
               WHERE session_id = $1";
    one(connection, Select::new(SESSIONS, sql, vec![Cell::text_of(session_id)], chain_from))
}

pub(super) fn trace(connection: &Connection, run_id: RunId) -> Result<Option<Trace>> {
    let sql = "SELECT tool_run_id, session_id, status,
               EXISTS (SELECT 1 FROM sealed_payloads AS sealed
                       WHERE sealed.tool_run_id = tool_runs.tool_run_id) AS is_sealed,
               idempotency_key IS NOT NULL AS has_own_key
               FROM tool_runs WHERE tool_run_id = $1";
    let run = Select::new(TOOL_RUNS, sql, vec![Cell::text_of(run_id)], |cells| {
        let status = cells.spelled("status", Status::parse)?;
        Ok(Trace {
            session_id: cells.parsed("session_id")?,
            status,
            tail: Tail::EMPTY,
            is_sealed: cells.number("is_sealed")? == 1,
            has_own_key: cells.number("has_own_key")? == 1,
        })
    });
    let Some(trace) = one(connection, run)? else {
        return Ok(None);
    };
    Ok(Some(Trace { tail: tail(connection, run_id)?, ..trace }))
}

fn tail(connection: &Connection, run_id: RunId) -> Result<Tail> {
    Ok(one(connection, select::tail(run_id))?.unwrap_or(Tail::EMPTY))
}

pub(super) fn has_checkpoint(connection: &Connection, run_id: RunId, number: u64) -> Result<bool> {
    let numbers = all(connection, select::checkpoint_numbers(run_id))?;
    Ok(numbers.iter().flatten().any(|there| *there == number))
}

/// Whether a key is bound, found in the indexes alone.
pub(super) fn is_bound(connection: &Connection, key: &IdempotencyKey) -> Result<bool> {
    let sql = "SELECT 1 FROM tool_runs WHERE idempotency_key = ?1
               UNION ALL SELECT 1 FROM effects WHERE idempotency_key = ?1";
    exists(connection, sql, [key.as_str()])
}

/// Whether a trace has bound a key.
pub(super) fn has_key(connection: &Connection, run_id: RunId) -> Result<bool> {
    let sql = "SELECT 1 FROM tool_runs WHERE tool_run_id = ?1 AND idempotency_key IS NOT NULL
               UNION ALL SELECT 1 FROM effects WHERE trace_id = ?1";
    exists(connection, sql, [run_id.to_string()])
}

fn exists(connection: &Connection, sql: &str, values: impl Params) -> Result<bool> {
    let found = connection.prepare_cached(sql).and_then(|mut select| select.exists(values));
    found.map_err(error::while_open)
}

/// Everything about one run. The caller holds a transaction, so that all reads see one snapshot.
pub(super) fn dossier(
    connection: &Connection,
    run_id: RunId,
    keys: &PayloadKeys,
) -> Result<Option<Dossier>> {
    let Some((run, own_binding)) = one(connection, select::bound_run(run_id))? else {
        return Ok(None);
    };
    let binding = match own_binding {
        Some(binding) => Some(binding),
        None => one(connection, select::binding_elsewhere(run_id))?,
    };
    let trace = chunks(connection, run_id)?;
    Ok(Some(Dossier {
        open_link: trace.open_link(),
        entries: trace.entries.into_iter().map(|(appended, _)| appended).collect(),
        checkpoints: trace.checkpoints,
        approval: one(connection, select::approval_of(run_id))?,
        binding,
        events: all(connection, select::events_of(run_id))?,
        sealed: sealed(connection, &run, keys)?,
        record: trace.record.map(|record| record.of(&run)).transpose()?,
        run,
    }))
}

/// The data for answering a known proposal again. The caller holds a transaction.
pub(super) fn recollection(connection: &Connection, run_id: RunId) -> Result<Option<Recollection>> {
    let Some(run) = one(connection, select::run(run_id))? else {
        return Ok(None);
    };
    let trace = chunks(connection, run_id)?;
    let last_sequence_number = tail(connection, run_id)?.sequence_number;
    let record = trace.record.map(|record| record.of(&run)).transpose()?;
    Ok(Some(Recollection { run, last_sequence_number, record: record.map(|(record, _)| record) }))
}

/// The original payload, where it is stored apart. A run that is over has none.
pub(super) fn sealed(
    connection: &Connection,
    run: &Run,
    keys: &PayloadKeys,
) -> Result<Option<OriginalPayload>> {
    if run.status.is_final() {
        return Ok(None);
    }
    let run_id = run.arrival.run_id;
    let stored = one(connection, select::sealed(run_id))?;
    Ok(stored.map(|stored| keys.open(run_id, stored)).transpose()?)
}

/// Everything that commits have added to a trace.
pub(super) fn chunks(connection: &Connection, run_id: RunId) -> Result<Chunk> {
    Ok(Chunk::joined(all(connection, select::chunks(run_id))?))
}
