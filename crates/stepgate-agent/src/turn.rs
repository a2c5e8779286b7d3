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
use crate::model::Message;
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
        let calls = self.calls.iter().map(AskedCall::tool_call).collect();
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

impl Entry {
    /// The key, the digest and the envelope of a request; none where the entry is no request.
    pub(crate) fn request(&self) -> Option<(&str, Digest, &Envelope)> {
        match self {
            Self::Opened(it) => Some((&it.correlation_id, it.request_digest, &it.envelope)),
            Self::Continued(it) => Some((&it.correlation_id, it.request_digest, &it.envelope)),
            Self::Answered(_) | Self::ToolEnded(_) | Self::Failed(_) => None,
        }
    }

    fn is_request_with(&self, key: &str) -> bool {
        self.request().is_some_and(|(correlation_id, ..)| correlation_id == key)
    }
}

impl Turn {
    /// A turn without durable entries.
    pub fn provisional(id: TurnId) -> Self {
        Self { id, entries: Vec::new() }
    }

    pub(crate) fn next_number(&self) -> u64 {
        u64::try_from(self.entries.len()).unwrap_or(u64::MAX)
    }

    /// How it began.
    pub fn opened(&self) -> Option<&Opened> {
        let Entry::Opened(opened) = self.entries.first()? else { return None };
        Some(opened)
    }

    /// What it waits for.
    pub fn state(&self) -> TurnState {
        match self.entries.last() {
            None | Some(Entry::Opened(_) | Entry::Continued(_)) => TurnState::Asking,
            Some(Entry::Answered(_) | Entry::ToolEnded(_)) => self.state_after_answer(),
            Some(Entry::Failed(result)) => TurnState::Failed(result.clone()),
        }
    }

    /// The last answer's calls decide: the server's calls first, then the caller's.
    fn state_after_answer(&self) -> TurnState {
        let Some(answer) = self.last_answer() else { return TurnState::Asking };
        let (clients, servers): (Vec<_>, Vec<_>) =
            answer.calls.iter().partition(|call| call.is_clients());
        let is_open = |call: &&AskedCall| self.ended(&call.tool_call_id).is_none();
        let open: Vec<AskedCall> = servers.into_iter().filter(is_open).cloned().collect();
        match (open.is_empty(), clients.is_empty(), answer.calls.is_empty()) {
            (false, _, _) => TurnState::Calling(open),
            (true, false, _) => {
                TurnState::AwaitingClient(clients.into_iter().map(AskedCall::tool_call).collect())
            }
            (true, true, false) => TurnState::Asking,
            (true, true, true) => TurnState::Final(answer.text.clone().unwrap_or_default()),
        }
    }

    /// Whether it can still continue without another request.
    pub fn is_open(&self) -> bool {
        let can_continue = matches!(self.state(), TurnState::Asking | TurnState::Calling(_));
        can_continue && !self.entries.is_empty()
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
        let later = self.entries.iter().rev().take_while(|entry| entry.request().is_none());
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

    /// The digest of the turn's request with this key.
    pub fn request_digest(&self, correlation_id: &str) -> Option<Digest> {
        let request = self.entries.iter().find(|entry| entry.is_request_with(correlation_id));
        request.and_then(Entry::request).map(|(_, digest, _)| digest)
    }

    /// The calls that the results with this key answer: those that waited when they came, or that wait now.
    pub fn calls_answered_by(&self, correlation_id: &str) -> Vec<ToolCall> {
        let before = self.entries.iter().take_while(|it| !it.is_request_with(correlation_id));
        let turn = Self { id: self.id, entries: before.cloned().collect() };
        let TurnState::AwaitingClient(calls) = turn.state() else { return Vec::new() };
        calls
    }

    /// The turn as the request with this key left it, without what later requests added. So a repeated
    /// request gets the same answer.
    pub fn seen_by(mut self, correlation_id: &str) -> Self {
        let own = self.entries.iter().position(|entry| entry.is_request_with(correlation_id));
        let after = own.map_or(self.entries.len(), |own| own + 1);
        let later = self.entries.iter().skip(after).position(|entry| entry.request().is_some());
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

impl AskedCall {
    /// Whether the caller makes it.
    pub fn is_clients(&self) -> bool {
        self.action.is_none()
    }

    /// The call as the model made it.
    pub fn tool_call(&self) -> ToolCall {
        ToolCall {
            tool_call_id: self.tool_call_id.clone(),
            name: self.name.clone(),
            arguments_json: self.arguments_json.clone(),
        }
    }
}
