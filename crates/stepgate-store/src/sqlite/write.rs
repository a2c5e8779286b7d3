//! Writing rows: every statement that changes the database.

use rusqlite::{CachedStatement, Connection, Params, Result, params, params_from_iter};
use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{IdempotencyKey, RunId, SessionId};
use stepgate_core::ports::{ApprovalChange, KeyChange};
use stepgate_core::record::Record;
use stepgate_core::run::{Ending, Status};

use super::cells::into_values;
use crate::new_rows::{
    GIVEN_OF_ARCHIVED, account_row, approval_row, archived_row, binding_cells, chunk_row,
    erasable_row, event_row, run_row, sealed_row, session_row,
};
use crate::plan::{AccountChange, Chain, Rows, RunChange, SealedChange};
use crate::tables::{
    APPROVALS, BUDGET_ACCOUNTS, CHUNKS, Cell, ERASABLE_ARGS, EVENTS, SEALED_PAYLOADS, SESSIONS,
    TOOL_RUNS, Table, integer,
};

/// The statements of one batch; each is looked up once, however many rows it writes.
pub(super) struct Statements<'c> {
    connection: &'c Connection,
    prepared: Vec<(&'static str, CachedStatement<'c>)>,
}

impl<'c> Statements<'c> {
    pub(super) fn of_batch(connection: &'c Connection) -> Self {
        Self { connection, prepared: Vec::with_capacity(16) }
    }

    /// Adds a row.
    fn insert(&mut self, table: &Table, row: Vec<Cell<'_>>) -> Result<()> {
        let insert = || format!("INSERT OR ROLLBACK {}", into_values(table, table.given()));
        one_row(self.prepared(table.name, insert)?.execute(params_from_iter(row))?)
    }

    /// Changes a row.
    fn execute(&mut self, sql: &'static str, values: impl Params) -> Result<()> {
        one_row(self.prepared(sql, || sql.to_owned())?.execute(values)?)
    }

    /// The statement of this name: of a table, or the whole text.
    fn prepared(
        &mut self,
        name: &'static str,
        sql: impl FnOnce() -> String,
    ) -> Result<&mut CachedStatement<'c>> {
        let at = match self.prepared.iter().position(|(there, _)| *there == name) {
            Some(at) => at,
            None => {
                self.prepared.push((name, self.connection.prepare_cached(&sql())?));
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
        statements.insert(&SESSIONS, session_row(session))?;
    }
    if let Some(new) = rows.run {
        statements.insert(&TOOL_RUNS, run_row(new))?;
    }
    if let Some(chunk) = chunk_row(rows) {
        statements.insert(&CHUNKS, chunk)?;
    }
    match rows.approval {
        Some(ApprovalChange::Ask(approval)) => {
            statements.insert(&APPROVALS, approval_row(approval))?
        }
        Some(ApprovalChange::Decide(approval)) => decide_approval(statements, approval)?,
        None => {}
    }
    change_run(statements, rows)?;
    for change in &rows.accounts {
        change_account(statements, change)?;
    }
    for (event, link) in &rows.events {
        statements.insert(&EVENTS, event_row(event, *link))?;
    }
    for run in rows.archived {
        take_out(statements, run)?;
    }
    if let Some((place, arguments)) = rows.erasable {
        statements.insert(&ERASABLE_ARGS, erasable_row(place, arguments))?;
    }
    for run_id in rows.erased {
        let sql = "DELETE FROM erasable_args WHERE tool_run_id = ?1";
        statements.execute(sql, [run_id.to_string()])?;
    }
    match rows.sealed {
        Some(SealedChange::Keep(run_id, payload)) => {
            statements.insert(&SEALED_PAYLOADS, sealed_row(run_id, payload))?
        }
        // After the run has ended: before that, a trigger refuses.
        Some(SealedChange::Erase(run_id)) => delete_sealed(statements, run_id)?,
        None => {}
    }
    Ok(())
}

/// The changes of a run's row and of its key. A key is bound before the run ends: after that, triggers refuse.
fn change_run(statements: &mut Statements<'_>, rows: &Rows<'_>) -> Result<()> {
    let has_own_key = rows.trace.is_some_and(|(_, trace)| trace.has_own_key);
    let mut settled = None;
    match rows.key {
        // The row of a new run has it.
        Some(KeyChange::Bind(_)) if rows.run.is_some() => {}
        Some(KeyChange::Bind(binding)) => bind(statements, binding)?,
        Some(KeyChange::Settle(key)) if has_own_key => settled = Some(key),
        Some(KeyChange::Settle(key)) => settle_elsewhere(statements, key)?,
        None => {}
    }
    match (rows.change, settled) {
        (Some(RunChange::End(record)), settled) => return end_run(statements, record, settled),
        (Some(RunChange::Status(run_id, status)), _) => update_status(statements, run_id, status)?,
        (None, _) => {}
    }
    settled.map_or(Ok(()), |key| settle(statements, key))
}

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
    statements.execute(sql, row)
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
    statements.execute(sql, row)
}

/// Binds a key of a run that was opened before.
fn bind(statements: &mut Statements<'_>, binding: &Binding) -> Result<()> {
    let sql =
        "UPDATE OR ROLLBACK tool_runs SET idempotency_key = ?2, tool_server = ?3, bound_tool = ?4,
                 asked_digest = ?5, settled = ?6
               WHERE tool_run_id = ?1 AND idempotency_key IS NULL";
    let run_id = [Cell::text_of(binding.trace_id)].into_iter();
    statements.execute(sql, params_from_iter(run_id.chain(binding_cells(Some(binding)))))
}

fn settle(statements: &mut Statements<'_>, key: &IdempotencyKey) -> Result<()> {
    let sql = "UPDATE OR ROLLBACK tool_runs SET settled = 1 WHERE idempotency_key = ?1";
    statements.execute(sql, [key.as_str()])
}

/// The same of a key that a run of an older version has bound.
fn settle_elsewhere(statements: &mut Statements<'_>, key: &IdempotencyKey) -> Result<()> {
    let sql = "UPDATE OR ROLLBACK effects SET settled = 1 WHERE idempotency_key = ?1";
    statements.execute(sql, [key.as_str()])
}

fn update_status(statements: &mut Statements<'_>, run_id: RunId, status: Status) -> Result<()> {
    let sql = "UPDATE OR ROLLBACK tool_runs SET status = ?2 WHERE tool_run_id = ?1";
    statements.execute(sql, params![run_id.to_string(), status.as_str()])
}

/// Ends a run, and settles the key in its row, where there is one to settle.
fn end_run(
    statements: &mut Statements<'_>,
    record: &Record,
    settled: Option<&IdempotencyKey>,
) -> Result<()> {
    let sql = "UPDATE OR ROLLBACK tool_runs SET status = ?2, output_json = ?3, error_json = ?4, latency_ms = ?5,
                 settled = iif(?6, 1, settled)
               WHERE tool_run_id = ?1";
    let Ending { output_json, error_json, latency_ms } = &record.ending;
    let row = params![
        record.run_id.to_string(),
        record.status.as_str(),
        output_json.as_deref(),
        error_json.as_deref(),
        integer(*latency_ms),
        settled.is_some(),
    ];
    statements.execute(sql, row)
}

fn change_account(statements: &mut Statements<'_>, change: &AccountChange<'_>) -> Result<()> {
    let AccountChange { account, before, after, .. } = change;
    let Some(before) = before else {
        return statements.insert(&BUDGET_ACCOUNTS, account_row(account, *after));
    };
    let sql = "UPDATE OR ROLLBACK budget_accounts SET used = ?4
               WHERE budget = ?1 AND account_window = ?2 AND account_key = ?3 AND used = ?5";
    let row = params![
        account.budget.as_str(),
        account.window.to_string(),
        account.key.as_str(),
        after.units(),
        before.units(),
    ];
    statements.execute(sql, row)
}

/// Deletes the rows of a run, after what is kept of it is written: before that, triggers refuse. Another trigger moves the
/// binding of its key into `effects`. The event that says so is
/// written before, so that the last position of an event is not given again.
fn take_out(statements: &mut Statements<'_>, run: &ArchivedRun) -> Result<()> {
    let keep = format!(
        "INSERT OR ROLLBACK INTO archived_runs ({GIVEN_OF_ARCHIVED}, run_position, chunks)
         SELECT ?, ?, ?, ?, ?, ?, ?, ?, position,
                (SELECT count(*) FROM chunks WHERE trace_id = tool_run_id)
         FROM tool_runs WHERE tool_run_id = ?1"
    );
    let row = archived_row(run);
    one_row(statements.prepared("archived_runs", || keep)?.execute(params_from_iter(row))?)?;
    let run_id = run.run_id.to_string();
    let mut delete = |sql: &'static str| -> Result<usize> {
        statements.prepared(sql, || sql.to_owned())?.execute([&run_id])
    };
    delete("DELETE FROM chunks WHERE trace_id = ?1")?;
    delete("DELETE FROM approvals WHERE tool_run_id = ?1")?;
    delete("DELETE FROM events WHERE tool_run_id = ?1")?;
    one_row(delete("DELETE FROM tool_runs WHERE tool_run_id = ?1")?)
}

fn delete_sealed(statements: &mut Statements<'_>, run_id: RunId) -> Result<()> {
    let sql = "DELETE FROM sealed_payloads WHERE tool_run_id = ?1";
    statements.execute(sql, [run_id.to_string()])
}

/// The plan has seen the row that a statement changes, so any other number than one row is a defect, and the
/// batch fails.
fn one_row(changed: usize) -> Result<()> {
    match changed {
        1 => Ok(()),
        other => Err(rusqlite::Error::StatementChangedRows(other)),
    }
}
