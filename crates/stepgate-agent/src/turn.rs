//! A turn: one request of a user, and everything until its answer.
//!
//! There is no table of turns. A turn is the fold of events in its session's chain, so `verify` covers it
//! and nothing is stored twice. Its first event has the turn's own id; the ids of the others follow from it
//! and from their number. So a turn is found by its id alone, and if two requests write the same next event,
//! one is refused.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::digest::Digest;
use stepgate_core::ids::{ArtifactId, InvalidId, PrincipalId, RunId};
use stepgate_core::step::Answer;

use crate::envelope::{Envelope, ToolCall};
use crate::invoke::InvokeResult;
use crate::model::{Message, RequestedCall};
use crate::response::Usage;

/// The id of a turn. It follows from the principal and the request's key, so a repeated request finds the
/// same turn.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct TurnId(ArtifactId);

impl TurnId {
    /// The turn that this principal's request with this key opens.
    pub fn of(principal_id: &PrincipalId, correlation_id: &str) -> Self {
        Self(derived(&["turn", principal_id.as_str(), correlation_id]))
    }

    /// The id of the turn's event with this number; the first event has the turn's own id.
    pub fn event_id(self, number: u64) -> ArtifactId {
        match number {
            0 => self.0,
            _ => derived(&["turn event", &self.to_string(), &number.to_string()]),
        }
    }

    /// The id of the n-th event that says that a turn waits for this run.
    pub(crate) fn waiting_event_id(run_id: RunId, number: u64) -> ArtifactId {
        derived(&["turn waits", &run_id.to_string(), &number.to_string()])
    }

    /// The id of the proposal for one of the turn's calls. It is always the same, so that a turn that is
    /// repeated after a crash repeats no call.
    pub fn proposal_id(self, tool_call_id: &str) -> uuid::Uuid {
        uuid::Uuid::new_v5(&self.0.as_uuid(), tool_call_id.as_bytes())
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TurnId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        text.parse().map(Self)
    }
}

/// An id derived from these words. It has the form of a UUIDv7, like every id in the store, but its 122 free
/// bits are a hash, so it contains no time.
fn derived(words: &[&str]) -> ArtifactId {
    let digest = Digest::of(words).to_string();
    let half = digest.get(..32).and_then(|hex| u128::from_str_radix(hex, 16).ok());
    let id = uuid::Builder::from_u128(half.unwrap_or_default())
        .with_variant(uuid::Variant::RFC4122)
        .with_version(uuid::Version::SortRand)
        .into_uuid();
    ArtifactId::new(id)
}

/// A turn, as far as it has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Its id.
    pub id: TurnId,
    /// Its durable entries, in order. A provisional turn has none.
    pub entries: Vec<Entry>,
}

/// One durable event of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A request opened it.
    Opened(Box<Opened>),
    /// The model answered.
    Answered(Answered),
    /// A call that the server makes has its outcome.
    ToolEnded(ToolEnded),
    /// The results of the caller's tools came.
    Continued(Box<Continued>),
    /// It ended without an answer.
    Failed(InvokeResult),
}

/// The payload of a turn's event, as it is written.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{B}Payload")]
pub struct TurnEvent<B> {
    /// The turn.
    pub turn_id: TurnId,
    /// The number of the event in its turn, from 0, without gaps.
    pub number: u64,
    /// What happened.
    pub body: B,
}

/// How a turn began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TurnOpened")]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// The request's key.
    pub correlation_id: String,
    /// The digest of the request, to tell a repeated request from another one with the same key.
    pub request_digest: Digest,
    /// The turn before this one.
    pub previous: Option<TurnId>,
    /// The session's mode.
    pub mode: String,
    /// The request as it arrived.
    pub envelope: Envelope,
}

/// The model's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TurnAnswered")]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// The model, as it names itself.
    pub model: String,
    /// Its text.
    pub text: Option<String>,
    /// Its calls, in order.
    pub calls: Vec<AskedCall>,
    /// The tokens that it used.
    pub usage: Option<Usage>,
    /// Why the answer is incomplete, if it is.
    pub cut_off: Option<String>,
}

impl Answered {
    /// The answer as a message, for the model itself.
    pub fn message(&self) -> Message {
        let calls = self.calls.iter().map(AskedCall::requested).collect();
        Message::Assistant { text: self.text.clone(), calls }
    }
}

/// A call that the model asked for, and which side makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskedCall {
    /// The model's id for it.
    pub tool_call_id: String,
    /// The tool's name, as it was offered.
    pub name: String,
    /// The arguments: a JSON object as text.
    pub arguments_json: String,
    /// The action name for the proposal, where the server makes the call; none where the caller does.
    pub action: Option<String>,
}

/// A call that the server made. Its response is in the run's record, and only there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TurnToolEnded")]
#[serde(deny_unknown_fields)]
pub struct ToolEnded {
    /// The call.
    pub tool_call_id: String,
    /// The run that it became.
    pub run_id: RunId,
    /// How the run ended.
    pub outcome: String,
}

impl ToolEnded {
    /// The end of a call, from the answer of its step.
    pub(crate) fn of(tool_call_id: &str, answer: &Answer) -> Self {
        let outcome = answer.word().as_str().to_owned();
        Self { tool_call_id: tool_call_id.to_owned(), run_id: answer.run_id, outcome }
    }
}

/// The results of the caller's tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TurnContinued")]
#[serde(deny_unknown_fields)]
pub struct Continued {
    /// The request's key.
    pub correlation_id: String,
    /// The digest of the request.
    pub request_digest: Digest,
    /// The request: the results in the order of the calls, and what the user adds to them.
    pub envelope: Envelope,
}

/// What a turn waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnState {
    /// The model's answer.
    Asking,
    /// Calls that the server makes.
    Calling(Vec<AskedCall>),
    /// Calls that the caller makes.
    AwaitingClient(Vec<ToolCall>),
    /// Nothing: this is the final answer.
    Final(String),
    /// Nothing: it failed.
    Failed(InvokeResult),
}

impl Turn {
    /// A turn without durable entries.
    pub fn provisional(id: TurnId) -> Self {
        Self { id, entries: Vec::new() }
    }

    /// How it began.
    pub fn opened(&self) -> Option<&Opened> {
        match self.entries.first() {
            Some(Entry::Opened(opened)) => Some(opened),
            Some(
                Entry::Answered(_) | Entry::ToolEnded(_) | Entry::Continued(_) | Entry::Failed(_),
            )
            | None => None,
        }
    }

    /// What it waits for.
    pub fn state(&self) -> TurnState {
        let (mut state, mut answer) = (TurnState::Asking, None);
        for entry in &self.entries {
            state = match entry {
                Entry::Opened(_) | Entry::Continued(_) => TurnState::Asking,
                Entry::Answered(answered) => {
                    answer = Some(answered);
                    after_answer(answered)
                }
                Entry::ToolEnded(ended) => without(state, &ended.tool_call_id, answer),
                Entry::Failed(result) => TurnState::Failed(result.clone()),
            };
        }
        state
    }

    /// Whether it can still continue without another request.
    pub fn is_open(&self) -> bool {
        match self.state() {
            TurnState::Asking | TurnState::Calling(_) => !self.entries.is_empty(),
            TurnState::AwaitingClient(_) | TurnState::Final(_) | TurnState::Failed(_) => false,
        }
    }

    /// The model's last answer.
    pub fn last_answer(&self) -> Option<&Answered> {
        self.answers().last()
    }

    /// Every answer of the model.
    pub fn answers(&self) -> impl Iterator<Item = &Answered> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Answered(answered) => Some(answered),
            Entry::Opened(_) | Entry::ToolEnded(_) | Entry::Continued(_) | Entry::Failed(_) => None,
        })
    }

    /// How many times the model has answered since the present request.
    pub fn rounds(&self) -> usize {
        let is_request = |entry: &&Entry| matches!(entry, Entry::Opened(_) | Entry::Continued(_));
        let later = self.entries.iter().rev().take_while(|entry| !is_request(entry));
        later.filter(|entry| matches!(entry, Entry::Answered(_))).count()
    }

    /// The calls that the server made.
    pub fn ended_calls(&self) -> impl Iterator<Item = &ToolEnded> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::ToolEnded(ended) => Some(ended),
            Entry::Opened(_) | Entry::Answered(_) | Entry::Continued(_) | Entry::Failed(_) => None,
        })
    }

    /// The end of a call that the server made.
    pub fn ended(&self, tool_call_id: &str) -> Option<&ToolEnded> {
        self.ended_calls().find(|ended| ended.tool_call_id == tool_call_id)
    }

    /// Whether the model's last answer has calls for the caller.
    pub fn asks_client(&self) -> bool {
        self.last_answer().is_some_and(|answer| answer.calls.iter().any(AskedCall::is_clients))
    }

    /// The results that came with this key.
    pub fn continued_by(&self, correlation_id: &str) -> Option<&Continued> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Continued(continued) if continued.correlation_id == correlation_id => {
                Some(&**continued)
            }
            Entry::Continued(_)
            | Entry::Opened(_)
            | Entry::Answered(_)
            | Entry::ToolEnded(_)
            | Entry::Failed(_) => None,
        })
    }

    /// The calls that the results with this key answered.
    pub fn calls_answered_by(&self, correlation_id: &str) -> Vec<ToolCall> {
        let before = self.entries.iter().take_while(|entry| !is_key(entry, correlation_id));
        Self { id: self.id, entries: before.cloned().collect() }.awaited_calls()
    }

    /// The calls that the caller has to make now.
    pub fn awaited_calls(&self) -> Vec<ToolCall> {
        match self.state() {
            TurnState::AwaitingClient(calls) => calls,
            TurnState::Asking
            | TurnState::Calling(_)
            | TurnState::Final(_)
            | TurnState::Failed(_) => Vec::new(),
        }
    }

    /// The turn as the request with this key left it, without what later requests added. So a repeated
    /// request gets the same answer.
    pub fn seen_by(mut self, correlation_id: &str) -> Self {
        let own = self.entries.iter().position(|entry| is_key(entry, correlation_id));
        let is_later = |entry: &Entry| matches!(entry, Entry::Continued(_));
        let after = own.map_or(self.entries.len(), |own| own + 1);
        let later = self.entries.iter().skip(after).position(is_later);
        if let Some(later) = later {
            self.entries.truncate(after + later);
        }
        self
    }

    /// The tokens that the model used, over the whole turn.
    pub fn usage(&self) -> Option<Usage> {
        self.answers().filter_map(|answered| answered.usage).reduce(Usage::plus)
    }
}

/// Whether an entry belongs to the request with this key.
fn is_key(entry: &Entry, correlation_id: &str) -> bool {
    match entry {
        Entry::Opened(opened) => opened.correlation_id == correlation_id,
        Entry::Continued(continued) => continued.correlation_id == correlation_id,
        Entry::Answered(_) | Entry::ToolEnded(_) | Entry::Failed(_) => false,
    }
}

/// An answer's calls decide the next state: the server's calls first, then the caller's.
fn after_answer(answered: &Answered) -> TurnState {
    let server: Vec<AskedCall> =
        answered.calls.iter().filter(|call| !call.is_clients()).cloned().collect();
    if server.is_empty() { after_server_calls(answered) } else { TurnState::Calling(server) }
}

fn after_server_calls(answered: &Answered) -> TurnState {
    let client = answered.calls.iter().filter(|call| call.is_clients());
    let client: Vec<ToolCall> = client.map(AskedCall::for_client).collect();
    match (client.is_empty(), answered.calls.is_empty()) {
        (false, _) => TurnState::AwaitingClient(client),
        (true, false) => TurnState::Asking,
        (true, true) => TurnState::Final(answered.text.clone().unwrap_or_default()),
    }
}

/// The state after one of the server's calls has ended.
fn without(state: TurnState, tool_call_id: &str, answered: Option<&Answered>) -> TurnState {
    match (state, answered) {
        (TurnState::Calling(mut calls), Some(answered)) => {
            calls.retain(|call| call.tool_call_id != tool_call_id);
            if calls.is_empty() { after_server_calls(answered) } else { TurnState::Calling(calls) }
        }
        (state, _) => state,
    }
}

impl AskedCall {
    /// Whether the caller makes it.
    pub fn is_clients(&self) -> bool {
        self.action.is_none()
    }

    /// The call as the caller sees it.
    pub fn for_client(&self) -> ToolCall {
        ToolCall {
            tool_call_id: self.tool_call_id.clone(),
            name: self.name.clone(),
            arguments_json: self.arguments_json.clone(),
        }
    }

    /// The call as the model made it.
    pub fn requested(&self) -> RequestedCall {
        RequestedCall {
            tool_call_id: self.tool_call_id.clone(),
            name: self.name.clone(),
            arguments_json: self.arguments_json.clone(),
        }
    }
}
