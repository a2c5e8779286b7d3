//! The tools of one server: what it describes, what the configuration says, what an operator accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stepgate_core::digest::Digest;
use stepgate_core::json::Value;
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};

use super::definition::Definition;
use super::err::StartError;
use super::schema::{Arguments, Input, Output, SchemaError, Unreadable};
use super::spec::{DeliverySpec, ServerSpec, ToolSpec};

/// The definitions that operators have accepted, of all servers.
#[derive(Clone, Default)]
pub(super) struct Pins(Arc<Mutex<BTreeMap<ToolName, Digest>>>);

impl Pins {
    pub(super) fn new(pins: BTreeMap<ToolName, Digest>) -> Self {
        Self(Arc::new(Mutex::new(pins)))
    }

    fn pins(&self) -> MutexGuard<'_, BTreeMap<ToolName, Digest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, name: &ToolName) -> bool {
        self.pins().contains_key(name)
    }

    pub(super) fn pin(&self, name: ToolName, digest: Digest) {
        self.pins().insert(name, digest);
    }

    fn standing(&self, name: &ToolName, digest: Digest) -> Standing {
        match self.pins().get(name) {
            Some(pinned) if *pinned == digest => Standing::Accepted,
            Some(_) | None => Standing::Changed,
        }
    }
}

/// A tool of the server, offered or not.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) definition: Definition,
    pub(super) offer: Option<Offer>,
}

/// A tool that is offered.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) tool: Arc<Tool>,
    pub(super) output: Option<Arc<Output>>,
    pub(super) timeout: Duration,
    /// None where the schema cannot be used.
    arguments: Option<Arguments>,
}

/// The tools of one server, by the names that it gives them.
#[derive(Clone, Default)]
pub(super) struct Catalog {
    entries: BTreeMap<String, Entry>,
}

impl Catalog {
    /// Reads the list of a server that is started: everything must be as configured.
    pub(super) fn read(spec: &ServerSpec, list: &[Value], pins: &Pins) -> Result<Self, StartError> {
        let server = || spec.name.clone();
        let mut entries = BTreeMap::new();
        for entry in list {
            let definition = Definition::read(entry).map_err(|why| StartError::Start {
                server: server(),
                why,
                stderr: vec![],
            })?;
            let tool = definition.name.clone();
            if starts_processes(&tool) {
                return Err(StartError::CommandExecution { server: server(), tool });
            }
            let offer = offer(spec, &definition, pins)?;
            if entries.insert(tool.clone(), Entry { definition, offer }).is_some() {
                let why = format!("it has two tools `{tool}`");
                return Err(StartError::Start { server: server(), why, stderr: vec![] });
            }
        }
        if let Some(tool) = spec.tools.keys().find(|tool| !entries.contains_key(*tool)) {
            let known = entries.keys().cloned().collect();
            return Err(StartError::UnknownTool { server: server(), tool: tool.clone(), known });
        }
        let catalog = Self { entries };
        catalog.check_status_tools(spec)?;
        catalog.check_redacted(spec)?;
        Ok(catalog)
    }

    /// What a server redacts for all of its tools, one of them must have.
    fn check_redacted(&self, spec: &ServerSpec) -> Result<(), StartError> {
        let arguments: Option<Vec<&Arguments>> =
            self.offers().map(|offer| offer.arguments.as_ref()).collect();
        // Without tools there is nothing to hide, and of a schema that cannot be used nothing is known.
        let Some(arguments) = arguments.filter(|arguments| !arguments.is_empty()) else {
            return Ok(());
        };
        let mut redacted = spec.tool.redacted.iter().flatten();
        let is_known = |name: &&String| arguments.iter().any(|arguments| arguments.has(name));
        match redacted.find(|name| !is_known(name)) {
            None => Ok(()),
            Some(argument) => {
                let known: BTreeSet<&String> =
                    arguments.iter().flat_map(|arguments| &arguments.named).collect();
                Err(StartError::Redacted {
                    server: spec.name.clone(),
                    tool: None,
                    argument: argument.clone(),
                    known: known.into_iter().cloned().collect(),
                })
            }
        }
    }

    fn check_status_tools(&self, spec: &ServerSpec) -> Result<(), StartError> {
        for Offer { tool, .. } in self.offers() {
            let Delivery::Query(status_tool) = &tool.delivery else { continue };
            let mode = self.offer(status_tool).map(|offer| offer.tool.mode);
            let why = match mode {
                Some(Mode::ReadOnly) => continue,
                Some(Mode::Draft | Mode::ExecuteGated) => "is not read only",
                None => "is not offered",
            };
            return Err(StartError::StatusTool {
                server: spec.name.clone(),
                tool: tool.name.tool().to_owned(),
                status_tool: status_tool.tool().to_owned(),
                why,
            });
        }
        Ok(())
    }

    /// Reads the list of a server that is known. What is not as configured is not offered, and what is
    /// missing is gone.
    pub(super) fn refreshed(self, spec: &ServerSpec, list: &[Value], pins: &Pins) -> Self {
        let mut before = self.entries;
        let mut entries = BTreeMap::new();
        for definition in list.iter().filter_map(|entry| Definition::read(entry).ok()) {
            if starts_processes(&definition.name) {
                continue;
            }
            let name = definition.name.clone();
            let known = before.remove(&name);
            let offer = match (offer(spec, &definition, pins), known) {
                (Ok(offer), _) => offer,
                (Err(why), Some(Entry { offer: Some(known), .. })) => {
                    Some(unreadable(&known, &definition, &why))
                }
                (Err(_), Some(Entry { offer: None, .. }) | None) => None,
            };
            entries.insert(name, Entry { definition, offer });
        }
        for (name, Entry { definition, offer }) in before {
            if let Some(offer) = offer {
                let offer = Some(offer.with(Standing::Gone));
                entries.insert(name, Entry { definition, offer });
            }
        }
        Self { entries }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub(super) fn offers(&self) -> impl Iterator<Item = &Offer> {
        self.entries.values().filter_map(|entry| entry.offer.as_ref())
    }

    pub(super) fn offer(&self, name: &ToolName) -> Option<&Offer> {
        self.entries.get(name.tool())?.offer.as_ref()
    }

    /// Compares a tool with what is accepted now.
    pub(super) fn compare(&mut self, name: &ToolName, pins: &Pins) {
        if let Some(entry) = self.entries.get_mut(name.tool()) {
            entry.compare(pins);
        }
    }

    /// Compares every tool with what is accepted now.
    pub(super) fn compare_all(&mut self, pins: &Pins) {
        self.entries.values_mut().for_each(|entry| entry.compare(pins));
    }
}

impl Entry {
    fn compare(&mut self, pins: &Pins) {
        let Some(offer) = self.offer.as_mut() else { return };
        match offer.tool.standing {
            Standing::Gone => {}
            Standing::Accepted | Standing::Changed => {
                let standing = pins.standing(&offer.tool.name, offer.tool.definition_digest);
                *offer = offer.clone().with(standing);
            }
        }
    }
}

impl Offer {
    fn with(self, standing: Standing) -> Self {
        let tool = Tool { standing, ..Tool::clone(&self.tool) };
        Self { tool: Arc::new(tool), ..self }
    }
}

/// Whether a name is one that nothing can enable (decision D5).
fn starts_processes(tool: &str) -> bool {
    ["run_command", "spawn_process"].iter().any(|name| tool.eq_ignore_ascii_case(name))
}

/// What the configuration makes of a definition; nothing, where it does not classify the tool.
fn offer(
    spec: &ServerSpec,
    definition: &Definition,
    pins: &Pins,
) -> Result<Option<Offer>, StartError> {
    let said = match spec.tools.get(&definition.name) {
        Some(tool) => tool.or(&spec.tool),
        None => spec.tool.clone(),
    };
    let Some(mode) = said.mode else { return Ok(None) };
    let unusable = |why: String| StartError::Definition {
        server: spec.name.clone(),
        tool: definition.name.clone(),
        why,
    };
    let name = ToolName::of(&spec.name, &definition.name)
        .map_err(|_| unusable("a proposal cannot spell its name".to_owned()))?;
    let delivery = delivery(spec, &definition.name, mode, said.delivery)?;
    let (contract, arguments, output) = match promises(definition) {
        Ok((input, output)) => {
            let arguments = input.arguments().clone();
            check_redacted(spec, &definition.name, &arguments)?;
            let contract = Arc::new(input) as Arc<dyn Contract>;
            (contract, Some(arguments), output.map(Arc::new))
        }
        // The tool is known and cannot be called; the server and its other tools go on.
        Err(costly @ SchemaError::TooCostly(_)) => (Arc::new(Unreadable(costly)) as _, None, None),
        Err(SchemaError::Unusable(why)) => return Err(unusable(why)),
    };
    let tool = Tool {
        mode,
        delivery,
        definition_digest: definition.digest,
        standing: pins.standing(&name, definition.digest),
        redacted: said.redacted.unwrap_or_default(),
        contract,
        name,
    };
    let timeout = said.timeout.unwrap_or(ToolSpec::TIMEOUT);
    Ok(Some(Offer { tool: Arc::new(tool), output, timeout, arguments }))
}

/// What a tool's own table redacts, the tool must have.
fn check_redacted(spec: &ServerSpec, tool: &str, arguments: &Arguments) -> Result<(), StartError> {
    let redacted = spec.tools.get(tool).and_then(|tool| tool.redacted.as_ref());
    match redacted.into_iter().flatten().find(|name| !arguments.has(name)) {
        None => Ok(()),
        Some(argument) => Err(StartError::Redacted {
            server: spec.name.clone(),
            tool: Some(tool.to_owned()),
            argument: argument.clone(),
            known: arguments.named.iter().cloned().collect(),
        }),
    }
}

/// What a tool asks and promises, compiled.
fn promises(definition: &Definition) -> Result<(Input, Option<Output>), SchemaError> {
    let input = Input::compile(&definition.input_schema)?;
    let output = definition.output_schema.as_ref().map(Output::compile).transpose()?;
    Ok((input, output))
}

fn delivery(
    spec: &ServerSpec,
    tool: &str,
    mode: Mode,
    said: Option<DeliverySpec>,
) -> Result<Delivery, StartError> {
    match (mode, said) {
        // To look twice changes nothing.
        (Mode::ReadOnly, _) => Ok(Delivery::Redispatch),
        (Mode::Draft | Mode::ExecuteGated, Some(said)) => match said {
            DeliverySpec::HonoursKey => Ok(Delivery::HonoursKey),
            DeliverySpec::Redispatch => Ok(Delivery::Redispatch),
            DeliverySpec::Ask => Ok(Delivery::Ask),
            DeliverySpec::Query(status_tool) => match ToolName::of(&spec.name, &status_tool) {
                Ok(name) => Ok(Delivery::Query(name)),
                Err(_) => Err(StartError::StatusTool {
                    server: spec.name.clone(),
                    tool: tool.to_owned(),
                    status_tool,
                    why: "is no name of a tool",
                }),
            },
        },
        (Mode::Draft | Mode::ExecuteGated, None) => {
            Err(StartError::NoDelivery { server: spec.name.clone(), tool: tool.to_owned() })
        }
    }
}

/// A tool whose definition has become one that cannot be used.
fn unreadable(known: &Offer, definition: &Definition, why: &StartError) -> Offer {
    let tool = Tool {
        definition_digest: definition.digest,
        standing: Standing::Changed,
        contract: Arc::new(Unreadable(SchemaError::Unusable(why.to_string()))),
        ..Tool::clone(&known.tool)
    };
    Offer { tool: Arc::new(tool), output: None, timeout: known.timeout, arguments: None }
}

#[cfg(test)]
mod tests;
