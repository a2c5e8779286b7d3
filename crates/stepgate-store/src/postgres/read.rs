//! Reading rows: every query by a key, and how its rows are combined.

use std::sync::Arc;

use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::Tail;
use stepgate_core::ports::{Dossier, Recollection, StoreError};
use stepgate_core::run::Status;
use stepgate_core::session::SessionKind;
use tokio_postgres::Row;

use super::cells::{all, one};
use super::columns::rows_of;
use super::link::Query;
use crate::plan::Trace;
use crate::rows::{
    APPROVALS, CHECKPOINTS, Cells, EFFECTS, EVENTS, JOURNAL, RECORDS, SEALED_PAYLOADS, TOOL_RUNS,
    appended_from, approval_from, binding_from, checkpoint_from, event_from, record_from, run_from,
    tail_from,
};

/// A query by one text.
fn by_text(sql: &'static str, key: impl ToString) -> Query {
    Query::new(sql, vec![Box::new(key.to_string())])
}

/// A session.
pub(super) fn session(session_id: SessionId) -> Query {
    by_text(concat!(rows_of!(sessions), " WHERE session_id = $1"), session_id)
}

/// The first session of this kind that belongs to the principal.
pub(super) fn session_of(principal_id: &PrincipalId, kind: SessionKind) -> Query {
    let sql = concat!(
        rows_of!(sessions),
        " WHERE principal_id = $1 AND kind = $2
               ORDER BY position LIMIT 1"
    );
    let values =
        vec![Box::new(principal_id.as_str().to_owned()) as _, Box::new(kind.as_str()) as _];
    Query::new(sql, values)
}

/// The default session that a principal has on this node.
pub(super) fn default_session_of(principal_id: &PrincipalId, node_id: Option<&str>) -> Query {
    let sql = concat!(
        rows_of!(sessions),
        " WHERE principal_id = $1 AND kind = 'default'
               AND node_id IS NOT DISTINCT FROM $2"
    );
    let values = vec![
        Box::new(principal_id.as_str().to_owned()) as _,
        Box::new(node_id.map(str::to_owned)) as _,
    ];
    Query::new(sql, values)
}

/// Every session, in the order of their ids.
pub(super) fn sessions() -> Query {
    Query::new(concat!(rows_of!(sessions), " ORDER BY session_id"), Vec::new())
}

/// The state of a trace: the run's row joined with its last entry.
pub(super) fn trace(run_id: RunId) -> Query {
    by_text(TRACE, run_id)
}

const TRACE: &str = concat!(
    "SELECT run.tool_run_id, run.session_id AS run_session_id, run.status,
    EXISTS (SELECT 1 FROM sealed_payloads AS sealed
            WHERE sealed.tool_run_id = run.tool_run_id)::int::bigint AS is_sealed, entry.*
    FROM tool_runs AS run LEFT JOIN LATERAL
      (",
    rows_of!(journal),
    " WHERE trace_id = run.tool_run_id
       ORDER BY sequence_number DESC LIMIT 1) AS entry ON true
    WHERE run.tool_run_id = $1"
);

/// The state of a trace, from a row of [`trace`].
pub(super) fn trace_from(cells: &Cells<'_>) -> Result<Trace, StoreError> {
    let tail = match cells.maybe_number("sequence_number")? {
        Some(_) => tail_from(cells)?,
        None => Tail::EMPTY,
    };
    Ok(Trace {
        session_id: cells.parsed("run_session_id")?,
        status: cells.spelled("status", Status::parse)?,
        tail,
        is_sealed: cells.number("is_sealed")? == 1,
    })
}

/// The entries after a sequence number.
pub(super) fn entries(run_id: RunId, after: u64) -> Query {
    let sql = concat!(
        rows_of!(journal),
        " WHERE trace_id = $1 AND sequence_number > $2
               ORDER BY sequence_number"
    );
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    Query::new(sql, vec![Box::new(run_id.to_string()), Box::new(after)])
}

/// The checkpoint with the highest sequence number.
pub(super) fn latest_checkpoint(run_id: RunId) -> Query {
    let sql = concat!(
        rows_of!(checkpoints),
        " WHERE trace_id = $1
               ORDER BY checkpoint_sequence_number DESC LIMIT 1"
    );
    by_text(sql, run_id)
}

/// What a key is bound to.
pub(super) fn binding(key: &IdempotencyKey) -> Query {
    by_text(concat!(rows_of!(effects), " WHERE idempotency_key = $1"), key.as_str())
}

/// The events of these ids.
pub(super) fn events_by_id(event_ids: &[ArtifactId]) -> Query {
    let ids: Vec<String> = event_ids.iter().map(ToString::to_string).collect();
    Query::new(concat!(rows_of!(events), " WHERE event_id = ANY($1)"), vec![Box::new(ids)])
}

/// An approval.
pub(super) fn approval(approval_id: ApprovalId) -> Query {
    by_text(concat!(rows_of!(approvals), " WHERE approval_id = $1"), approval_id)
}

/// A run.
pub(super) fn run(run_id: RunId) -> Query {
    by_text(concat!(rows_of!(tool_runs), " WHERE tool_run_id = $1"), run_id)
}

fn record(run_id: RunId) -> Query {
    by_text(concat!(rows_of!(records), " WHERE tool_run_id = $1"), run_id)
}

/// Everything about one run.
pub(super) fn dossier(run_id: RunId) -> Vec<Query> {
    let checkpoints = concat!(
        rows_of!(checkpoints),
        " WHERE trace_id = $1
                       ORDER BY checkpoint_sequence_number"
    );
    vec![
        run(run_id),
        entries(run_id, 0),
        by_text(checkpoints, run_id),
        by_text(concat!(rows_of!(approvals), " WHERE tool_run_id = $1"), run_id),
        by_text(concat!(rows_of!(effects), " WHERE trace_id = $1"), run_id),
        by_text(concat!(rows_of!(events), " WHERE tool_run_id = $1 ORDER BY position"), run_id),
        by_text(concat!(rows_of!(sealed_payloads), " WHERE tool_run_id = $1"), run_id),
        record(run_id),
    ]
}

/// The dossier, from the rows of [`dossier`].
pub(super) fn dossier_from(rows: &[Vec<Row>]) -> Result<Option<Dossier>, StoreError> {
    let [runs, entries, checkpoints, approvals, effects, events, sealed, records] = rows else {
        return Err(incomplete());
    };
    let Some(run) = one(runs, TOOL_RUNS, run_from)? else {
        return Ok(None);
    };
    let entries = all(entries, JOURNAL, appended_from)?;
    let open_link = entries.first().and_then(|(_, link)| *link);
    // A run that is over has no payload stored apart.
    let sealed = if run.status.is_final() { &[][..] } else { sealed };
    Ok(Some(Dossier {
        entries: entries.into_iter().map(|(appended, _)| appended).collect(),
        open_link,
        checkpoints: all(checkpoints, CHECKPOINTS, checkpoint_from)?,
        approval: one(approvals, APPROVALS, approval_from)?,
        binding: one(effects, EFFECTS, binding_from)?,
        events: all(events, EVENTS, event_from)?,
        sealed: one(sealed, SEALED_PAYLOADS, |cells| Ok(Arc::from(cells.bytes("payload")?)))?,
        record: one(records, RECORDS, |cells| record_from(cells, &run))?,
        run,
    }))
}

/// The data for answering a known proposal again.
pub(super) fn recollection(run_id: RunId) -> Vec<Query> {
    let tail =
        concat!(rows_of!(journal), " WHERE trace_id = $1 ORDER BY sequence_number DESC LIMIT 1");
    vec![run(run_id), record(run_id), by_text(tail, run_id)]
}

/// The recollection, from the rows of [`recollection`].
pub(super) fn recollection_from(rows: &[Vec<Row>]) -> Result<Option<Recollection>, StoreError> {
    let [runs, records, tail] = rows else {
        return Err(incomplete());
    };
    let Some(run) = one(runs, TOOL_RUNS, run_from)? else {
        return Ok(None);
    };
    let record = one(records, RECORDS, |cells| record_from(cells, &run))?;
    let tail = one(tail, JOURNAL, tail_from)?.unwrap_or(Tail::EMPTY);
    Ok(Some(Recollection {
        run,
        last_sequence_number: tail.sequence_number,
        record: record.map(|(record, _)| record),
    }))
}

fn incomplete() -> StoreError {
    StoreError::Unavailable("PostgreSQL answered another number of queries than were asked".into())
}
