//! The JSON of turns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_agent::envelope::{
    ClientTool, ClipBoardImage, Envelope, InputArtifact, Party, ToolCallResult,
};
use stepgate_agent::invoke::InvokeError;
use stepgate_agent::ports::Waiting;
use stepgate_agent::response::Response;
use stepgate_agent::stop::Stop;
use stepgate_agent::turn::TurnId;
use stepgate_agent::view::{self, Standing};
use stepgate_core::event::Event;
use stepgate_core::ids::{ApprovalId, PrincipalId, RunId, SessionId};
use stepgate_core::spelled;
use stepgate_core::time::Timestamp;
use stepgate_gateway::turns::{Live, Look};

/// A request. It does not contain organisation and user: they come from the configuration and the token.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct TurnRequest {
    session_id: Option<String>,
    turn_id: Option<String>,
    instructions: Option<String>,
    input_artifacts: Vec<InputArtifact>,
    clip_board_images: Vec<ClipBoardImage>,
    tool_results: Vec<ToolCallResult>,
    tools: Vec<ClientTool>,
}

impl TurnRequest {
    pub(super) fn envelope(self, org: &str, principal_id: &PrincipalId) -> Envelope {
        Envelope {
            org: Some(Party { id: org.to_owned() }),
            user: Some(Party { id: principal_id.to_string() }),
            session_id: self.session_id,
            turn_id: self.turn_id,
            instructions: self.instructions,
            input_artifacts: self.input_artifacts,
            clip_board_images: self.clip_board_images,
            tool_results: self.tool_results,
            tools: self.tools,
        }
    }
}

/// The body of a 202 response: the turn goes on without the caller.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TurnAccepted")]
#[serde(rename_all = "camelCase")]
pub(crate) struct Accepted {
    /// `APPROVAL_REQUIRED` if the turn waits for an approval, `IN_PROGRESS` otherwise.
    code: &'static str,
    session_id: Option<SessionId>,
    turn_id: Option<TurnId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_id: Option<ApprovalId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

impl Accepted {
    pub(super) fn of(live: &Live, waiting: Option<&Waiting>) -> Self {
        let approval_id = waiting.and_then(|waiting| waiting.approval_id);
        Self {
            code: code(approval_id),
            session_id: live.session_id(),
            turn_id: live.turn_id,
            approval_id,
            run_id: waiting.map(|waiting| waiting.run_id),
            tool_call_id: waiting.map(|waiting| waiting.tool_call_id.clone()),
        }
    }
}

fn code(approval_id: Option<ApprovalId>) -> &'static str {
    if approval_id.is_some() { "APPROVAL_REQUIRED" } else { "IN_PROGRESS" }
}

/// Longest beginning of a user's text in a list, in characters.
const INSTRUCTIONS_CHARS_MAX: usize = 200;

/// A page of turns.
#[derive(Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Turns {
    turns: Vec<ListedTurn>,
    /// Cursor of the next page; none on the last page.
    next_before: Option<TurnId>,
}

impl Turns {
    /// The turns that these events opened.
    pub(super) fn of(events: &[Event], is_full: bool) -> Result<Self, Stop> {
        let turns: Vec<_> = events.iter().map(ListedTurn::of).collect::<Result<_, _>>()?;
        let next_before = turns.last().filter(|_| is_full).map(|turn| turn.turn_id);
        Ok(Self { turns, next_before })
    }
}

/// A turn in a list. `GET /v1/agent/turns/{id}` has its state.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListedTurn {
    session_id: SessionId,
    turn_id: TurnId,
    ts: Timestamp,
    /// The key of the request that opened it.
    idempotency_key: String,
    previous_turn_id: Option<TurnId>,
    /// The beginning of what the user asked for.
    instructions: Option<String>,
}

impl ListedTurn {
    fn of(event: &Event) -> Result<Self, Stop> {
        let (turn_id, opened) = view::opened(event)?;
        let beginning = |text: String| text.chars().take(INSTRUCTIONS_CHARS_MAX).collect();
        Ok(Self {
            session_id: event.session_id,
            turn_id,
            ts: event.ts,
            idempotency_key: opened.correlation_id,
            previous_turn_id: opened.previous,
            instructions: opened.envelope.instructions.map(beginning),
        })
    }
}

/// A turn as people see it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Turn")]
#[serde(rename_all = "camelCase")]
pub(crate) struct TurnObject {
    pub(crate) session_id: SessionId,
    pub(crate) turn_id: TurnId,
    pub(crate) state: TurnState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval_id: Option<ApprovalId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<RunId>,
    /// The response that the caller got or would get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) response: Option<Response>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<Vec<InvokeError>>,
}

spelled! {
    /// How far a turn has come.
    #[derive(Clone, Copy, Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum TurnState {
        InProgress = "under way",
        ApprovalRequired = "waits for an approval",
        Stopped = "stopped: the same request continues it",
        ClientToolsRequired = "waits for the results of the caller's tools",
        Final = "answered",
        Failed = "failed",
    }
    /// For people.
    fn words
}

impl TurnObject {
    pub(super) fn of(Look { turn_id, session_id, standing, is_live }: Look) -> Self {
        let (state, waiting, response, errors) = match standing {
            Standing::Open if is_live => (TurnState::InProgress, None, None, None),
            Standing::Open => (TurnState::Stopped, None, None, None),
            Standing::Waiting(waiting) => match waiting.approval_id {
                Some(_) => (TurnState::ApprovalRequired, Some(waiting), None, None),
                None => (TurnState::InProgress, Some(waiting), None, None),
            },
            Standing::Answered(response) => match response.tool_calls {
                None => (TurnState::Final, None, Some(*response), None),
                Some(_) => (TurnState::ClientToolsRequired, None, Some(*response), None),
            },
            Standing::Failed(result) => (TurnState::Failed, None, None, Some(result.errors)),
        };
        Self {
            session_id,
            turn_id,
            state,
            approval_id: waiting.as_ref().and_then(|waiting| waiting.approval_id),
            run_id: waiting.map(|waiting| waiting.run_id),
            response,
            errors,
        }
    }
}
