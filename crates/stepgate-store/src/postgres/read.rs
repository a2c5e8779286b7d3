//! Reading rows: what PostgreSQL asks in words of its own, and how rows of several queries are combined.

use stepgate_core::budget::Account;
use stepgate_core::ids::RunId;
use stepgate_core::journal::Tail;
use stepgate_core::ports::{Audited, Dossier, Recollection, StoreError};
use stepgate_core::run::Status;
use tokio_postgres::Row;

use super::cells::{all, one};
use super::link::{Query, Value};
use crate::Result;
use crate::chunk::{Chunk, chunk_from, tail_from};
use crate::payload_keys::PayloadKeys;
use crate::plan::Trace;
use crate::rows::{Cells, approval_from, binding_from, bound_run_from, event_from, run_from};
use crate::select;
use crate::tables::{
    APPROVALS, BUDGET_ACCOUNTS, CHUNKS, EFFECTS, EVENTS, SEALED_PAYLOADS, TOOL_RUNS,
};

/// The state of traces: the run's row joined with the chunk that has its last entry.
pub(super) fn traces(condition: &str) -> String {
    format!(
        "SELECT run.tool_run_id, run.session_id AS run_session_id, run.status, run.owner, run.epoch,
           EXISTS (SELECT 1 FROM sealed_payloads AS sealed
                   WHERE sealed.tool_run_id = run.tool_run_id)::int::bigint AS is_sealed,
           (run.idempotency_key IS NOT NULL)::int::bigint AS has_own_key, chunk.*
         FROM tool_runs AS run LEFT JOIN LATERAL
           ({} WHERE trace_id = run.tool_run_id AND sequence_number IS NOT NULL
            ORDER BY sequence_number DESC LIMIT 1) AS chunk ON true
         WHERE {condition}",
        CHUNKS.select()
    )
}

/// The state of a trace, from a row of [`traces`].
pub(super) fn trace_from(cells: &Cells<'_>) -> Result<Trace> {
    let tail = match cells.maybe_number("sequence_number")? {
        Some(_) => tail_from(cells)?,
        None => Tail::EMPTY,
    };
    Ok(Trace {
        session_id: cells.parsed("run_session_id")?,
        status: cells.spelled("status", Status::parse)?,
        tail,
        is_sealed: cells.number("is_sealed")? == 1,
        has_own_key: cells.number("has_own_key")? == 1,
    })
}

/// Everything about one run.
pub(super) fn dossier(run_id: RunId) -> Vec<Query> {
    vec![
        select::bound_run(run_id).into(),
        select::chunks(run_id).into(),
        select::approval_of(run_id).into(),
        select::binding_elsewhere(run_id).into(),
        select::events_of(run_id).into(),
        select::sealed(run_id).into(),
    ]
}

/// The dossier, from the rows of [`dossier`].
pub(super) fn dossier_from(rows: &[Vec<Row>], keys: &PayloadKeys) -> Result<Option<Dossier>> {
    let [runs, chunks, approvals, effects, events, sealed] = rows else {
        return Err(incomplete());
    };
    let Some((run, own_binding)) = one(runs, TOOL_RUNS, bound_run_from)? else {
        return Ok(None);
    };
    let binding = match own_binding {
        Some(binding) => Some(binding),
        None => one(effects, EFFECTS, binding_from)?,
    };
    let trace = Chunk::joined(all(chunks, CHUNKS, chunk_from)?);
    // A run that is over has no payload stored apart.
    let sealed = if run.status.is_final() { &[][..] } else { sealed };
    let sealed = one(sealed, SEALED_PAYLOADS, |cells| Ok(cells.bytes("payload")?.to_vec()))?;
    let sealed = sealed.map(|stored| keys.open(run.arrival.run_id, stored)).transpose()?;
    Ok(Some(Dossier {
        open_link: trace.open_link(),
        entries: trace.entries.into_iter().map(|(appended, _)| appended).collect(),
        checkpoints: trace.checkpoints,
        approval: one(approvals, APPROVALS, approval_from)?,
        binding,
        events: all(events, EVENTS, event_from)?,
        sealed,
        record: trace.record.map(|record| record.of(&run)).transpose()?,
        run,
    }))
}

fn has_own_key(cells: &Cells<'_>) -> Result<bool> {
    Ok(cells.maybe_text("idempotency_key")?.is_some())
}

/// A run as `verify` reads it, from the rows of [`dossier`].
pub(super) fn audited(run_id: RunId, rows: &[Vec<Row>], keys: &PayloadKeys) -> Audited {
    let mut audited = Audited::whole(run_id, dossier_from(rows, keys));
    if let (Ok(Some(_)), [runs, _, _, effects, ..]) = (&audited.dossier, rows)
        && let Ok(Some(false)) = one(runs, TOOL_RUNS, has_own_key)
    {
        audited.rows.bindings = u64::try_from(effects.len()).unwrap_or(u64::MAX);
    }
    audited
}

/// The data for answering a known proposal again.
pub(super) fn recollection(run_id: RunId) -> Vec<Query> {
    vec![select::run(run_id).into(), select::chunks(run_id).into(), select::tail(run_id).into()]
}

/// The recollection, from the rows of [`recollection`].
pub(super) fn recollection_from(rows: &[Vec<Row>]) -> Result<Option<Recollection>> {
    let [runs, chunks, tail] = rows else {
        return Err(incomplete());
    };
    let Some(run) = one(runs, TOOL_RUNS, run_from)? else {
        return Ok(None);
    };
    let trace = Chunk::joined(all(chunks, CHUNKS, chunk_from)?);
    let record = trace.record.map(|record| record.of(&run)).transpose()?;
    let tail = one(tail, CHUNKS, tail_from)?.unwrap_or(Tail::EMPTY);
    Ok(Some(Recollection {
        run,
        last_sequence_number: tail.sequence_number,
        record: record.map(|(record, _)| record),
    }))
}

/// The error of an answer that has not the rows of every query.
pub(super) fn incomplete() -> StoreError {
    StoreError::Unavailable("PostgreSQL answered another number of queries than were asked".into())
}

/// The rows of these accounts of budgets, in the order in which a batch changes them. `lock` is what follows.
pub(super) fn accounts<'a>(
    accounts: impl Iterator<Item = &'a Account> + Clone,
    lock: &str,
) -> Query {
    let sql = format!(
        "{} WHERE (budget, account_window, account_key) IN
         (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))
         ORDER BY budget, account_window, account_key{lock}",
        BUDGET_ACCOUNTS.select()
    );
    let column = |cell: fn(&Account) -> String| -> Value {
        Box::new(accounts.clone().map(cell).collect::<Vec<_>>())
    };
    let values = vec![
        column(|account| account.budget.to_string()),
        column(|account| account.window.to_string()),
        column(|account| account.key.to_string()),
    ];
    Query::new(sql, values)
}
