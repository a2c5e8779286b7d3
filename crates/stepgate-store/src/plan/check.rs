//! The conditions of a step's commit, one function each.

use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::budget::{BudgetChange, Charge};
use stepgate_core::event::{EventType, payload};
use stepgate_core::ids::RunId;
use stepgate_core::journal::{Appended, Kind, StateCode, StateError, Tail};
use stepgate_core::ports::{ApprovalChange, KeyChange, StepCommit, StoreError};
use stepgate_core::run::Status;

use super::{AccountChange, Trace, View, refusal};

use crate::Result;

/// The refusal of a write about a run that does not exist.
pub(super) fn no_run(run_id: RunId) -> StoreError {
    refusal(StateCode::RecoveryFailed, format!("there is no run {run_id}"))
}

/// Every part of a commit must name the commit's own run and session: otherwise a part would be linked into
/// a chain where no reader looks for it.
pub(super) fn is_about_its_place(commit: &StepCommit) -> Result<()> {
    let place = commit.place;
    let elsewhere = |what: &str| {
        let detail = format!("{what} belongs to another run than {}", place.run_id);
        Err(refusal(StateCode::InvalidTransition, detail))
    };
    if let Some(run) = &commit.open
        && (run.arrival.run_id != place.run_id || run.arrival.session_id != place.session_id)
    {
        return elsewhere("the run's row");
    }
    for Appended { entry, .. } in &commit.entries {
        if entry.trace_id != place.run_id {
            return elsewhere("an entry");
        }
    }
    for event in &commit.events {
        if event.run_id != Some(place.run_id) || event.session_id != place.session_id {
            return elsewhere("an event");
        }
    }
    if let Some(checkpoint) = &commit.checkpoint
        && (checkpoint.trace_id != place.run_id
            || checkpoint.checkpoint_state.plan_id != place.session_id)
    {
        return elsewhere("the checkpoint");
    }
    match &commit.approval {
        Some(ApprovalChange::Ask(approval) | ApprovalChange::Decide(approval))
            if approval.tool_run_id != place.run_id =>
        {
            return elsewhere("the approval");
        }
        Some(ApprovalChange::Ask(_) | ApprovalChange::Decide(_)) | None => {}
    }
    match &commit.key {
        Some(KeyChange::Bind(binding)) if binding.trace_id != place.run_id => {
            return elsewhere("the key");
        }
        Some(KeyChange::Bind(_) | KeyChange::Settle(_)) | None => {}
    }
    match &commit.record {
        Some(record) if record.run_id != place.run_id => elsewhere("the record"),
        Some(_) | None => Ok(()),
    }
}

/// The journal's tail after the entries of the commit. `unhashed` is the first entry whose digest is not
/// that of its fields.
pub(super) fn journal_goes_on(
    commit: &StepCommit,
    unhashed: Option<u64>,
    before: Option<&Trace>,
) -> Result<Tail> {
    let mut tail = before.map_or(Tail::EMPTY, |trace| trace.tail);
    for Appended { entry, artifact } in &commit.entries {
        tail = tail.accept_hashed(entry)?;
        if unhashed == Some(entry.sequence_number) {
            return Err(entry.without_its_digest().into());
        }
        let describes = entry.artifact_digest == artifact.digest
            && entry.artifact_id == artifact.id
            && entry.artifact_type == artifact.kind
            && entry.ts == artifact.ts;
        if !describes {
            let detail = format!("entry {} does not describe its artifact", entry.sequence_number);
            return Err(StateError::checksum(detail).into());
        }
    }
    Ok(tail)
}

/// The run's status after the commit. The run must exist and not be over, or be opened once; it ends with
/// its record and in no other way.
pub(super) fn status_after(
    commit: &StepCommit,
    before: Option<&Trace>,
    tail: &Tail,
) -> Result<Status> {
    let run_id = commit.place.run_id;
    let invalid = |why: &str| {
        let detail = format!("run {run_id} {why}");
        Err(refusal(StateCode::InvalidTransition, detail))
    };
    let current = match (&commit.open, before) {
        (Some(_), Some(_)) => return invalid("is open already"),
        (None, None) => return Err(no_run(run_id)),
        (None, Some(trace)) if trace.status.is_final() => return invalid("is over"),
        (None, Some(trace)) if trace.session_id != commit.place.session_id => {
            return invalid("belongs to another session");
        }
        (None, Some(trace)) => trace.status,
        (Some(run), None) => run.status,
    };
    match &commit.record {
        Some(record) if !record.status.is_final() => invalid("ends with a final status"),
        Some(_) if tail.state.is_some_and(|state| !state.is_terminal()) => {
            invalid("is recorded when its trace has ended")
        }
        Some(record) => Ok(record.status),
        None => match commit.status.unwrap_or(current) {
            status if status.is_final() => invalid("ends with its record"),
            status => Ok(status),
        },
    }
}

/// A checkpoint must be consistent, the first at its number, and match the journal as it is.
pub(super) fn checkpoint_fits(
    commit: &StepCommit,
    is_sound: bool,
    tail: &Tail,
    view: &mut impl View,
) -> Result<()> {
    let Some(checkpoint) = &commit.checkpoint else {
        return Ok(());
    };
    let number = checkpoint.checkpoint_sequence_number;
    let mismatch = |why: &str| {
        let detail = format!("checkpoint {number} {why}");
        Err(StateError::checksum(detail).into())
    };
    if !is_sound {
        return mismatch("does not have the digest of its state");
    }
    if number > tail.sequence_number || number == 0 {
        return mismatch("is not about an entry of the journal");
    }
    if number == tail.sequence_number && !checkpoint.fixes(tail) {
        return mismatch("does not fix the journal as it is");
    }
    // A run that opens with this commit has no checkpoint yet.
    if commit.open.is_none() && view.has_checkpoint(commit.place.run_id, number)? {
        let detail = format!("there is a checkpoint {number} already");
        return Err(refusal(StateCode::SequenceGap, detail));
    }
    Ok(())
}

/// A key is bound once, by a trace that has no other key, and settled once, by the trace that bound it.
pub(super) fn key_is_free(commit: &StepCommit, view: &mut impl View) -> Result<()> {
    let run_id = commit.place.run_id;
    match &commit.key {
        None => Ok(()),
        Some(KeyChange::Bind(binding)) => {
            if view.is_bound(&binding.idempotency_key)? {
                return Err(StoreError::KeyTaken);
            }
            // A run that opens with this commit has no key yet.
            if commit.open.is_none() && view.has_key(run_id)? {
                let detail = format!("run {run_id} has bound another key");
                return Err(refusal(StateCode::InvalidTransition, detail));
            }
            Ok(())
        }
        Some(KeyChange::Settle(key)) => {
            if view.is_in_flight(key, run_id)? {
                return Ok(());
            }
            let detail = format!("run {run_id} has no effect in flight under `{key}`");
            Err(refusal(StateCode::InvalidTransition, detail))
        }
    }
}

/// A run asks for one approval, and it is decided once: the compare of compare-and-set.
pub(super) fn approval_is_open(commit: &StepCommit, view: &mut impl View) -> Result<()> {
    let run_id = commit.place.run_id;
    match &commit.approval {
        None => Ok(()),
        Some(ApprovalChange::Ask(approval)) => {
            let is_question =
                approval.status == ApprovalStatus::Pending && approval.resolution.is_none();
            let is_first =
                !view.has_approval(run_id)? && view.approval(approval.approval_id)?.is_none();
            if is_question && is_first {
                Ok(())
            } else {
                let detail = format!("run {run_id} asks one open question, once");
                Err(refusal(StateCode::InvalidTransition, detail))
            }
        }
        Some(ApprovalChange::Decide(approval)) => {
            let Some(asked) = view.approval(approval.approval_id)? else {
                let detail = format!("there is no approval {}", approval.approval_id);
                return Err(refusal(StateCode::RecoveryFailed, detail));
            };
            decides(&asked, approval)
        }
    }
}

/// The original payload must be stored apart when its run is opened: later, the row would already have had
/// it in plain text.
pub(super) fn sealed_with_its_run(commit: &StepCommit) -> Result<()> {
    if (commit.sealed.is_some() || commit.erasable.is_some()) && commit.open.is_none() {
        let run_id = commit.place.run_id;
        let detail = format!("run {run_id} is open, and its payload not to be kept apart");
        return Err(refusal(StateCode::InvalidTransition, detail));
    }
    Ok(())
}

/// The accounts as the commit leaves them. A call is charged in the commit that has it, each account once and within its
/// limit, and what it took is given back with the record. Each change has its event, so that the accounts are the sum of
/// the events.
pub(super) fn budgets_allow<'a>(
    commit: &'a StepCommit,
    view: &mut impl View,
) -> Result<Vec<AccountChange<'a>>> {
    has_its_events(commit)?;
    let invalid = |why: &str| {
        let detail = format!("run {} {why}", commit.place.run_id);
        refusal(StateCode::InvalidTransition, detail)
    };
    let has_call = commit.entries.iter().any(|it| it.entry.artifact_type == Kind::ToolCall);
    let mut changes: Vec<AccountChange<'a>> = Vec::with_capacity(commit.budgets.len());
    for change in &commit.budgets {
        let (BudgetChange::Reserve(charge) | BudgetChange::Release(charge)) = change;
        let account = charge.account();
        if changes.iter().any(|earlier| earlier.account == account) {
            return Err(invalid("changes an account twice"));
        }
        let before = view.used(&account)?;
        let used = before.unwrap_or_default();
        let after = match change {
            BudgetChange::Reserve(_) if !has_call => {
                return Err(invalid("takes from a budget without a call"));
            }
            BudgetChange::Reserve(Charge { amount, .. }) if amount.units() < 0 => {
                return Err(invalid("takes less than nothing from a budget"));
            }
            BudgetChange::Reserve(charge) => {
                charge.onto(used).map_err(|over| StoreError::OverBudget(Box::new(over)))?
            }
            BudgetChange::Release(_) if commit.record.is_none() => {
                return Err(invalid("gives back to a budget before its end"));
            }
            BudgetChange::Release(charge) => used
                .minus(charge.amount)
                .ok_or_else(|| invalid("gives back more to a budget than was taken"))?,
        };
        changes.push(AccountChange { account, change, before, after });
    }
    Ok(changes)
}

/// Each change of a budget has its event in the commit, in the same order, and there is no other.
fn has_its_events(commit: &StepCommit) -> Result<()> {
    let told = commit.events.iter().filter(|event| {
        [EventType::BudgetReserved, EventType::BudgetReleased].contains(&event.event_type)
    });
    let is_told = told.map(|event| (event.event_type, event.payload.clone())).eq(commit
        .budgets
        .iter()
        .map(|change| match change {
            BudgetChange::Reserve(charge) => (EventType::BudgetReserved, payload::value(charge)),
            BudgetChange::Release(charge) => (EventType::BudgetReleased, payload::value(charge)),
        }));
    match is_told {
        true => Ok(()),
        false => {
            let detail = format!("run {}: events and budgets differ", commit.place.run_id);
            Err(refusal(StateCode::InvalidTransition, detail))
        }
    }
}

fn decides(asked: &Approval, decided: &Approval) -> Result<()> {
    if asked.status != ApprovalStatus::Pending {
        return Err(StoreError::AlreadyDecided);
    }
    let as_asked = Approval { status: asked.status, resolution: None, ..decided.clone() };
    let is_answer = decided.status != ApprovalStatus::Pending && decided.resolution.is_some();
    if is_answer && as_asked == *asked {
        Ok(())
    } else {
        let detail = format!("approval {} is not decided as asked", asked.approval_id);
        Err(StateError::checksum(detail).into())
    }
}
