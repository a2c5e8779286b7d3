//! Writing rows: every statement that changes the database.

use rusqlite::{CachedStatement, Connection, Result, params};
use stepgate_core::approval::Approval;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{IdempotencyKey, RunId, SessionId};
use stepgate_core::journal::{Appended, Checkpoint};
use stepgate_core::json::canonical;
use stepgate_core::ports::{ApprovalChange, KeyChange};
use stepgate_core::record::Record;
use stepgate_core::run::{Ending, Status};
use stepgate_core::session::{Head, Link, Session};

use crate::plan::{Chain, NewRun, Rows, RunChange, SealedChange};

/// The statements of one batch; each is looked up once, however many rows it writes.
pub(super) struct Statements<'c> {
    connection: &'c Connection,
    prepared: Vec<(&'static str, CachedStatement<'c>)>,
}

impl<'c> Statements<'c> {
    pub(super) fn of_batch(connection: &'c Connection) -> Self {
        Self { connection, prepared: Vec::with_capacity(16) }
    }

    /// The statement with this text. Texts are compared by their address in the program.
    fn of(&mut self, sql: &'static str) -> Result<&mut CachedStatement<'c>> {
        let at = match self.prepared.iter().position(|(text, _)| std::ptr::eq(*text, sql)) {
            Some(at) => at,
            None => {
                self.prepared.push((sql, self.connection.prepare_cached(sql)?));
                self.prepared.len() - 1
            }
        };
        let found = self.prepared.get_mut(at).map(|(_, statement)| statement);
        found.ok_or(rusqlite::Error::InvalidQuery)
    }
}

/// Writes the rows of one plan. The state of a session is written once for all plans of a batch, by
/// [`chain`].
pub(super) fn rows(statements: &mut Statements<'_>, rows: &Rows<'_>) -> Result<()> {
    if let Some(session) = rows.session {
        insert_session(statements, session)?;
    }
    if let Some(new) = rows.run {
        insert_run(statements, new)?;
    }
    for (appended, link) in &rows.entries {
        insert_entry(statements, appended, *link)?;
    }
    if let Some(checkpoint) = rows.checkpoint {
        insert_checkpoint(statements, checkpoint)?;
    }
    match rows.approval {
        Some(ApprovalChange::Ask(approval)) => insert_approval(statements, approval)?,
        Some(ApprovalChange::Decide(approval)) => decide_approval(statements, approval)?,
        None => {}
    }
    match rows.key {
        Some(KeyChange::Bind(binding)) => insert_binding(statements, binding)?,
        Some(KeyChange::Settle(key)) => settle(statements, key)?,
        None => {}
    }
    match rows.change {
        Some(RunChange::Status(run_id, status)) => update_status(statements, run_id, status)?,
        Some(RunChange::End(record)) => end_run(statements, record)?,
        None => {}
    }
    for (event, link) in &rows.events {
        insert_event(statements, event, *link)?;
    }
    if let Some((record, link)) = rows.record {
        insert_record(statements, record, link)?;
    }
    match rows.sealed {
        Some(SealedChange::Keep(run_id, payload)) => insert_sealed(statements, run_id, payload)?,
        // After the run has ended: before that, a trigger refuses.
        Some(SealedChange::Erase(run_id)) => delete_sealed(statements, run_id)?,
        None => {}
    }
    Ok(())
}

/// Writes the state of a session.
pub(super) fn chain(
    statements: &mut Statements<'_>,
    session_id: SessionId,
    chain: &Chain,
) -> Result<()> {
    let sql =
        "UPDATE OR ROLLBACK sessions SET head_number = ?2, head_digest = ?3, last_step_index = ?4
               WHERE session_id = ?1";
    let row = params![
        session_id.to_string(),
        integer(chain.head.number),
        chain.head.digest.to_string(),
        integer(chain.last_step_index),
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn insert_session(statements: &mut Statements<'_>, session: &Session) -> Result<()> {
    let sql = "INSERT OR ROLLBACK INTO sessions
               (session_id, principal_id, kind, ts, node_id, head_number, head_digest,
                last_step_index)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0)";
    let row = params![
        session.session_id.to_string(),
        session.principal_id.as_str(),
        session.kind.as_str(),
        session.ts.to_string(),
        session.node_id.as_deref(),
        integer(Head::EMPTY.number),
        Head::EMPTY.digest.to_string(),
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn insert_run(statements: &mut Statements<'_>, new: NewRun<'_>) -> Result<()> {
    let sql = "INSERT OR ROLLBACK INTO tool_runs
               (tool_run_id, ts, session_id, principal_id, step_index, tool_name, status,
                input_json, output_json, error_json, latency_ms, payload_bytes, payload)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    let arrival = &new.run.arrival;
    let row = params![
        arrival.run_id.to_string(),
        arrival.received_at.to_string(),
        arrival.session_id.to_string(),
        arrival.principal_id.as_str(),
        integer(arrival.step_index),
        new.run.tool_name.as_deref(),
        new.status.as_str(),
        new.run.input_json.as_deref(),
        new.ending.and_then(|ending| ending.output_json.as_deref()),
        new.ending.and_then(|ending| ending.error_json.as_deref()),
        new.ending.map(|ending| integer(ending.latency_ms)),
        integer(arrival.payload.length),
        &*arrival.payload.bytes,
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn insert_entry(
    statements: &mut Statements<'_>,
    appended: &Appended,
    link: Option<Link>,
) -> Result<()> {
    let sql = "INSERT OR ROLLBACK INTO journal
               (trace_id, sequence_number, prev_entry_digest, entry_digest, ts, from_state,
                to_state, artifact_type, artifact_id, artifact_digest, tool_call_id,
                idempotency_key, artifact, link_number, link_prev, link_digest)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
    let Appended { entry, artifact } = appended;
    let row = params![
        entry.trace_id.to_string(),
        integer(entry.sequence_number),
        entry.prev_entry_digest.to_string(),
        entry.entry_digest.to_string(),
        entry.ts.to_string(),
        entry.from_state.as_str(),
        entry.to_state.as_str(),
        entry.artifact_type.as_str(),
        entry.artifact_id.to_string(),
        entry.artifact_digest.to_string(),
        entry.tool_call_id.map(|id| id.to_string()),
        entry.idempotency_key.as_ref().map(IdempotencyKey::as_str),
        artifact.text.as_str(),
        link.map(|link| integer(link.number)),
        link.map(|link| link.prev.to_string()),
        link.map(|link| link.digest.to_string()),
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn insert_checkpoint(statements: &mut Statements<'_>, checkpoint: &Checkpoint) -> Result<()> {
    let sql = "INSERT OR ROLLBACK INTO checkpoints
               (trace_id, checkpoint_sequence_number, checkpoint_state, checkpoint_digest, ts)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let row = params![
        checkpoint.trace_id.to_string(),
        integer(checkpoint.checkpoint_sequence_number),
        canonical::text_of(&checkpoint.checkpoint_state),
        checkpoint.checkpoint_digest.to_string(),
        checkpoint.ts.to_string(),
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn insert_approval(statements: &mut Statements<'_>, approval: &Approval) -> Result<()> {
    let sql = "INSERT OR ROLLBACK INTO approvals
               (approval_id, tool_run_id, ts_requested, status, approval_context_json)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let row = params![
        approval.approval_id.to_string(),
        approval.tool_run_id.to_string(),
        approval.ts_requested.to_string(),
        approval.status.as_str(),
        approval.context.text(),
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn decide_approval(statements: &mut Statements<'_>, approval: &Approval) -> Result<()> {
    let sql = "UPDATE OR ROLLBACK approvals SET status = ?2, ts_resolved = ?3, approver_id = ?4, note = ?5
               WHERE approval_id = ?1 AND status = 'pending'";
    let resolution = approval.resolution.as_ref();
    let approver_id = resolution.and_then(|resolution| resolution.approver_id.as_ref());
    let row = params![
        approval.approval_id.to_string(),
        approval.status.as_str(),
        resolution.map(|resolution| resolution.ts_resolved.to_string()),
        approver_id.map(|approver_id| approver_id.as_str()),
        resolution.and_then(|resolution| resolution.note.as_deref()),
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn insert_binding(statements: &mut Statements<'_>, binding: &Binding) -> Result<()> {
    let sql = "INSERT OR ROLLBACK INTO effects
               (idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let row = params![
        binding.idempotency_key.as_str(),
        binding.tool_server.as_str(),
        binding.tool_name.as_str(),
        binding.asked_digest.to_string(),
        binding.trace_id.to_string(),
        i64::from(binding.settled),
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn settle(statements: &mut Statements<'_>, key: &IdempotencyKey) -> Result<()> {
    let sql = "UPDATE OR ROLLBACK effects SET settled = 1 WHERE idempotency_key = ?1";
    one_row(statements.of(sql)?.execute([key.as_str()])?)
}

fn update_status(statements: &mut Statements<'_>, run_id: RunId, status: Status) -> Result<()> {
    let sql = "UPDATE OR ROLLBACK tool_runs SET status = ?2 WHERE tool_run_id = ?1";
    let row = params![run_id.to_string(), status.as_str()];
    one_row(statements.of(sql)?.execute(row)?)
}

fn end_run(statements: &mut Statements<'_>, record: &Record) -> Result<()> {
    let sql = "UPDATE OR ROLLBACK tool_runs SET status = ?2, output_json = ?3, error_json = ?4, latency_ms = ?5
               WHERE tool_run_id = ?1";
    let Ending { output_json, error_json, latency_ms } = &record.ending;
    let row = params![
        record.run_id.to_string(),
        record.status.as_str(),
        output_json.as_deref(),
        error_json.as_deref(),
        integer(*latency_ms),
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn insert_event(statements: &mut Statements<'_>, event: &Event, link: Option<Link>) -> Result<()> {
    let sql = "INSERT OR ROLLBACK INTO events
               (event_id, ts, session_id, tool_run_id, event_type, payload_json,
                sequence_number, link_number, link_prev, link_digest)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let row = params![
        event.event_id.to_string(),
        event.ts.to_string(),
        event.session_id.to_string(),
        event.run_id.map(|run_id| run_id.to_string()),
        event.event_type.as_str(),
        canonical::text_of(&event.payload),
        integer(event.sequence_number),
        link.map(|link| integer(link.number)),
        link.map(|link| link.prev.to_string()),
        link.map(|link| link.digest.to_string()),
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn insert_record(statements: &mut Statements<'_>, record: &Record, link: Link) -> Result<()> {
    let sql = "INSERT OR ROLLBACK INTO records
               (tool_run_id, record, record_digest, link_number, link_prev, link_digest)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let row = params![
        record.run_id.to_string(),
        record.text.as_str(),
        record.digest.to_string(),
        integer(link.number),
        link.prev.to_string(),
        link.digest.to_string(),
    ];
    one_row(statements.of(sql)?.execute(row)?)
}

fn insert_sealed(statements: &mut Statements<'_>, run_id: RunId, payload: &[u8]) -> Result<()> {
    let sql = "INSERT OR ROLLBACK INTO sealed_payloads (tool_run_id, payload) VALUES (?1, ?2)";
    one_row(statements.of(sql)?.execute(params![run_id.to_string(), payload])?)
}

fn delete_sealed(statements: &mut Statements<'_>, run_id: RunId) -> Result<()> {
    let sql = "DELETE FROM sealed_payloads WHERE tool_run_id = ?1";
    one_row(statements.of(sql)?.execute([run_id.to_string()])?)
}

/// A number in the type of SQLite. Counts and indexes do not come near the limit.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The plan has seen the row that a statement changes, so any other number than one row is a defect, and the
/// batch fails.
fn one_row(changed: usize) -> Result<()> {
    match changed {
        1 => Ok(()),
        other => Err(rusqlite::Error::StatementChangedRows(other)),
    }
}
