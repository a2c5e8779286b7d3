//! Erasable arguments: the journal has their digests, and the store keeps the arguments apart until an operator erases them.
//! So the chain verifies before and after.
//!
//! An erasure is one event of the system session, in one commit with the end of the rows.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::{Event, EventType, payload};
use crate::gate::{Fault, Gate};
use crate::hold::{self, Held};
use crate::ids::{PrincipalId, RunId, SessionId};
use crate::journal::{StateCode, StateError};
use crate::json::{Map, Value, strict};
use crate::ports::{ErasableArgs, EraseCommit, OriginalPayload, Store, StoreError};
use crate::system;

/// Most runs in one erasure: so many are named by one event.
const RUNS_MAX: usize = 256;
/// How many rows are read at a time.
pub(crate) const PAGE: usize = 256;
/// How often a commit is tried, where others write into the system session at the same time.
const TRIES_MAX: usize = 16;

/// `erasable_stored`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErasableStored {
    /// The names of the arguments.
    pub arguments: BTreeSet<String>,
}

/// `erasable_erased`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErasableErased {
    /// Who ordered it.
    pub erased_by: PrincipalId,
    /// Why.
    pub reason: String,
    /// The runs whose arguments are gone.
    pub runs: BTreeSet<RunId>,
}

/// Which erasable arguments are meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErasableTarget {
    /// Those of one run.
    Run(RunId),
    /// Those of a session's runs.
    Session(SessionId),
    /// Those of a principal's runs.
    Principal(PrincipalId),
    /// Those of all runs where a text in them contains this one. Upper and lower case are different.
    Containing(String),
}

/// The runs that an order to erase is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FoundErasable")]
pub struct Found {
    /// Their arguments can be erased, or were erased now.
    pub runs: Vec<RunId>,
    /// A hold covers them: they keep their arguments.
    pub held: Vec<RunId>,
    /// Their steps are not over, and need their arguments.
    pub open: Vec<RunId>,
    /// They, or their arguments, cannot be read.
    // The key is not there, or the row was changed: whether they contain the text, or are over, is not known.
    pub unreadable: Vec<RunId>,
}

/// The stored form of erasable arguments.
pub(crate) fn text_of(arguments: Map<String, Value>) -> String {
    // Not in canonical form, which spells 1e20 as an integer that the strict parser refuses.
    Value::Object(arguments).to_string()
}

/// Erasable arguments from their stored form.
pub fn read(bytes: &[u8]) -> Result<Map<String, Value>, StateError> {
    match strict::parse(bytes, strict::DEPTH_MAX, strict::Integers::Exact) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) | Err(_) => Err(StateError::checksum("the erasable arguments are no JSON object")),
    }
}

impl ErasableArgs {
    /// The arguments; none where they are encrypted under a key that this process does not have.
    pub fn arguments(&self) -> Result<Option<Map<String, Value>>, StateError> {
        match &self.args {
            Ok(OriginalPayload::Known(bytes)) => read(bytes).map(Some),
            Ok(OriginalPayload::Locked { .. }) => Ok(None),
            Err(error) => Err(error.clone()),
        }
    }
}

/// The runs that an order is about. Nothing changes.
pub async fn find(store: &dyn Store, target: &ErasableTarget) -> Result<Found, StoreError> {
    let mut found = Found::default();
    let mut judge = Judge::of(store).await?;
    if let ErasableTarget::Run(run_id) = target {
        if let Some(row) = store.erasable(*run_id).await? {
            judge.add(store, &row, &mut found).await?;
        }
        return Ok(found);
    }
    let mut after = None;
    loop {
        let page = store.erasable_page(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.run_id);
        for row in &page {
            let is_meant = match target {
                ErasableTarget::Run(run_id) => row.run_id == *run_id,
                ErasableTarget::Session(session_id) => row.session_id == *session_id,
                ErasableTarget::Principal(principal_id) => {
                    judge.principal_of(store, row.session_id).await? == Some(principal_id)
                }
                ErasableTarget::Containing(text) => match row.arguments() {
                    Ok(Some(arguments)) => contains(&Value::Object(arguments), text),
                    Ok(None) | Err(_) => {
                        found.unreadable.push(row.run_id);
                        false
                    }
                },
            };
            if is_meant {
                judge.add(store, row, &mut found).await?;
            }
        }
    }
}

/// Whether a text in a value, or the spelling of a number, contains this one.
fn contains(value: &Value, text: &str) -> bool {
    match value {
        Value::String(there) => there.contains(text),
        Value::Number(number) => number.to_string().contains(text),
        Value::Array(values) => values.iter().any(|value| contains(value, text)),
        Value::Object(members) => {
            members.iter().any(|(name, value)| name.contains(text) || contains(value, text))
        }
        Value::Null | Value::Bool(_) => false,
    }
}

/// Decides which runs may lose their arguments.
struct Judge {
    held: Held,
    /// The principals of the sessions that were asked for.
    principals: HashMap<SessionId, Option<PrincipalId>>,
}

impl Judge {
    async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        Ok(Self { held: hold::in_force(store).await?, principals: HashMap::new() })
    }

    async fn principal_of(
        &mut self,
        store: &dyn Store,
        session_id: SessionId,
    ) -> Result<Option<&PrincipalId>, StoreError> {
        let principal_id = match self.principals.entry(session_id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let session = store.session(session_id).await?;
                unknown.insert(session.map(|session| session.principal_id))
            }
        };
        Ok(principal_id.as_ref())
    }

    async fn add(
        &mut self,
        store: &dyn Store,
        row: &ErasableArgs,
        found: &mut Found,
    ) -> Result<(), StoreError> {
        let ErasableArgs { run_id, session_id, .. } = *row;
        let principal_id = self.principal_of(store, session_id).await?.cloned();
        let run = match store.recall(run_id).await {
            // One damaged run keeps no other from being erased.
            Err(StoreError::State(_)) => {
                found.unreadable.push(run_id);
                return Ok(());
            }
            run => run?,
        };
        // A run that has left the store is over.
        let list = if run.is_some_and(|it| !it.run.status.is_final()) {
            &mut found.open
        } else if self.held.covers(principal_id.as_ref(), session_id, run_id) {
            &mut found.held
        } else {
            &mut found.runs
        };
        list.push(run_id);
        Ok(())
    }
}

/// Erases arguments, and returns the runs that lost them beside those that keep them. After an error some may be erased:
/// to ask again erases the rest.
pub async fn erase(
    gate: &Gate,
    target: &ErasableTarget,
    reason: &str,
    erased_by: &PrincipalId,
) -> Result<Found, Fault> {
    let mut found = find(&*gate.store, target).await?;
    let asked = std::mem::take(&mut found.runs);
    for runs in asked.chunks(RUNS_MAX) {
        erase_some(gate, runs, reason, erased_by, &mut found).await?;
    }
    Ok(found)
}

/// In one commit: the event, and the end of the rows. The commit is refused where the system session has gone on since the
/// holds were read, so a hold that was made before it keeps its runs.
async fn erase_some(
    gate: &Gate,
    runs: &[RunId],
    reason: &str,
    erased_by: &PrincipalId,
    found: &mut Found,
) -> Result<(), Fault> {
    let store = &*gate.store;
    let mut tries = 0;
    loop {
        let system = gate.system_session().await?;
        let (mut judge, mut now) = (Judge::of(store).await?, Found::default());
        for run_id in runs {
            if let Some(row) = store.erasable(*run_id).await? {
                judge.add(store, &row, &mut now).await?;
            }
        }
        let erased: BTreeSet<RunId> = now.runs.iter().copied().collect();
        if !erased.is_empty() {
            let payload = ErasableErased {
                erased_by: erased_by.clone(),
                reason: reason.to_owned(),
                runs: erased,
            };
            let payload = payload::value_from(&payload, gate.world.request());
            let event_type = EventType::ErasableErased;
            let event = gate.event(gate.fresh_id(), event_type, payload, system.session_id);
            let commit = EraseCommit { expected: system.head, event, runs: now.runs.clone() };
            match store.erase(commit).await {
                Ok(()) => {}
                Err(StoreError::State(error))
                    if error.code == StateCode::ConcurrentExecution && tries < TRIES_MAX =>
                {
                    tries += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
        }
        found.runs.extend(now.runs);
        found.held.extend(now.held);
        found.open.extend(now.open);
        return Ok(());
    }
}

/// Every erasure, oldest first.
async fn erasures(
    store: &dyn Store,
) -> Result<impl Iterator<Item = (Event, ErasableErased)>, StoreError> {
    let events = system::events_since(store, &[EventType::ErasableErased], 0).await?;
    Ok(events.into_iter().filter_map(|placed| {
        let erased = payload::read(&placed.event.payload).ok()?;
        Some((placed.event, erased))
    }))
}

/// The runs whose arguments were erased.
pub(crate) async fn erased(store: &dyn Store) -> Result<BTreeSet<RunId>, StoreError> {
    Ok(erasures(store).await?.flat_map(|(_, erased)| erased.runs).collect())
}

/// Who erased the arguments of a run, when and why.
pub async fn erasure_of(
    store: &dyn Store,
    run_id: RunId,
) -> Result<Option<(Event, ErasableErased)>, StoreError> {
    Ok(erasures(store).await?.find(|(_, erased)| erased.runs.contains(&run_id)))
}
