//! Errors outside of a step's outcome, as problem details (RFC 9457): a code for programs and a text for people.
//!
//! The messages are fixed: they reveal nothing about the host, other principals, or what exists.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use stepgate_core::consent::GrantRefused;
use stepgate_core::failure::Failure;
use stepgate_core::gate::Fault;
use stepgate_core::ids::RunId;
use stepgate_core::journal::{StateCode, StateError};
use stepgate_core::ports::StoreError;
use stepgate_core::step::Refused;
use stepgate_core::text::capitalised;
use stepgate_core::time::Timestamp;
use tracing::error;

use crate::local::NoPerson;

/// Code and message of a problem, attached to the response for an interface with its own error format.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// `Retry-After` while the disk is nearly full.
const STORAGE_RETRY_S: u64 = 60;

/// The media type of problem details.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// Problem details (RFC 9457): an error that is not the outcome of a step.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemObject {
    /// `urn:stepgate:error:` and the code.
    #[serde(rename = "type")]
    problem_type: String,
    /// The code in words.
    title: String,
    /// The status of the response.
    pub(crate) status: u16,
    /// What is wrong and what to do about it, for people.
    detail: String,
    /// The code, for programs.
    code: &'static str,
    /// What exactly is wrong with a proposal that policy was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// An error response that is not the outcome of a step.
#[derive(Debug)]
pub struct Problem {
    pub(crate) status: StatusCode,
    code: &'static str,
    message: String,
    reason: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), reason: None, headers: Vec::new() }
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The request cannot be understood. The message says what is wrong and what is expected.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "MALFORMED", message)
    }

    /// Policy cannot be asked about a payload that is not a valid proposal.
    pub(crate) fn invalid(failure: &Failure) -> Self {
        let (code, message) = (failure.code(), failure.message());
        let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message);
        Self { reason: failure.detail(), ..problem }
    }

    pub(crate) fn unauthenticated() -> Self {
        Self::no_token("a valid token is needed: `Authorization: Bearer TOKEN`")
    }

    pub(crate) fn expired(at: Timestamp) -> Self {
        Self::no_token(format!("this token expired at {at}: ask an operator for a new one"))
    }

    fn no_token(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", message)
            .with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"stepgate\""))
    }

    /// An operator's request without a token, from a process whose terminal cannot have a person.
    pub(crate) fn no_person(why: NoPerson) -> Self {
        let message = match why {
            NoPerson::NoTerminal => {
                "this needs an operator: do it in the foreground of a terminal, or with an \
                 operator's token (--token-file FILE)"
            }
            NoPerson::Agents => {
                "this process belongs to an agent's client or runs in its terminal, and an agent \
                 does not decide: do it in another terminal, or with an operator's token \
                 (--token-file FILE)"
            }
        };
        Self::may_not(message)
    }

    fn own_request() -> Self {
        Self::may_not(
            "you asked for this yourself, or your token and the one that asked come from one maker: \
             another operator has to decide",
        )
    }

    pub(crate) fn forbidden() -> Self {
        Self::may_not("this token may not do that")
    }

    /// The caller is known, and may not do this.
    fn may_not(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "FORBIDDEN", message)
    }

    pub(crate) fn no_agent() -> Self {
        let message = "this gateway has no agent: `agent.base_url` and `agent.model` name one";
        Self::new(StatusCode::NOT_IMPLEMENTED, "NO_AGENT", message)
    }

    pub(crate) fn archived(run_id: RunId, file: Option<&str>) -> Self {
        let place = file.map(|file| format!(": its archive is `{file}`")).unwrap_or_default();
        let message = format!("run {run_id} has left the store{place}");
        Self::new(StatusCode::GONE, "RUN_ARCHIVED", message)
    }

    /// It does not exist, or it belongs to another principal: the answer is the same.
    pub(crate) fn not_found() -> Self {
        Self::nothing_there("there is no such thing here")
    }

    /// The same, for a caller who may know what is missing.
    pub(crate) fn nothing_there(message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
    }

    pub(crate) fn method_not_allowed(allowed: &[&str]) -> Self {
        let message = "this method is not for this path: `Allow` names those that are";
        let mut problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", message);
        let allowed = HeaderValue::from_str(&allowed.join(", ")).ok();
        problem.headers.extend(allowed.map(|allowed| (header::ALLOW, allowed)));
        problem
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "CONFLICT", message)
    }

    /// A run that cannot go on, for operators: its code and exactly what is wrong.
    pub(crate) fn state(error: &StateError) -> Self {
        Self::new(StatusCode::CONFLICT, error.code.as_str(), error.detail.clone())
    }

    /// The same for other callers.
    fn quarantined() -> Self {
        let message = "this run does not verify and an operator must look at it: asking again changes \
                       nothing until then";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", message)
    }

    pub(crate) fn too_slow() -> Self {
        let message = "the request did not come in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", message).closing()
    }

    pub(crate) fn too_large(bytes_max: u64) -> Self {
        let message = format!("the body is longer than {bytes_max} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message).closing()
    }

    pub(crate) fn head_too_large() -> Self {
        let message = "the request's head is too large";
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "HEAD_TOO_LARGE", message)
    }

    pub(crate) fn uri_too_long() -> Self {
        Self::new(StatusCode::URI_TOO_LONG, "URI_TOO_LONG", "the path is too long")
    }

    pub(crate) fn too_many_connections() -> Self {
        let message = "too many connections: come again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", message)
    }

    /// Closes the connection after this response.
    pub(crate) fn closing(self) -> Self {
        self.with(header::CONNECTION, HeaderValue::from_static("close"))
    }

    /// The body has an unsupported format.
    pub fn unsupported_media_type() -> Self {
        let message = "the body must be plain `application/json`";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message)
    }

    pub(crate) fn too_many(retry_after_s: u64) -> Self {
        let message = "too many requests: `Retry-After` says when to go on";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS", message)
            .with(header::RETRY_AFTER, HeaderValue::from(retry_after_s))
    }

    /// The caller's unfinished bodies take its share of memory.
    pub(crate) fn too_many_bodies() -> Self {
        let message = "too many unfinished bodies: send fewer at one time";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS", message)
            .with(header::RETRY_AFTER, HeaderValue::from(1_u64))
            .closing()
    }

    /// Free space is reserved for operators, and an agent asks. Nothing was done.
    pub(crate) fn storage_low() -> Self {
        let message = "the gateway's disk is nearly full, so agents' steps are refused and nothing was done: an \
                       operator has to free some space; ask again later";
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "STORAGE_LOW", message)
            .with(header::RETRY_AFTER, HeaderValue::from(STORAGE_RETRY_S))
    }

    pub(crate) fn internal() -> Self {
        let message = "Stepgate itself failed and the end is unknown: ask again with the same id";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", message)
    }

    pub(crate) fn unavailable() -> Self {
        let message = "not possible now and the end is unknown: ask again with the same id";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", message)
            .with(header::RETRY_AFTER, HeaderValue::from(1_u64))
    }

    /// Status, message and headers, for a response that is not JSON.
    pub(crate) fn into_parts(self) -> (StatusCode, String, Vec<(HeaderName, HeaderValue)>) {
        (self.status, self.message, self.headers)
    }

    /// What is wrong, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn said(&self) -> Said {
        Said { code: self.code, message: self.message.clone() }
    }

    pub(crate) fn object(&self) -> ProblemObject {
        ProblemObject {
            problem_type: format!("urn:stepgate:error:{}", self.code),
            title: title(self.code),
            status: self.status.as_u16(),
            detail: self.message.clone(),
            code: self.code,
            reason: self.reason.clone(),
        }
    }

    /// The JSON body, also for responses that are made without the router.
    pub(crate) fn body(&self) -> String {
        serde_json::to_string(&self.object()).unwrap_or_default()
    }
}

/// `NOT_FOUND` as "Not found".
fn title(code: &str) -> String {
    capitalised(&code.to_lowercase().replace('_', " "))
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static(MEDIA_TYPE);
        let mut response = (self.status, self.body()).into_response();
        response.extensions_mut().insert(self.said());
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// The fault is logged for the operator; the caller learns only that Stepgate failed.
impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        let problem = match &fault {
            Fault::ForeignSession(_) => return Self::not_found(),
            Fault::Store(StoreError::Unavailable(_) | StoreError::AnswerLost(_)) => {
                Self::unavailable()
            }
            Fault::Store(StoreError::State(error)) => match error.code {
                StateCode::LockAcquireFailed | StateCode::ConcurrentExecution => {
                    Self::unavailable()
                }
                StateCode::InvalidTransition
                | StateCode::SequenceGap
                | StateCode::ChecksumMismatch
                | StateCode::RecoveryFailed => Self::quarantined(),
            },
            Fault::Store(
                StoreError::KeyTaken
                | StoreError::AlreadyDecided
                | StoreError::OverBudget(_)
                | StoreError::UnknownSession(_)
                | StoreError::Broken(_),
            )
            | Fault::Executor(_) => Self::internal(),
        };
        error!("fault: {fault}");
        problem
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Fault::Store(error).into()
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoSuchApproval => Self::not_found(),
            Refused::AlreadyDecided => Self::conflict("the approval is decided already"),
            Refused::NotInDoubt => Self::conflict("the run has no call in doubt"),
            Refused::OwnRequest => Self::own_request(),
            refused @ (Refused::NotAnApprover | Refused::LinkedApprover(_)) => {
                Self::may_not(refused.to_string())
            }
            Refused::MorePeople => Self::conflict("policy requires that more people approve"),
            Refused::OutOfReach => Self::conflict(
                "this node does not reach the call's executor: decide on one that does, `stepgate \
                 nodes` shows which",
            ),
            refused @ Refused::Stopped(_) => Self::conflict(refused.to_string()),
            Refused::Fault(Fault::Store(StoreError::State(error)))
                if error.code == StateCode::RecoveryFailed =>
            {
                Self::state(&error)
            }
            Refused::Fault(fault) => fault.into(),
        }
    }
}

impl From<GrantRefused> for Problem {
    fn from(refused: GrantRefused) -> Self {
        match refused {
            GrantRefused::NoSuchApproval => Self::not_found(),
            GrantRefused::NotApproved => Self::conflict(refused.to_string()),
            GrantRefused::NotAnApprover => Self::may_not(refused.to_string()),
            GrantRefused::OwnRequest => Self::own_request(),
            GrantRefused::Invalid(why) => Self::malformed(why),
            GrantRefused::Fault(fault) => fault.into(),
        }
    }
}

impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Fault>() {
            Ok(fault) => fault.into(),
            Err(error) => {
                error!("fault: {error:#}");
                Self::internal()
            }
        }
    }
}
