//! The tools of one server: its descriptions, the configuration, and what an operator accepted.
//!
//! A tool that is not as configured, or whose definition cannot be used, is off; its server and the other
//! tools continue. Only an error that could leave a rule of the operator without effect (a table for a tool
//! that does not exist, a redaction that hides nothing) turns the whole server off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use stepgate_core::json::Value;
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};

use super::definition::{Definition, NoDefinition};
use super::err::StartError;
use super::pin::Pins;
use super::schema::{Arguments, Input, Output, SchemaError};
use super::spec::{DeliverySpec, ServerSpec, ToolSpec};

/// A tool of the server, offered or not.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) definition: Definition,
    pub(super) state: State,
}

#[derive(Clone)]
pub(super) enum State {
    /// The configuration gives it no mode.
    Unclassified,
    /// The configuration turns it off.
    TurnedOff,
    Unusable(StartError),
    Offered(Offer),
}

#[derive(Clone)]
pub(super) struct Offer {
    pub(super) tool: Arc<Tool>,
    pub(super) output: Option<Arc<Output>>,
    pub(super) timeout: Duration,
    arguments: Arguments,
}

/// The tools of one server, by the server's names for them.
#[derive(Clone, Default)]
pub(super) struct Catalog {
    entries: BTreeMap<String, Entry>,
    /// Entries of the list that are not tools.
    pub(super) unread: Vec<NoDefinition>,
    /// Whether a list was ever read: otherwise nothing is known about the server's tools.
    pub(super) is_known: bool,
    /// The server's own instructions for models.
    pub(super) instructions: Option<String>,
}

impl Catalog {
    /// Reads the server's list; `self` is the catalog before. A tool that is missing now is gone. The error
    /// concerns the whole server.
    pub(super) fn read(
        self,
        spec: &ServerSpec,
        list: &[Value],
        pins: &Pins,
    ) -> Result<Self, StartError> {
        let mut before = self.entries;
        let mut now = Self { is_known: true, ..Self::default() };
        for entry in list {
            match Definition::read(entry) {
                Ok(definition) => now.add(spec, definition, pins),
                Err(unread) => now.unread.push(unread),
            }
        }
        now.check_tables(spec, &before, pins)?;
        now.check_redacted(spec)?;
        now.check_status_tools(spec);
        before.retain(|name, _| !now.entries.contains_key(name));
        for (name, mut entry) in before {
            if let State::Offered(offer) = &mut entry.state {
                let gone = Tool { standing: Standing::Gone, ..Tool::clone(&offer.tool) };
                offer.tool = Arc::new(gone);
                now.entries.insert(name, entry);
            }
        }
        Ok(now)
    }

    fn add(&mut self, spec: &ServerSpec, definition: Definition, pins: &Pins) {
        let name = definition.name.clone();
        let is_second = self.entries.contains_key(&name);
        let state = match is_second {
            true => State::Unusable(StartError::Definition {
                server: spec.name.clone(),
                tool: name.clone(),
                why: "the server has two tools of this name".to_owned(),
            }),
            false => state(spec, &definition, pins).unwrap_or_else(State::Unusable),
        };
        self.entries.insert(name, Entry { definition, state });
    }

    /// A table of the configuration must be about a tool that exists or existed. If a table's name were
    /// misspelled, the tool that was meant would get the mode of its server.
    fn check_tables(
        &self,
        spec: &ServerSpec,
        before: &BTreeMap<String, Entry>,
        pins: &Pins,
    ) -> Result<(), StartError> {
        let is_pinned =
            |tool: &str| ToolName::of(&spec.name, tool).is_ok_and(|name| pins.get(&name).is_some());
        let is_unread = |tool: &str| self.unread.iter().any(|it| it.name.as_deref() == Some(tool));
        let is_known = |tool: &str| {
            let is_listed = self.entries.contains_key(tool) || before.contains_key(tool);
            is_listed || is_unread(tool) || is_pinned(tool)
        };
        let Some(tool) = spec.tools.keys().find(|tool| !is_known(tool)) else { return Ok(()) };
        Err(StartError::UnknownTool {
            server: spec.name.clone(),
            tool: tool.clone(),
            known: self.entries.keys().cloned().collect(),
        })
    }

    /// At least one tool must have each argument that the server's table redacts.
    fn check_redacted(&self, spec: &ServerSpec) -> Result<(), StartError> {
        let arguments: Vec<&Arguments> = self.offers().map(|offer| &offer.arguments).collect();
        let is_unreadable =
            |entry: &Entry| matches!(entry.state, State::Unusable(StartError::Definition { .. }));
        // Without tools there is nothing to hide, and the arguments of an unusable schema are unknown.
        if arguments.is_empty() || self.entries.values().any(is_unreadable) {
            return Ok(());
        }
        let mut redacted = spec.tool.hidden();
        let is_known = |name: &&String| arguments.iter().any(|arguments| arguments.has(name));
        let Some(argument) = redacted.find(|name| !is_known(name)) else { return Ok(()) };
        let known: BTreeSet<&String> =
            arguments.iter().flat_map(|arguments| &arguments.named).collect();
        Err(StartError::Redacted {
            server: spec.name.clone(),
            tool: None,
            argument: argument.clone(),
            known: known.into_iter().cloned().collect(),
        })
    }

    /// Turns off every tool whose status tool cannot be used.
    fn check_status_tools(&mut self, spec: &ServerSpec) {
        let refused: Vec<(String, StartError)> = self
            .offers()
            .filter_map(|offer| {
                let Delivery::Query(status_tool) = &offer.tool.delivery else { return None };
                let why = match self.offer(status_tool).map(|offer| offer.tool.mode) {
                    Some(Mode::ReadOnly) => return None,
                    Some(Mode::Draft | Mode::ExecuteGated) => "is not read only",
                    None => "is not offered",
                };
                let tool = offer.tool.name.tool().to_owned();
                let error = StartError::StatusTool {
                    server: spec.name.clone(),
                    tool: tool.clone(),
                    status_tool: status_tool.tool().to_owned(),
                    why,
                };
                Some((tool, error))
            })
            .collect();
        for (tool, error) in refused {
            if let Some(entry) = self.entries.get_mut(&tool) {
                entry.state = State::Unusable(error);
            }
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub(super) fn entry(&self, name: &ToolName) -> Option<&Entry> {
        self.entries.get(name.tool())
    }

    /// The first tool that cannot be offered, and why.
    pub(super) fn first_unusable(&self, spec: &ServerSpec) -> Option<StartError> {
        let unread = self.unread.first();
        let unread = unread.map(|unread| StartError::start(&spec.name, unread.why.clone()));
        let unusable = self.entries.values().find_map(|entry| match &entry.state {
            State::Unusable(error) => Some(error.clone()),
            State::Unclassified | State::TurnedOff | State::Offered(_) => None,
        });
        unusable.or(unread)
    }

    pub(super) fn offers(&self) -> impl Iterator<Item = &Offer> {
        self.entries.values().filter_map(Entry::offer)
    }

    pub(super) fn offer(&self, name: &ToolName) -> Option<&Offer> {
        self.entry(name)?.offer()
    }

    pub(super) fn compare(&mut self, spec: &ServerSpec, pins: &Pins) {
        self.entries.values_mut().for_each(|entry| entry.compare(spec, pins));
    }
}

impl Entry {
    pub(super) fn offer(&self) -> Option<&Offer> {
        match &self.state {
            State::Offered(offer) => Some(offer),
            State::Unclassified | State::TurnedOff | State::Unusable(_) => None,
        }
    }

    fn compare(&mut self, spec: &ServerSpec, pins: &Pins) {
        let State::Offered(offer) = &mut self.state else { return };
        if offer.tool.standing != Standing::Gone {
            let (standing, definition_digest) =
                pins.standing(&offer.tool.name, &self.definition, spec.pin);
            let tool = Tool { standing, definition_digest, ..Tool::clone(&offer.tool) };
            offer.tool = Arc::new(tool);
        }
    }
}

/// Whether a name is one that no configuration can enable (decision 5).
fn starts_processes(tool: &str) -> bool {
    ["run_command", "spawn_process"].iter().any(|name| tool.eq_ignore_ascii_case(name))
}

/// The state of a definition under the configuration. The error says why the tool cannot be offered.
fn state(spec: &ServerSpec, definition: &Definition, pins: &Pins) -> Result<State, StartError> {
    let (server, tool) = (spec.name.clone(), definition.name.clone());
    if starts_processes(&tool) {
        return Err(StartError::CommandExecution { server, tool });
    }
    let said = spec.settings_of(&definition.name);
    let mode = match said.mode {
        Some(mode) => mode,
        None if said.is_off => return Ok(State::TurnedOff),
        None => return Ok(State::Unclassified),
    };
    let unusable = |why: String| StartError::Definition { server, tool, why };
    let Ok(name) = ToolName::of(&spec.name, &definition.name) else {
        return Err(unusable("a proposal cannot spell its name".to_owned()));
    };
    let redacted = said.hidden().cloned().collect();
    let flow = said.flow();
    let delivery = delivery(spec, &definition.name, mode, said.delivery)?;
    let (input, output) = promises(definition).map_err(|SchemaError(why)| unusable(why))?;
    let arguments = input.arguments.clone();
    check_redacted(spec, &definition.name, &arguments)?;
    check_targets(spec, &definition.name, &arguments)?;
    let (standing, definition_digest) = pins.standing(&name, definition, spec.pin);
    let tool = Tool {
        mode,
        delivery,
        definition_digest,
        standing,
        redacted,
        flow,
        erasable: said.erasable.unwrap_or_default(),
        contract: Arc::new(input) as Arc<dyn Contract>,
        name,
    };
    let timeout = said.timeout.unwrap_or(ToolSpec::TIMEOUT);
    let output = output.map(Arc::new);
    Ok(State::Offered(Offer { tool: Arc::new(tool), output, timeout, arguments }))
}

/// The tool must have each argument that its own table redacts.
fn check_redacted(spec: &ServerSpec, tool: &str, arguments: &Arguments) -> Result<(), StartError> {
    let mut redacted = spec.tools.get(tool).into_iter().flat_map(ToolSpec::hidden);
    let Some(argument) = redacted.find(|name| !arguments.has(name)) else { return Ok(()) };
    Err(StartError::Redacted {
        server: spec.name.clone(),
        tool: Some(tool.to_owned()),
        argument: argument.clone(),
        known: arguments.named.iter().cloned().collect(),
    })
}

/// The tool must have each argument that its own table calls a target. Otherwise the one that is meant would count as
/// text.
fn check_targets(spec: &ServerSpec, tool: &str, arguments: &Arguments) -> Result<(), StartError> {
    let targets = spec.tools.get(tool).and_then(|tool| tool.targets.as_ref());
    let unknown = targets.into_iter().flatten().find(|name| !arguments.has(name));
    let Some(unknown) = unknown else { return Ok(()) };
    let why = format!("`targets` names the argument `{unknown}`, which it does not have");
    Err(StartError::Definition { server: spec.name.clone(), tool: tool.to_owned(), why })
}

/// The compiled input and output schemas of a tool.
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
        // Reading twice changes nothing.
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

#[cfg(test)]
mod tests;
