//! The labels of sessions, files and memories: a fold of events.
//!
//! Each change of a label is an event whose id follows from the carrier, the label and the number of the change.
//! So labels are found by id, on every node and after every crash, however long a session is.
//!
//! The order keeps labels complete: what a call brings into its session is recorded before the call is sent, and
//! so is what the session passes on to a file or a memory that the call writes. What a call read from a file or
//! memory is looked up once more after the call, before its result is recorded: a session that wrote it meanwhile had
//! recorded its labels before.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::CoreCall;
use crate::call::Call;
use crate::event::EventType;
use crate::event::payload::{self, LabelAdded, LabelRemoved};
use crate::facts::Facts;
use crate::gate::{Fault, Gate};
use crate::ids::{ArtifactId, PrincipalId, SessionId};
use crate::journal::artifact::ToolClass;
use crate::json::Value;
use crate::label::{Carrier, Label, PathInSandbox, is_in_force};
use crate::path::SandboxPath;
use crate::ports::{Effect, Failed, Place, Said, Store, StoreError};

/// How often each label of some carriers was changed; those that were never are left out.
#[derive(Debug, Default)]
pub(crate) struct Carried(BTreeMap<(Carrier, Label), u64>);

impl Carried {
    /// Reads these labels of these carriers.
    pub(crate) async fn read<'a>(
        store: &dyn Store,
        known: &BTreeSet<Label>,
        carriers: impl IntoIterator<Item = &'a Carrier>,
    ) -> Result<Self, StoreError> {
        let pairs = carriers
            .into_iter()
            .flat_map(|carrier| known.iter().map(move |label| (carrier.clone(), label.clone())));
        let mut open: Vec<(Carrier, Label)> = pairs.collect();
        let mut changes = BTreeMap::new();
        let mut number = 1;
        // Almost every label was added once or never, so two changes at a time are almost always enough.
        while !open.is_empty() {
            let ids = |(carrier, label): &(Carrier, Label)| {
                [carrier.change_id(label, number), carrier.change_id(label, number + 1)]
            };
            let event_ids: Vec<ArtifactId> = open.iter().flat_map(ids).collect();
            let events = store.events_by_id(&event_ids).await?;
            let found: BTreeSet<ArtifactId> = events.iter().map(|event| event.event_id).collect();
            open.retain(|pair| {
                let [first, second] = ids(pair).map(|id| found.contains(&id));
                if first {
                    changes.insert(pair.clone(), number + u64::from(second));
                }
                first && second
            });
            number += 2;
        }
        Ok(Self(changes))
    }

    /// The labels that a carrier has.
    pub(crate) fn of(&self, carrier: &Carrier) -> BTreeSet<Label> {
        let here =
            self.0.iter().filter(|((of, _), changes)| of == carrier && is_in_force(**changes));
        here.map(|((_, label), _)| label.clone()).collect()
    }

    /// How often a label of a carrier was changed.
    fn changes(&self, carrier: &Carrier, label: &Label) -> u64 {
        self.0.get(&(carrier.clone(), label.clone())).copied().unwrap_or(0)
    }
}

/// The files and memories that a call reads and writes.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) read: BTreeSet<Carrier>,
    pub(crate) written: BTreeSet<Carrier>,
}

impl Touched {
    /// What a call touches. A directory is touched by the names that are written into it, or listed.
    pub(crate) fn by(gate: &Gate, call: &Call) -> Self {
        match call {
            Call::Core(call) => Self::in_sandbox(gate.executor.id(), call),
            Call::Server(call) => {
                let memory = call.tool.flow.memory.clone().map(Carrier::Memory);
                let read = BTreeSet::from_iter(memory);
                let written = match call.tool.class() {
                    ToolClass::Read => BTreeSet::new(),
                    ToolClass::Write => read.clone(),
                };
                Self { read, written }
            }
        }
    }

    fn in_sandbox(executor_id: &str, call: &CoreCall) -> Self {
        let file = |path: &SandboxPath| named(executor_id, path.as_str());
        // The directory that lists it.
        let listing = |path: &SandboxPath| {
            let text = path.as_str();
            let text = text.strip_suffix('/').unwrap_or(text);
            named(executor_id, text.rsplit_once('/').map_or(text, |(directory, _)| directory))
        };
        let (read, written) = match call {
            CoreCall::Think | CoreCall::Finish { .. } | CoreCall::DeleteFile { .. } => {
                (vec![], vec![])
            }
            CoreCall::ReadFile { path } | CoreCall::ListFiles { path } => {
                (vec![file(path)], vec![])
            }
            CoreCall::WriteFile { path, .. } | CoreCall::CreateDirectory { path } => {
                (vec![], vec![file(path), listing(path)])
            }
            CoreCall::RenameFile { source, destination } => {
                (vec![file(source)], vec![file(destination), listing(destination)])
            }
        };
        Self { read: read.into_iter().collect(), written: written.into_iter().collect() }
    }
}

/// Adds the labels of the session to what is known beside a call, and those of what the call reads.
pub(crate) async fn add_to(
    facts: &mut Facts,
    gate: &Gate,
    session_id: SessionId,
    call: &Call,
) -> Result<(), StoreError> {
    let (store, known) = (&*gate.store, &gate.facts.labels);
    if known.is_empty() {
        return Ok(());
    }
    let session = Carrier::Session(session_id);
    let Touched { read, .. } = Touched::by(gate, call);
    // Read first: no event is added later at a smaller position.
    facts.as_of = Some(store.last_position().await?);
    let carried = Carried::read(store, known, read.iter().chain([&session])).await?;
    facts.labels = carried.of(&session);
    facts.reads.extend(read.iter().flat_map(|carrier| carried.of(carrier)));
    Ok(())
}

/// A call that passes labels on.
pub(crate) struct Carrying<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) place: Place,
    pub(crate) call: &'a Call,
}

impl Carrying<'_> {
    /// Before a call is sent: its session takes in what the call brings, and what the call writes takes in what the
    /// session has.
    pub(crate) async fn before(&self) -> Result<(), Fault> {
        let known = &self.gate.facts.labels;
        let touched = Touched::by(self.gate, self.call);
        let brings = &self.gate.facts.flow(self.call).reads;
        if known.is_empty()
            || (brings.is_empty() && touched.read.is_empty() && touched.written.is_empty())
        {
            return Ok(());
        }
        let session = Carrier::Session(self.place.session_id);
        let carriers = touched.read.iter().chain(&touched.written).chain([&session]);
        let carried = Carried::read(&*self.gate.store, known, carriers).await?;
        let mut labels = brings.clone();
        labels.extend(touched.read.iter().flat_map(|carrier| carried.of(carrier)));
        self.add(&carried, &session, &labels).await?;
        // A file that is moved passes its labels on, and so does the session.
        labels.extend(carried.of(&session));
        for carrier in &touched.written {
            self.add(&carried, carrier, &labels).await?;
        }
        Ok(())
    }

    /// After a call, before its result is recorded: what it read from a file or a memory, and what detectors find in the
    /// result. It is tried as often as the record is: the call was made.
    pub(crate) async fn after(&self, effect: &Effect) -> Result<(), Fault> {
        let Touched { read, .. } = Touched::by(self.gate, self.call);
        let found = self.found_in(effect);
        if self.gate.facts.labels.is_empty() || (read.is_empty() && found.is_empty()) {
            return Ok(());
        }
        let mut attempts_left = self.gate.limits.record_attempts_max;
        loop {
            attempts_left = attempts_left.saturating_sub(1);
            match self.take_in(&read, &found).await {
                Err(Fault::Store(StoreError::Unavailable(_))) if attempts_left > 0 => {
                    self.gate.world.pause(self.gate.limits.record_retry_pause).await;
                }
                taken => return taken,
            }
        }
    }

    /// The labels that detectors add, each with its detector.
    fn found_in(&self, effect: &Effect) -> BTreeMap<Label, String> {
        let (server, action) = (self.call.tool_server(), self.call.name());
        let detectors = &self.gate.facts.detectors;
        match effect {
            Effect::Done(Some(said)) | Effect::Failed(Failed { said: Said::Error(said), .. })
                if detectors.look_at(server, action) =>
            {
                detectors.find(server, action, said)
            }
            // Nothing of it is given to the agent.
            Effect::Done(_) | Effect::Failed(_) | Effect::Refused(_) | Effect::Unknown(_) => {
                BTreeMap::new()
            }
        }
    }

    /// The session takes in what these have, and what was found.
    async fn take_in(
        &self,
        read: &BTreeSet<Carrier>,
        found: &BTreeMap<Label, String>,
    ) -> Result<(), Fault> {
        let session = Carrier::Session(self.place.session_id);
        let carriers = read.iter().chain([&session]);
        let carried = Carried::read(&*self.gate.store, &self.gate.facts.labels, carriers).await?;
        let labels: BTreeSet<Label> = read.iter().flat_map(|carrier| carried.of(carrier)).collect();
        self.add(&carried, &session, &labels).await?;
        for (label, detector) in found.iter().filter(|(label, _)| !labels.contains(*label)) {
            self.add_one(&carried, &session, label, Some(detector)).await?;
        }
        Ok(())
    }

    /// Adds the labels that a carrier does not have.
    async fn add(
        &self,
        carried: &Carried,
        carrier: &Carrier,
        labels: &BTreeSet<Label>,
    ) -> Result<(), Fault> {
        for label in labels {
            self.add_one(carried, carrier, label, None).await?;
        }
        Ok(())
    }

    /// Adds a label, where the carrier does not have it.
    async fn add_one(
        &self,
        carried: &Carried,
        carrier: &Carrier,
        label: &Label,
        detector: Option<&String>,
    ) -> Result<(), Fault> {
        let changes = carried.changes(carrier, label);
        if is_in_force(changes) {
            return Ok(());
        }
        let payload = payload::value(LabelAdded {
            carrier: carrier.clone(),
            detector: detector.cloned(),
            label: label.clone(),
            run_id: self.place.run_id,
            tool: self.call.name().to_owned(),
        });
        change(self.gate, carrier, label, changes + 1, EventType::LabelAdded, payload).await
    }
}

/// Writes the n-th change of a label. Another process may have made the same one meanwhile: then it is there.
async fn change(
    gate: &Gate,
    carrier: &Carrier,
    label: &Label,
    number: u64,
    event_type: EventType,
    payload: Value,
) -> Result<(), Fault> {
    let session_id = match carrier {
        Carrier::Session(session_id) => *session_id,
        Carrier::Path(_) | Carrier::Memory(_) => gate.system_session().await?.session_id,
    };
    let event_id = carrier.change_id(label, number);
    let event = gate.event(event_id, event_type, payload, session_id);
    match gate.store.append_event(event).await {
        Ok(()) => Ok(()),
        Err(refused) => match gate.store.event(event_id).await? {
            Some(_) => Ok(()),
            None => Err(refused.into()),
        },
    }
}

/// A path of a sandbox, in one spelling.
fn named(executor_id: &str, path: &str) -> Carrier {
    let path = path.strip_suffix('/').unwrap_or(path).to_owned();
    Carrier::Path(PathInSandbox { executor_id: executor_id.to_owned(), path })
}

/// A path of this node's sandbox.
pub fn carrier_of(gate: &Gate, path: &SandboxPath) -> Carrier {
    named(gate.executor.id(), path.as_str())
}

/// The labels that something has now.
pub async fn of(gate: &Gate, carrier: &Carrier) -> Result<BTreeSet<Label>, StoreError> {
    let carried = Carried::read(&*gate.store, &gate.facts.labels, [carrier]).await?;
    Ok(carried.of(carrier))
}

/// How something got the labels that it has now.
pub async fn additions(gate: &Gate, carrier: &Carrier) -> Result<Vec<LabelAdded>, StoreError> {
    let carried = Carried::read(&*gate.store, &gate.facts.labels, [carrier]).await?;
    let has = carried.of(carrier);
    let event_ids: Vec<ArtifactId> =
        has.iter().map(|label| carrier.change_id(label, carried.changes(carrier, label))).collect();
    let events = gate.store.events_by_id(&event_ids).await?;
    let additions = events.into_iter().filter_map(|event| payload::read(&event.payload).ok());
    let mut additions: Vec<LabelAdded> = additions.collect();
    additions.sort_by(|one, other| one.label.cmp(&other.label));
    Ok(additions)
}

/// Takes a label away, as an operator decides. False where the carrier does not have it.
pub async fn remove(
    gate: &Gate,
    carrier: Carrier,
    label: Label,
    removed_by: PrincipalId,
    note: Option<String>,
) -> Result<bool, Fault> {
    let known = BTreeSet::from([label.clone()]);
    let carried = Carried::read(&*gate.store, &known, [&carrier]).await?;
    let changes = carried.changes(&carrier, &label);
    if !is_in_force(changes) {
        return Ok(false);
    }
    let payload = LabelRemoved { carrier: carrier.clone(), label: label.clone(), note, removed_by };
    let payload = payload::value_from(payload, gate.world.request());
    change(gate, &carrier, &label, changes + 1, EventType::LabelRemoved, payload).await?;
    Ok(true)
}
