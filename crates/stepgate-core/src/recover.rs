//! Recovery (decision 11): a table from the state in which a journal ends to the next action.

mod doubt;

use crate::action::Action;
use crate::approval::ApprovalStatus;
use crate::gate::{Fault, Gate};
use crate::ids::RunId;
use crate::journal::{StateCode, StateError};
use crate::machine::State;
use crate::ports::{Dossier, StoreError, Unfinished};
use crate::step::Reply;
use crate::{step, verify};

/// The action of recovery for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Decide with today's policy.
    Decide,
    /// Leave it: the run waits for a person.
    Wait,
    /// Ask policy again, then dispatch for the first time.
    Dispatch,
    /// Dispatch again, with the same call and key.
    Redispatch,
    /// Nothing: it is over.
    Read,
    /// Leave it, and report it to the operator: the journal and the approval contradict each other.
    Quarantine,
}

/// The table. `approval` is that of the trace, where a person was asked.
pub fn remedy(state: State, approval: Option<ApprovalStatus>) -> Remedy {
    use ApprovalStatus::{Approved, Denied, Expired, Pending};
    match (state, approval) {
        (State::Pending, None) => Remedy::Decide,
        (State::Pending, Some(Pending)) => Remedy::Wait,
        (State::Authorized, None | Some(Approved)) => Remedy::Dispatch,
        (State::Executing, None | Some(Approved)) => Remedy::Redispatch,
        (
            State::Completed | State::Failed | State::Denied,
            None | Some(Approved | Denied | Expired),
        ) => Remedy::Read,
        // A decision and its transition are one commit: a row that has only one of them was changed by hand.
        (
            State::Pending
            | State::Authorized
            | State::Executing
            | State::Completed
            | State::Failed
            | State::Denied,
            Some(Pending | Approved | Denied | Expired),
        ) => Remedy::Quarantine,
    }
}

/// The result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Runs that recovery ended.
    pub finished: Vec<RunId>,
    /// Runs that wait for a person.
    pub waiting: Vec<RunId>,
    /// Runs whose call was sent and whose result is unknown.
    pub in_doubt: Vec<RunId>,
    /// Runs that do not verify, with the reason. Recovery continues with the others.
    pub quarantined: Vec<(RunId, String)>,
    /// Runs that cannot continue now, with the reason: the executor stopped, or another task holds the
    /// trace's lock. The next recovery tries again.
    pub stuck: Vec<(RunId, String)>,
    /// Runs of `stuck` that another executor works on, so that no person is needed.
    pub held: Vec<RunId>,
}

impl Report {
    /// Adds the result of another recovery.
    pub fn add(&mut self, other: Self) {
        let Self { finished, waiting, in_doubt, quarantined, stuck, held } = other;
        self.finished.extend(finished);
        self.waiting.extend(waiting);
        self.in_doubt.extend(in_doubt);
        self.quarantined.extend(quarantined);
        self.stuck.extend(stuck);
        self.held.extend(held);
    }
}

/// The runs that a recovery covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Runs of core actions. They need no tool server, and this recovery ends before the first request is
    /// accepted.
    Core,
    /// Runs of tool servers. This recovery runs alongside the requests, for as long as the servers need.
    Servers,
    /// Runs of one tool server, so that a slow server delays no other.
    Server(String),
    /// Runs of all tool servers except these.
    OtherServers(Vec<String>),
}

impl Scope {
    /// Whether a recovery of this scope covers a run.
    pub fn covers(&self, run: &Unfinished) -> bool {
        let tool_name = run.tool_name.as_deref();
        let is_core = tool_name.is_some_and(|name| Action::parse(name).is_some());
        let server = tool_name.and_then(|name| name.split_once('.')).map(|(server, _)| server);
        match self {
            Self::Core => is_core,
            Self::Servers => !is_core,
            Self::Server(name) => !is_core && server == Some(name),
            Self::OtherServers(names) => {
                !is_core && !names.iter().any(|name| server == Some(name.as_str()))
            }
        }
    }
}

/// Ends every unfinished run, or reports why it cannot.
///
/// Only an error of the store stops it; the next recovery continues from there.
pub async fn recover(gate: &Gate, scope: Scope) -> Result<Report, Fault> {
    let mut report = Report::default();
    let parked = gate.parked.runs();
    let unfinished = gate.store.unfinished().await?;
    gate.doubts.keep(|run_id| unfinished.iter().any(|run| run.run_id == run_id));
    // Drops the holds of runs that have ended or that another node owns by now: that node may be waiting for
    // them.
    for run_id in parked.iter().filter(|held| unfinished.iter().all(|run| run.run_id != **held)) {
        drop(gate.parked.take(*run_id));
    }
    let waiting = unfinished.iter().filter(|run| run.is_waiting).map(|run| run.run_id).collect();
    gate.parked.forget_all_but(&waiting);
    let mut ours = unfinished;
    ours.retain(|run| scope.covers(run));
    // Runs that this process has a hold for come first: until then no other call can use what they hold.
    // Runs that wait for a person come last: they block no other call, and there may be thousands.
    ours.sort_by_key(|run| match (parked.contains(&run.run_id), run.is_waiting) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => 2,
    });
    for Unfinished { run_id, is_waiting, .. } in ours {
        let left = match is_waiting {
            true => look_at_waiting(gate, run_id).await,
            false => recover_run(gate, run_id).await,
        };
        match left {
            Ok(Left::Alone) => {}
            Ok(Left::Finished) => report.finished.push(run_id),
            Ok(Left::Waiting) => report.waiting.push(run_id),
            Ok(Left::InDoubt) => report.in_doubt.push(run_id),
            Err(Fault::Store(StoreError::State(error))) => match error.code {
                StateCode::LockAcquireFailed | StateCode::ConcurrentExecution => {
                    report.held.push(run_id);
                    report.stuck.push((run_id, error.to_string()));
                }
                StateCode::InvalidTransition
                | StateCode::SequenceGap
                | StateCode::ChecksumMismatch
                | StateCode::RecoveryFailed => {
                    report.quarantined.push((run_id, error.to_string()));
                }
            },
            Err(fault @ Fault::Executor(_)) => report.stuck.push((run_id, fault.to_string())),
            Err(fault @ (Fault::Store(_) | Fault::ForeignSession(_))) => {
                return Err(fault);
            }
        }
    }
    Ok(report)
}

/// The state in which recovery left a run that verifies.
enum Left {
    /// Another task continues the run.
    Alone,
    Finished,
    Waiting,
    InDoubt,
}

/// Applies the table to one run. Spec 004's steps 1 to 6: lock, checkpoint, replay, go on, unlock.
///
/// The lock of this first read may be released in between: the step that continues the run reads and proves
/// it again under its own lock.
async fn recover_run(gate: &Gate, run_id: RunId) -> Result<Left, Fault> {
    gate.store.acquire_trace_lock(run_id).await?;
    let looked = look(gate, run_id).await;
    gate.store.release_trace_lock(run_id).await?;
    let (dossier, remedy) = looked?;
    match remedy {
        Remedy::Decide | Remedy::Dispatch | Remedy::Redispatch => {
            let answer = step::redispatch(gate, run_id).await?;
            match answer.reply {
                Reply::Recorded(_) => Ok(Left::Finished),
                Reply::ApprovalRequired(_) => Ok(Left::Waiting),
                Reply::InProgress(_) => doubt::ask_the_tool(gate, &dossier).await,
            }
        }
        Remedy::Read => Ok(Left::Finished),
        Remedy::Wait => Ok(Left::Waiting),
        Remedy::Quarantine => Err(contradicts(run_id)),
    }
}

/// Applies the table to a run that waits for a person, without its lock: the run is not changed, and where
/// several nodes share the store a lock costs two writes.
async fn look_at_waiting(gate: &Gate, run_id: RunId) -> Result<Left, Fault> {
    if gate.parked.is_sound(run_id) {
        return Ok(Left::Waiting);
    }
    let (_, remedy) = look(gate, run_id).await?;
    match remedy {
        Remedy::Wait => {
            gate.parked.note_sound(run_id);
            Ok(Left::Waiting)
        }
        // A person decided after the run was listed, and that request continues the run.
        Remedy::Decide | Remedy::Dispatch | Remedy::Redispatch | Remedy::Read => Ok(Left::Alone),
        Remedy::Quarantine => Err(contradicts(run_id)),
    }
}

fn contradicts(run_id: RunId) -> Fault {
    failed(run_id, "journal and approval contradict").into()
}

/// Reads a run and looks it up in the table. A run that does not verify is STATE_RECOVERY_FAILED.
async fn look(gate: &Gate, run_id: RunId) -> Result<(Dossier, Remedy), Fault> {
    let dossier = match gate.store.dossier(run_id).await {
        Ok(Some(dossier)) => dossier,
        Ok(None) => return Err(failed(run_id, "there is no such run").into()),
        Err(StoreError::State(error)) => return Err(failed(run_id, error).into()),
        Err(error) => return Err(error.into()),
    };
    let replayed = verify::run::prove(&dossier).map_err(|error| failed(run_id, error))?;
    let unopened = || StateError::checksum("an unfinished run without a journal");
    let state = replayed.tail.state.ok_or_else(|| failed(run_id, unopened()))?;
    let approval = dossier.approval.as_ref().map(|approval| approval.status);
    Ok((dossier, remedy(state, approval)))
}

fn failed(run_id: RunId, why: impl ToString) -> StateError {
    StateError::new(StateCode::RecoveryFailed, format!("run {run_id}: {}", why.to_string()))
}

#[cfg(test)]
mod tests;
