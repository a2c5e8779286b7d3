//! One call: it becomes a proposal, passes the gate, and gets its answer.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResponse, RequestMetaObject};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::json;
use stepgate_core::assumed::Assumed;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{IdempotencyKey, PrincipalId, ProposalId, RunId, SessionId};
use stepgate_core::json::{Map, Value};
use stepgate_core::ports::{PolicyVerdict, Recollection};
use stepgate_core::requests::{self, NotTold, ToldBy};
use stepgate_core::run::{Notice, Payload, Status, Word};
use stepgate_core::spans::MCP;
use stepgate_core::step::{self, Answer, Submission};
use stepgate_core::trace_context::{TRACEPARENT, TRACESTATE};
use stepgate_http::Caller;
use tracing::{Instrument, Span, debug_span, error};
use uuid::Uuid;

use super::catalog::Offered;
use super::delivery::Delivery;
use super::envelope::RawArguments;
use super::relay::Relay;
use super::unanswered::{self, CallFingerprint};
use super::{SESSION_HEADER, Shared, questions, result, sessions, waiting};

/// The idempotency key of a call: the same key always gets the same answer.
pub(super) const KEY_META: &str = "stepgate/idempotency-key";
const REASONING_META: &str = "stepgate/reasoning";
/// What the user asked for, in the user's own words.
const REQUEST_META: &str = "stepgate/user-request";
/// What is recorded if the agent gave no reason.
const NO_REASONING: &str = "(the MCP client gave no reasoning)";
const KEY_BYTES_MAX: usize = 200;
/// Longest prefix of an unknown tool name that the error repeats, in characters. No real name is longer.
const NAME_SHOWN_MAX: usize = 64;
/// Namespace for proposal ids derived from keys that are not UUIDs.
const KEYS: Uuid = Uuid::from_u128(0x7d0c_7e2b_9d0b_5f7c_9a43_61b2_5b9b_0a11);

/// The caller, and how the answer goes back.
pub(super) struct McpCaller {
    pub(super) principal_id: PrincipalId,
    pub(super) session: Option<SessionId>,
    delivery: Option<Arc<Delivery>>,
    spelled: Option<RawArguments>,
}

impl McpCaller {
    /// Reads what the HTTP handler attached to the request. Without it the caller is not authenticated.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Result<Self, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let caller = parts.and_then(|parts| parts.extensions.get::<Caller>());
        let (Some(parts), Some(caller)) = (parts, caller) else {
            return Err(ErrorData::invalid_request("nobody is authenticated", None));
        };
        let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let of_client = header(SESSION_HEADER).and_then(sessions::session_of);
        let named = header(stepgate_http::SESSION_HEADER).map(str::parse);
        let named = named
            .transpose()
            .map_err(|_| ErrorData::invalid_request("`Stepgate-Session` must be a UUIDv7", None))?;
        Ok(Self {
            principal_id: caller.principal_id.clone(),
            session: of_client.or(named),
            delivery: parts.extensions.get::<Arc<Delivery>>().cloned(),
            spelled: parts.extensions.get::<RawArguments>().cloned(),
        })
    }
}

pub(super) struct Call {
    pub(super) asker: McpCaller,
    pub(super) proposal_id: ProposalId,
    pub(super) sameness: CallFingerprint,
    /// Whether the client gave an idempotency key, so that it can ask again with it.
    pub(super) is_named: bool,
    /// Whether the client returns after it was asked to let a person decide.
    pub(super) return_of: Return,
    /// Whether the call refers to no earlier call: it is a new one, unless an equal call waits for a person.
    is_fresh: bool,
    proposed: Proposed,
}

/// How a client returns that was given the page of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// It does not return: this is the first call.
    First,
    /// It has shown the page, or does not say.
    WithPage,
    /// It refused to show the page, or its user closed it.
    Declined,
}

impl Return {
    fn of(params: &CallToolRequestParams) -> Self {
        let said = params.input_responses.as_ref().and_then(|said| said.get(waiting::INPUT));
        let action = said.and_then(|said| said.get("action")).and_then(Value::as_str);
        match (&params.request_state, action) {
            (None, _) => Self::First,
            (Some(_), Some("decline" | "cancel")) => Self::Declined,
            (Some(_), Some(_) | None) => Self::WithPage,
        }
    }
}

struct Proposed {
    action: String,
    reasoning: String,
    args: Map<String, Value>,
}

pub(super) async fn run(
    shared: &Arc<Shared>,
    params: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let asker = McpCaller::of(context)?;
    let catalog = shared.catalog();
    let Some(offered) = catalog.named(&params.name) else {
        let name: String = params.name.chars().take(NAME_SHOWN_MAX).collect();
        let message = format!("there is no tool `{}`", stepgate_gateway::text::printable(&name));
        return Err(ErrorData::invalid_params(message, None));
    };
    let span = call_span(&params.name, context);
    let answered = async {
        tell_request(shared, &asker, &context.meta).await?;
        let mut call = Call::read(shared, asker, offered, params, &context.meta).await?;
        let answer = answered(shared, &mut call, context).await;
        answer.map_err(|no_answer| call.unanswered(shared, no_answer))
    };
    answered.instrument(span).await
}

/// The span of a call, in the trace that its `_meta` names, and otherwise in that of its request.
fn call_span(tool: &str, context: &RequestContext<RoleServer>) -> Span {
    let parts = context.extensions.get::<Parts>();
    let request = parts.and_then(|parts| parts.extensions.get::<Span>()).cloned();
    let meta = |name: &str| context.meta.0.0.get(name).and_then(Value::as_str);
    let session = parts.and_then(|parts| parts.headers.get(SESSION_HEADER)?.to_str().ok());
    debug_span!(
        target: MCP,
        parent: request.and_then(|request| request.id()),
        "tools/call",
        otel.name = format_args!("tools/call {tool}"),
        otel.kind = "server",
        mcp.method.name = "tools/call",
        mcp.session.id = session,
        jsonrpc.request.id = %context.id,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool,
        traceparent = meta(TRACEPARENT),
        tracestate = meta(TRACESTATE),
    )
}

/// Records what the user asked for, where the client says so. A model does not write `_meta`; a client that is not trusted
/// to keep its model away from it is refused.
async fn tell_request(
    shared: &Shared,
    asker: &McpCaller,
    meta: &RequestMetaObject,
) -> Result<(), ErrorData> {
    let Some(said) = meta.0.0.get(REQUEST_META) else { return Ok(()) };
    let Some(text) = said.as_str() else { return Err(invalid(REQUEST_META, "is a text")) };
    let gate = &shared.service.gate;
    if !gate.facts.tellers.contains(&asker.principal_id) {
        let rule = "is for agents that `requests.told_by` in stepgate.toml names";
        return Err(invalid(REQUEST_META, rule));
    }
    let session = match asker.session {
        Some(session_id) => gate.named_session(session_id, &asker.principal_id).await,
        None => gate.default_session(&asker.principal_id).await,
    };
    let session_id = session.map_err(fault)?.session_id;
    let told = requests::tell(gate, session_id, text, ToldBy::Harness, &asker.principal_id).await;
    told.map_err(|error| match error {
        NotTold::Length | NotTold::TooMany => invalid(REQUEST_META, &error.to_string()),
        NotTold::Fault(error) => fault(error),
    })
}

pub(super) enum NoAnswer {
    Fault(Fault),
    Cancelled,
}

impl From<Fault> for NoAnswer {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

async fn answered(
    shared: &Arc<Shared>,
    call: &mut Call,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, NoAnswer> {
    let mut relay = Relay::to(context);
    let mut answer = submit_or_join(shared, call, &mut relay).await?;
    if matches!(answer.word(), Word::Notice(_)) {
        match waiting::wait(shared, call, answer, context, &mut relay).await? {
            waiting::Waited::Over(over) => answer = over,
            waiting::Waited::Answered(response) => return Ok(response),
        }
    }
    Ok(result::of(shared, &answer).await?.into())
}

impl Call {
    async fn read(
        shared: &Shared,
        asker: McpCaller,
        offered: &Offered,
        params: CallToolRequestParams,
        // The SDK removes `_meta` from the parameters, so it is passed separately.
        meta: &RequestMetaObject,
    ) -> Result<Self, ErrorData> {
        let action = offered.action.as_str();
        let return_of = Return::of(&params);
        let args = params.arguments.unwrap_or_default();
        let meta = |name: &str| meta.0.0.get(name);
        let key = meta(KEY_META).map(key).transpose()?;
        let reasoning = match meta(REASONING_META) {
            None => NO_REASONING,
            Some(Value::String(text)) => text.as_str(),
            Some(_) => return Err(invalid(REASONING_META, "is a text")),
        };
        let state = params.request_state.as_deref();
        let state = state.map(ProposalId::parse).transpose();
        let state = state.map_err(|_| invalid("requestState", "is not one of Stepgate's"))?;
        let sameness = CallFingerprint::of(&asker.principal_id, action, &args);
        let is_named = key.is_some();
        let (proposal_id, is_fresh) = match key.or(state) {
            Some(id) => {
                shared.unanswered.named(sameness, &id);
                (id, false)
            }
            None => match joined(shared, &asker.principal_id, sameness).await.map_err(fault)? {
                Some(id) => (id, false),
                None => (proposal_id(unanswered::fresh_id())?, true),
            },
        };
        let proposed =
            Proposed { action: action.to_owned(), reasoning: reasoning.to_owned(), args };
        let call = Self { asker, proposal_id, sameness, is_named, return_of, is_fresh, proposed };
        call.tell_delivery();
        Ok(call)
    }

    /// Tells the delivery which call it answers, so that a lost answer can be joined later.
    fn tell_delivery(&self) {
        if let (Some(delivery), false) = (&self.asker.delivery, self.is_named) {
            delivery.carries(self.sameness, self.proposal_id.clone());
        }
    }

    /// Joins an equal call: its answer is the answer to both.
    fn join(&mut self, proposal_id: ProposalId) {
        self.proposal_id = proposal_id;
        self.tell_delivery();
    }

    /// The five keys of a proposal, as every interface gives them to the gate. The arguments are as the client spelled
    /// them, if parsing changed a number: the gate refuses those.
    fn payload(&self) -> Payload {
        let Proposed { action, reasoning, args } = &self.proposed;
        let args = match &self.asker.spelled {
            None => json!(args).to_string(),
            Some(RawArguments(spelled)) => spelled.clone(),
        };
        Payload::proposal(self.proposal_id.as_str(), reasoning, action, args)
    }

    /// The error that is answered instead. It names the call, which may go on: a later request with this key or with
    /// the same arguments joins it.
    fn unanswered(&self, shared: &Shared, no_answer: NoAnswer) -> ErrorData {
        let mut error = match no_answer {
            NoAnswer::Cancelled => ErrorData::internal_error("the call was cancelled", None),
            NoAnswer::Fault(fault @ Fault::ForeignSession(_)) => return self::fault(fault),
            NoAnswer::Fault(fault) => self::fault(fault),
        };
        if !self.is_named {
            shared.unanswered.add(self.sameness, self.proposal_id.clone(), None);
        }
        error.data = Some(json!({ KEY_META: self.proposal_id.as_str() }));
        error
    }
}

/// The proposal id of a key. A UUID is used as it is, so that the same key works over HTTP.
fn key(value: &Value) -> Result<ProposalId, ErrorData> {
    let is_key = |text: &&str| (1..=KEY_BYTES_MAX).contains(&text.len());
    let Some(text) = value.as_str().filter(is_key) else {
        let rule = format!("is a text of 1 to {KEY_BYTES_MAX} bytes");
        return Err(invalid(KEY_META, &rule));
    };
    match ProposalId::parse(text) {
        Ok(id) => Ok(id),
        Err(_) => proposal_id(Uuid::new_v5(&KEYS, text.as_bytes())),
    }
}

fn proposal_id(id: Uuid) -> Result<ProposalId, ErrorData> {
    ProposalId::parse(&id.to_string())
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn invalid(name: &str, rule: &str) -> ErrorData {
    ErrorData::invalid_params(format!("`{name}` {rule}"), None)
}

/// An earlier equal call whose answer was not delivered, if it is recent enough.
async fn joined(
    shared: &Shared,
    principal_id: &PrincipalId,
    sameness: CallFingerprint,
) -> Result<Option<ProposalId>, Fault> {
    while let Some(id) = shared.unanswered.take(sameness) {
        match can_be_joined(shared, principal_id, &id).await {
            Ok(true) => return Ok(Some(id)),
            Ok(false) => {}
            Err(fault) => {
                // Not known whether it can be joined: put it back for the next request.
                shared.unanswered.add(sameness, id, None);
                return Err(fault);
            }
        }
    }
    Ok(None)
}

/// Whether the call of this id goes on, or ended so recently that an equal call is joined to it.
async fn can_be_joined(
    shared: &Shared,
    principal_id: &PrincipalId,
    id: &ProposalId,
) -> Result<bool, Fault> {
    // A call that is not known was refused before it had any effect: it is simply made again.
    let Some(known) = recalled(shared, principal_id, id).await? else { return Ok(false) };
    let ended = known.record.as_ref().and_then(|record| record.body().ok());
    Ok(ended.is_none_or(|body| shared.is_young(body.completed_at)))
}

async fn recalled(
    shared: &Shared,
    principal_id: &PrincipalId,
    id: &ProposalId,
) -> Result<Option<Recollection>, Fault> {
    let store = &shared.service.gate.store;
    match store.binding(&IdempotencyKey::of(principal_id, id)).await? {
        Some(binding) => Ok(store.recall(binding.trace_id).await?),
        None => Ok(None),
    }
}

/// Submits the call, or joins it to an equal call of the same principal that waits for a person. Evaluates the policy
/// first, so that only calls that need approval take the lock.
async fn submit_or_join(
    shared: &Shared,
    call: &mut Call,
    relay: &mut Relay<'_>,
) -> Result<Answer, Fault> {
    if !call.is_fresh || !would_ask(shared, call).await? {
        return submit(shared, call, relay).await;
    }
    let sameness = call.sameness;
    let Some(mut part) = shared.questions.part(sameness).await else {
        return submit(shared, call, relay).await;
    };
    if let Some(asked) = part.get(&sameness).cloned() {
        let known = recalled(shared, &call.asker.principal_id, &asked).await?;
        match known.is_some_and(|known| known.run.status == Status::ApprovalRequired) {
            true => call.join(asked),
            false => drop(part.remove(&sameness)),
        }
    }
    let answer = submit(shared, call, relay).await?;
    if answer.word() == Word::Notice(Notice::ApprovalRequired) {
        questions::note(&mut part, sameness, call.proposal_id.clone());
    }
    Ok(answer)
}

async fn would_ask(shared: &Shared, call: &Call) -> Result<bool, Fault> {
    let gate = &shared.service.gate;
    if !gate.prospect(&call.asker.principal_id, &call.proposed.action).could_ask {
        return Ok(false);
    }
    let assumed = match call.asker.session {
        Some(session_id) => Assumed::of_session(gate, session_id).await?,
        None => Assumed::default(),
    };
    let submission = Submission {
        session_id: call.asker.session.unwrap_or_else(|| SessionId::new(gate.world.fresh_uuid())),
        principal_id: call.asker.principal_id.clone(),
        payload: call.payload(),
    };
    let weighed = step::weigh_now(gate, &submission, &assumed).await?;
    Ok(weighed.is_ok_and(|weighed| {
        match weighed.decision.verdict {
            // A call under a grant is executed at once, and must not hold up equal ones.
            PolicyVerdict::RequireApproval(_) => {
                let (principal_id, now) = (&call.asker.principal_id, gate.world.now());
                weighed.rule.is_none()
                    && !gate.consents.may_cover(principal_id, weighed.call.name(), now)
            }
            PolicyVerdict::Permit | PolicyVerdict::Deny => false,
        }
    }))
}

async fn submit(shared: &Shared, call: &Call, relay: &mut Relay<'_>) -> Result<Answer, Fault> {
    let service = &shared.service;
    let payload = call.payload();
    let McpCaller { principal_id, session, .. } = &call.asker;
    let run_id = RunId::new(service.gate.world.fresh_uuid());
    let watch = service.hub.watch(run_id);
    let step = service.submit_as(run_id, principal_id.clone(), *session, payload, Duration::ZERO);
    relay.during(watch, step).await
}

/// The error when Stepgate itself failed. The state of the call is unknown; asking again with its key tells.
pub(super) fn fault(fault: Fault) -> ErrorData {
    match fault {
        Fault::ForeignSession(_) => ErrorData::invalid_request("there is no such session", None),
        Fault::Store(_) | Fault::Executor(_) => {
            error!("an MCP call was not answered: {fault}");
            ErrorData::internal_error("the gateway could not answer: ask again", None)
        }
    }
}
