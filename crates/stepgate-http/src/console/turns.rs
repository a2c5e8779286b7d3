//! `/turns/{id}`: a turn of the agent: what was asked, what the model answered, and which calls it made.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use stepgate_agent::invoke::InvokeError;
use stepgate_agent::response::{Response as Answer, Usage};
use stepgate_agent::turn::TurnId;
use stepgate_agent::view;
use stepgate_core::event::Event;
use stepgate_core::time::Timestamp;

use super::{Frame, Moment, Shown, Tab, Text, Trouble, Visit, ago, html};
use crate::{Id, Problem, turns};

#[derive(Template)]
#[template(path = "turn.html")]
struct TurnPage {
    frame: Frame,
    turn: turns::TurnObject,
    principal: Option<Text>,
    /// None if the event that opened it cannot be read; `verify` reports it.
    asked: Option<TurnRow>,
    /// The model's last words: its answer, or what it says beside calls for the caller.
    answer: Option<Shown>,
    /// The calls that the server made, and their results.
    done: Vec<Call>,
    /// The calls that the caller must make, and their arguments.
    wanted: Vec<Call>,
    warnings: Vec<Text>,
    usage: Option<Usage>,
    errors: Vec<Failure>,
}

/// A turn as it was asked for.
pub(super) struct TurnRow {
    pub(super) turn_id: TurnId,
    pub(super) previous: Option<TurnId>,
    pub(super) opened: Moment,
    pub(super) age: String,
    pub(super) instructions: Option<Shown>,
}

/// A call of the model, with its arguments or its result.
struct Call {
    tool: Text,
    value: Option<Shown>,
    error: Option<Shown>,
}

/// Why a turn has no answer.
struct Failure {
    code: Text,
    message: Text,
}

pub(super) async fn show(
    Visit(app, visitor): Visit,
    id: Result<Id<TurnId>, Problem>,
) -> Result<Response, Trouble> {
    let Ok(Id(turn_id)) = id else { return Err(Trouble::no_such("turn")) };
    let Some(mut turn) = turns::find(&app, turn_id).await? else {
        return Err(Trouble::no_such("turn"));
    };
    let gate = &app.service.gate;
    let opened = gate.store.event(turn_id.event_id(0)).await?;
    let session = gate.store.session(turn.session_id).await?;
    let answer = turn.response.take().unwrap_or_default();
    let page = TurnPage {
        frame: Frame::at(Tab::Sessions, "Turn", &visitor),
        principal: session.map(|session| Text::of(session.principal_id.as_str())),
        asked: opened.and_then(|event| TurnRow::of(&event, gate.world.now())),
        answer: last_words(&answer).map(Shown::of),
        done: calls_done(&answer),
        wanted: calls_wanted(&answer),
        warnings: answer.user_warnings.iter().flatten().map(|text| Text::of(text)).collect(),
        usage: answer.usage,
        errors: turn.errors.iter().flatten().map(Failure::of).collect(),
        turn,
    };
    Ok(html(StatusCode::OK, &page))
}

fn last_words(answer: &Answer) -> Option<&str> {
    let words = answer.primary_output_text.as_ref().or(answer.tool_continuation_message.as_ref());
    words.map(String::as_str)
}

fn calls_done(answer: &Answer) -> Vec<Call> {
    let calls = answer.tool_results.iter().flatten().map(|call| Call {
        tool: Text::of(&call.name),
        value: call.result_json.as_deref().map(json),
        error: call.error_message.as_deref().map(Shown::of),
    });
    calls.collect()
}

fn calls_wanted(answer: &Answer) -> Vec<Call> {
    let calls = answer.tool_calls.iter().flatten().map(|call| Call {
        tool: Text::of(&call.name),
        value: Some(json(&call.arguments_json)),
        error: None,
    });
    calls.collect()
}

/// JSON text with line breaks and indentation; other text as it is.
fn json(text: &str) -> Shown {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => Shown::value(&value),
        Err(_) => Shown::of(text),
    }
}

impl TurnRow {
    /// None if the event cannot be read; `verify` reports it.
    pub(super) fn of(event: &Event, now: Timestamp) -> Option<Self> {
        let (turn_id, opened) = view::opened(event).ok()?;
        Some(Self {
            turn_id,
            previous: opened.previous,
            opened: Moment::of(event.ts),
            age: ago(event.ts, now),
            instructions: opened.envelope.instructions.as_deref().map(Shown::of),
        })
    }
}

impl Failure {
    fn of(error: &InvokeError) -> Self {
        Self { code: Text::of(&error.code), message: Text::of(&error.message) }
    }
}
