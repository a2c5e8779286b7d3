//! `POST /v1/steps`: the request body is the proposal, and the response body is the step's response, byte for byte.

mod proposal;

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use stepgate_core::failure::{Failure, Outcome};
use stepgate_core::ids::{IdempotencyKey, ProposalId, SessionId};
use stepgate_core::json::strict::{self, Integers};
use stepgate_core::run::{Notice, Payload, Word};
use stepgate_core::step::Answer;

use super::{
    App, Caller, Problem, Proposer, REPLAYED_HEADER, RUN_HEADER, SESSION_HEADER, STEP_INDEX_HEADER,
    body,
};
pub(super) use proposal::Proposal;

pub(super) async fn propose(
    Proposer(app, caller): Proposer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let session = session(&headers)?;
    let max_wait = max_wait(&headers, app.limits.wait_max)?;
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::unsupported_media_type());
    }
    let payload = body::payload(&app, body).await?;
    if !app.has_space(&caller) && !is_known(&app, &caller, &payload).await? {
        app.may_record(&caller)?;
    }
    let wait = max_wait.unwrap_or_default();
    let answer = app.service.submit(caller.principal_id, session, payload, wait).await?;
    app.metrics.step();
    let mut response = respond(answer);
    if let Some(max_wait) = max_wait {
        let applied = HeaderValue::from_str(&format!("wait={}", max_wait.as_secs()));
        if let Ok(applied) = applied {
            response.headers_mut().insert("preference-applied", applied);
        }
    }
    Ok(response)
}

/// Whether the caller has sent a proposal with this id before: its answer is recorded already, or waits for a person.
async fn is_known(app: &App, caller: &Caller, payload: &Payload) -> Result<bool, Problem> {
    let gate = &app.service.gate;
    let parsed = strict::parse(&payload.bytes, gate.limits.json_depth_max, Integers::Exact);
    let id = parsed.ok().and_then(|it| ProposalId::parse(it.get("id")?.as_str()?).ok());
    let Some(id) = id else { return Ok(false) };
    let key = IdempotencyKey::of(&caller.principal_id, &id);
    Ok(gate.store.binding(&key).await?.is_some())
}

fn session(headers: &HeaderMap) -> Result<Option<SessionId>, Problem> {
    let Some(value) = headers.get(SESSION_HEADER) else {
        return Ok(None);
    };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| Problem::malformed("`Stepgate-Session` must be a UUIDv7"))
}

/// How long the caller wants to wait: `Prefer: wait=SECONDS`, up to the limit. Other preferences are ignored, as
/// RFC 7240 requires.
pub(super) fn max_wait(headers: &HeaderMap, most: Duration) -> Result<Option<Duration>, Problem> {
    let texts = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    for preference in texts.flat_map(|text| text.split(',')) {
        let Some((name, value)) = preference.split_once('=') else { continue };
        if !name.trim().eq_ignore_ascii_case("wait") {
            continue;
        }
        let value = value.split(';').next().unwrap_or_default().trim().trim_matches('"');
        let seconds: u64 = value
            .parse()
            .map_err(|_| Problem::malformed("`Prefer: wait` takes a whole number of seconds"))?;
        return Ok(Some(Duration::from_secs(seconds).min(most)));
    }
    Ok(None)
}

/// The HTTP response of an answer: its status (the table is in docs/http.md), headers and body.
pub(super) fn respond(answer: Answer) -> Response {
    let status = status(&answer);
    let mut headers = HeaderMap::new();
    let mut set = |name: &'static str, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("content-type", "application/json");
    set(RUN_HEADER, &answer.run_id.to_string());
    set(SESSION_HEADER, &answer.session_id.to_string());
    set(STEP_INDEX_HEADER, &answer.step_index.to_string());
    if answer.replayed {
        set(REPLAYED_HEADER, "true");
    }
    match answer.word() {
        Word::Notice(_) => set("retry-after", "1"),
        Word::Outcome(_) => {}
    }
    (status, headers, answer.body()).into_response()
}

fn status(answer: &Answer) -> StatusCode {
    match answer.word() {
        Word::Outcome(Outcome::Success | Outcome::ExecutionError) => StatusCode::OK,
        Word::Outcome(Outcome::ValidationError) if is_conflict(answer) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        Word::Outcome(Outcome::ValidationError) => StatusCode::BAD_REQUEST,
        Word::Outcome(Outcome::Denied) => StatusCode::FORBIDDEN,
        Word::Notice(Notice::ApprovalRequired) => StatusCode::ACCEPTED,
        Word::Notice(Notice::InProgress) => StatusCode::CONFLICT,
    }
}

/// Whether the id was already used for another proposal.
fn is_conflict(answer: &Answer) -> bool {
    answer.error().is_some_and(|error| error.error_code == Failure::IdempotencyConflict.code())
}
