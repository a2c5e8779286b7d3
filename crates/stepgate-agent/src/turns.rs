//! Storage of turns: the only module that reads and writes their events.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use stepgate_core::digest::Digest;
use stepgate_core::event::{Event, EventType};
use stepgate_core::failure::Outcome;
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::ids::{ArtifactId, RunId, SessionId};
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

/// How the turn began that this event opened.
pub(crate) fn opened(event: &Event) -> Result<(TurnId, Opened), Stop> {
    let unreadable = |error: serde_json::Error| damaged(&error.to_string());
    let written = Written::deserialize(&event.payload).map_err(unreadable)?;
    let opened = serde_json::from_value(written.body).map_err(unreadable)?;
    Ok((written.turn_id, opened))
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
    Ok(match now {
        Some(TurnState::Failed(result)) => Stop::Invoke(result),
        Some(
            TurnState::Asking
            | TurnState::Calling(_)
            | TurnState::AwaitingClient(_)
            | TurnState::Final(_),
        )
        | None => in_progress(id),
    })
}

/// The same, where several tasks race to write the same entry. Returns whether this one was first.
pub(crate) async fn append_first(
    gate: &Gate,
    session_id: SessionId,
    turn: &mut Turn,
    entry: Entry,
) -> Result<bool, Stop> {
    match write(gate, session_id, turn, &entry).await? {
        Next::Ours => {
            turn.entries.push(entry);
            Ok(true)
        }
        Next::Same | Next::Another => Ok(false),
    }
}

/// The event at the place of a turn's next event.
enum Next {
    /// Our entry, written by this process as far as it can know.
    Ours,
    /// The same entry, but it was there before.
    Same,
    /// Another entry.
    Another,
}

async fn write(
    gate: &Gate,
    session_id: SessionId,
    turn: &Turn,
    entry: &Entry,
) -> Result<Next, Stop> {
    let number = u64::try_from(turn.entries.len()).unwrap_or(u64::MAX);
    let event_id = turn.id.event_id(number);
    let written = TurnEvent { turn_id: turn.id, number, body: body(entry)? };
    let event = Event {
        event_id,
        event_type: event_type(entry),
        payload: serde_json::to_value(&written).map_err(|error| damaged(&error.to_string()))?,
        run_id: None,
        sequence_number: 0,
        session_id,
        ts: gate.world.now(),
    };
    let Err(refused) = gate.store.append_event(event.clone()).await else {
        return Ok(Next::Ours);
    };
    // The event may exist: ours, if the answer was lost, or another task's, which won the race.
    let same = match refused {
        StoreError::AnswerLost(_) => Next::Ours,
        StoreError::State(_) => Next::Same,
        StoreError::KeyTaken
        | StoreError::AlreadyDecided
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

/// Another request works on the same turn.
pub(crate) fn in_progress(turn_id: TurnId) -> Stop {
    let message = "another request works on this turn: ask again with the same key";
    Code::TurnInProgress.error(message).with("turnId", turn_id).into()
}

fn event_type(entry: &Entry) -> EventType {
    match entry {
        Entry::Opened(_) => EventType::TurnOpened,
        Entry::Answered(_) => EventType::TurnAnswered,
        Entry::ToolEnded(_) => EventType::TurnToolEnded,
        Entry::Continued(_) => EventType::TurnContinued,
        Entry::Failed(_) => EventType::TurnFailed,
    }
}

fn body(entry: &Entry) -> Result<Value, Stop> {
    let body = match entry {
        Entry::Opened(opened) => serde_json::to_value(opened),
        Entry::Answered(answered) => serde_json::to_value(answered),
        Entry::ToolEnded(ended) => serde_json::to_value(ended),
        Entry::Continued(continued) => serde_json::to_value(continued),
        Entry::Failed(result) => serde_json::to_value(result),
    };
    body.map_err(|error| damaged(&error.to_string()))
}

fn read(event: &Event, id: TurnId, number: u64) -> Result<Entry, Stop> {
    let unreadable = |error: serde_json::Error| damaged(&error.to_string());
    let written = Written::deserialize(&event.payload).map_err(unreadable)?;
    if (written.turn_id, written.number) != (id, number) {
        return Err(damaged("an event of the turn says that it is another's"));
    }
    let body = written.body;
    let entry = match event.event_type {
        EventType::TurnOpened => serde_json::from_value(body).map(|it| Entry::Opened(Box::new(it))),
        EventType::TurnAnswered => serde_json::from_value(body).map(Entry::Answered),
        EventType::TurnToolEnded => serde_json::from_value(body).map(Entry::ToolEnded),
        EventType::TurnContinued => {
            serde_json::from_value(body).map(|it| Entry::Continued(Box::new(it)))
        }
        EventType::TurnFailed => serde_json::from_value(body).map(Entry::Failed),
        EventType::ToolCalled
        | EventType::ToolSucceeded
        | EventType::ToolFailed
        | EventType::PolicyViolation
        | EventType::ApprovalRequested
        | EventType::ApprovalGranted
        | EventType::ApprovalDenied
        | EventType::ApprovalExpired
        | EventType::ToolReplayed
        | EventType::ToolRedispatched
        | EventType::RunRecovered
        | EventType::LateResult
        | EventType::RunResolved
        | EventType::RunNeedsPerson
        | EventType::PartNeedsPerson
        | EventType::ApprovalVoted
        | EventType::GrantCreated
        | EventType::GrantUsed
        | EventType::GrantRevoked
        | EventType::SessionOpened
        | EventType::ToolAccepted
        | EventType::PolicyLoaded
        | EventType::TokenCreated
        | EventType::TokenRevoked
        | EventType::TurnWaiting => return Err(damaged("an event of the turn is of no turn")),
    };
    entry.map_err(unreadable)
}

/// The stored event is not what was written.
fn damaged(why: &str) -> Stop {
    Stop::Fault(Fault::from(StateError::checksum(format!("a turn cannot be read: {why}"))))
}

#[cfg(test)]
mod tests;
