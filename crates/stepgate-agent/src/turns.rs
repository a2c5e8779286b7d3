//! Storage of turns: the only module that reads and writes their events.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use stepgate_core::digest::Digest;
use stepgate_core::event::{Event, EventType, payload};
use stepgate_core::failure::Outcome;
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::ids::{ArtifactId, IdempotencyKey, PrincipalId, ProposalId, RunId, SessionId};
use stepgate_core::journal::StateError;
use stepgate_core::ports::StoreError;
use stepgate_core::step::{self, Answer, Reply};
use stepgate_core::words;

use crate::stop::{Code, Stop};
use crate::turn::{Entry, Opened, ToolEnded, Turn, TurnEvent, TurnId, TurnState};

/// Limit of the events that are read for one turn: far above what the limits of rounds and calls allow.
const ENTRIES_MAX: u64 = 10_000;
/// Events of a turn that one query reads. Few turns have more.
const ENTRIES_AT_ONCE: u64 = 32;

/// The payload of a turn's event, as it is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    turn_id: TurnId,
    /// From 0, without gaps.
    number: u64,
    #[serde(deserialize_with = "stepgate_core::json::strict::value")]
    body: Value,
}

/// A turn with the session whose chain has it; none where there is no such turn.
pub(crate) async fn load(gate: &Gate, id: TurnId) -> Result<Option<(SessionId, Turn)>, Stop> {
    let mut turn = Turn::provisional(id);
    let mut session_id = None;
    let mut found = HashMap::new();
    for number in 0..ENTRIES_MAX {
        if number % ENTRIES_AT_ONCE == 0 {
            found = next_events(gate, id, number).await?;
        }
        let Some(event) = found.get(&id.event_id(number)) else { break };
        // An event of another type under this id is not the start of a turn.
        if number == 0 && event.event_type != EventType::TurnOpened {
            return Ok(None);
        }
        session_id.get_or_insert(event.session_id);
        turn.entries.push(read(event, id, number)?);
    }
    Ok(session_id.map(|session_id| (session_id, turn)))
}

/// The events of a turn from this number on, as many as one query reads.
async fn next_events(
    gate: &Gate,
    id: TurnId,
    from: u64,
) -> Result<HashMap<ArtifactId, Event>, Stop> {
    let event_ids: Vec<ArtifactId> =
        (from..from + ENTRIES_AT_ONCE).map(|number| id.event_id(number)).collect();
    let events = gate.store.events_by_id(&event_ids).await?;
    Ok(events.into_iter().map(|event| (event.event_id, event)).collect())
}

/// The responses to the calls that the server made in some turns. They are stored in the runs' records, and
/// only there.
pub(crate) struct CallResponses(HashMap<RunId, Answer>);

impl CallResponses {
    /// Reads them all in one query.
    pub(crate) async fn of(
        gate: &Gate,
        turns: impl IntoIterator<Item = &Turn>,
    ) -> Result<Self, Stop> {
        let ended = turns.into_iter().flat_map(Turn::ended_calls);
        let run_ids: Vec<RunId> = ended.map(|ended| ended.run_id).collect();
        if run_ids.is_empty() {
            return Ok(Self(HashMap::new()));
        }
        let answers = step::recorded_answers(gate, &run_ids).await?;
        Ok(Self(answers.into_iter().map(|answer| (answer.run_id, answer)).collect()))
    }

    pub(crate) fn response_to(&self, ended: &ToolEnded) -> Result<&Answer, Stop> {
        let missing = || damaged(&format!("there is no run {}", ended.run_id));
        self.0.get(&ended.run_id).ok_or_else(missing)
    }
}

/// The gate's answer to a call that the server makes; none where the call has not reached the gate.
pub(crate) async fn answer_to(
    gate: &Gate,
    principal_id: &PrincipalId,
    turn_id: TurnId,
    tool_call_id: &str,
) -> Result<Option<Answer>, Stop> {
    let proposal_id = ProposalId::from(turn_id.proposal_id(tool_call_id));
    let key = IdempotencyKey::of(principal_id, &proposal_id);
    let Some(binding) = gate.store.binding(&key).await? else { return Ok(None) };
    Ok(Some(step::answer_of(gate, binding.trace_id).await?))
}

/// What the model is told of its call: the response and, if the call was refused or failed, what the tool says or what
/// to do now.
pub(crate) async fn told_of(gate: &Gate, answer: &Answer) -> Result<String, Stop> {
    let body = answer.body();
    let recorded = match &answer.reply {
        Reply::Recorded(recorded) if recorded.outcome != Outcome::Success => recorded,
        Reply::Recorded(_) | Reply::ApprovalRequired(_) | Reply::InProgress(_) => return Ok(body),
    };
    let words = match &recorded.output_json {
        Some(said) => said.clone(),
        None => words::of_run(gate, answer.run_id, recorded).await?,
    };
    Ok(format!("{body}\n{words}"))
}

/// Writes the next entry, durably. If two requests race to write the next event, one is refused.
pub(crate) async fn append(
    gate: &Gate,
    session_id: SessionId,
    turn: &mut Turn,
    entry: Entry,
) -> Result<(), Stop> {
    match write(gate, session_id, turn, &entry).await? {
        Next::Ours | Next::Same => {
            turn.entries.push(entry);
            Ok(())
        }
        Next::Another => Err(overtaken(gate, turn.id).await?),
    }
}

/// Why another event has the place of the next one: the turn was ended, or another request works on it.
async fn overtaken(gate: &Gate, id: TurnId) -> Result<Stop, Stop> {
    let now = load(gate, id).await?.map(|(_, turn)| turn.state());
    if let Some(TurnState::Failed(result)) = now {
        return Ok(Stop::Invoke(result));
    }
    Ok(in_progress(id))
}

/// Writes the next entry where several tasks race to write the same one. Returns whether this one was first.
pub(crate) async fn append_first(
    gate: &Gate,
    session_id: SessionId,
    turn: &Turn,
    entry: &Entry,
) -> Result<bool, Stop> {
    let next = write(gate, session_id, turn, entry).await?;
    Ok(matches!(next, Next::Ours))
}

/// The event at the place of a turn's next event.
enum Next {
    /// Our entry, written by this process as far as it can know.
    Ours,
    /// The same entry, but it was there before.
    Same,
    Another,
}

async fn write(
    gate: &Gate,
    session_id: SessionId,
    turn: &Turn,
    entry: &Entry,
) -> Result<Next, Stop> {
    let number = turn.next_number();
    let event_id = turn.id.event_id(number);
    let (event_type, body) = match entry {
        Entry::Opened(opened) => (EventType::TurnOpened, payload::value(opened)),
        Entry::Answered(answered) => (EventType::TurnAnswered, payload::value(answered)),
        Entry::ToolEnded(ended) => (EventType::TurnToolEnded, payload::value(ended)),
        Entry::Continued(continued) => (EventType::TurnContinued, payload::value(continued)),
        Entry::Failed(result) => (EventType::TurnFailed, payload::value(result)),
    };
    let written = TurnEvent { turn_id: turn.id, number, body };
    let event = gate.event(event_id, event_type, payload::value(&written), session_id);
    let Err(refused) = gate.store.append_event(event.clone()).await else {
        return Ok(Next::Ours);
    };
    // The event may exist: ours, if the answer was lost, or another task's, which won the race.
    let same = match refused {
        StoreError::AnswerLost(_) => Next::Ours,
        StoreError::State(_) => Next::Same,
        StoreError::KeyTaken
        | StoreError::AlreadyDecided
        | StoreError::OverBudget(_)
        | StoreError::UnknownSession(_)
        | StoreError::Unavailable(_)
        | StoreError::Broken(_) => return Err(refused.into()),
    };
    match gate.store.event(event_id).await? {
        Some(there)
            if there.session_id == session_id
                && Digest::of(&there.payload) == Digest::of(&event.payload) =>
        {
            Ok(same)
        }
        Some(_) => Ok(Next::Another),
        None => Err(refused.into()),
    }
}

pub(crate) fn in_progress(turn_id: TurnId) -> Stop {
    let message = "another request works on this turn: ask again with the same key";
    Code::TurnInProgress.error(message).with("turnId", turn_id).into()
}

/// How the turn began that this event opened.
pub fn opened(event: &Event) -> Result<(TurnId, Opened), Stop> {
    let Written { turn_id, body, .. } = written(event)?;
    Ok((turn_id, serde_json::from_value(body).map_err(unreadable)?))
}

fn read(event: &Event, id: TurnId, number: u64) -> Result<Entry, Stop> {
    let Written { turn_id, number: written_number, body } = written(event)?;
    if (turn_id, written_number) != (id, number) {
        return Err(damaged("an event of the turn says that it is another's"));
    }
    let reader = READERS.iter().find(|(event_type, _)| *event_type == event.event_type);
    let Some((_, read)) = reader else {
        return Err(damaged("an event of the turn is of no turn"));
    };
    read(body).map_err(unreadable)
}

type Reader = fn(Value) -> serde_json::Result<Entry>;

/// The types of a turn's events, and how their bodies are read.
const READERS: [(EventType, Reader); 5] = [
    (EventType::TurnOpened, |body| serde_json::from_value(body).map(Entry::Opened)),
    (EventType::TurnAnswered, |body| serde_json::from_value(body).map(Entry::Answered)),
    (EventType::TurnToolEnded, |body| serde_json::from_value(body).map(Entry::ToolEnded)),
    (EventType::TurnContinued, |body| serde_json::from_value(body).map(Entry::Continued)),
    (EventType::TurnFailed, |body| serde_json::from_value(body).map(Entry::Failed)),
];

fn written(event: &Event) -> Result<Written, Stop> {
    Written::deserialize(&event.payload).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> Stop {
    damaged(&error.to_string())
}

/// The stored event is not what was written.
fn damaged(why: &str) -> Stop {
    Stop::Fault(Fault::from(StateError::checksum(format!("a turn cannot be read: {why}"))))
}

#[cfg(test)]
mod tests;
