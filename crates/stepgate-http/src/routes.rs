//! The table of routes. The router and the OpenAPI document are both built from it.

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Query};
use axum::handler::Handler;
use axum::http::request::Parts;
use axum::routing::{self, MethodRouter};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use stepgate_agent::invoke::InvokeResult;
use stepgate_agent::turn::TurnId;
use stepgate_core::bundle::Bundle;
use stepgate_core::erasable::Found;
use stepgate_core::ids::{ApprovalId, ArtifactId, RunId, SessionId};
use stepgate_core::spelled;
use stepgate_core::step::StepResponse;
use stepgate_gateway::attention::{Attention, RecoveryObject};

use super::approvals::ApprovalObject;
use super::openapi::{SchemaOf, inline, reference};
use super::steps::Proposal;
use super::turns::TurnObject;
use super::{
    App, Problem, approvals, archives, budgets, console, erasable, events, grants, holds, labels,
    policy, requests, runs, sessions, steps, stops, system, tokens, tools, turns,
};

spelled! {
    /// Who may use a route, for the document. The extractors of the handlers enforce it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Access {
        /// Every caller, without a token.
        Public = "For everybody.",
        /// Any token; an agent sees only its own objects.
        Reader = "For every token; an agent sees its own objects alone.",
        /// Agents and operators.
        Proposer = "For agents and operators.",
        /// Operators.
        Operator = "For operators.",
        /// Operators and auditors.
        Watcher = "For operators and auditors.",
    }
    /// As the document says it.
    fn words
}

/// One method of one path, and what the document says about it.
#[derive(Clone)]
pub struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) handler: MethodRouter<Arc<App>>,
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// The type of `{id}` in the path.
    pub(super) id: Option<SchemaOf>,
    /// The type that reads the query.
    pub(super) query: Option<SchemaOf>,
    pub(super) headers: &'static [Header],
    pub(super) body: Option<RequestBody>,
    /// Statuses that are regular answers. All others are problem details.
    pub(super) answers: Vec<(u16, Content)>,
}

pub(super) struct Header {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) is_required: bool,
}

#[derive(Clone, Copy)]
pub(super) struct RequestBody {
    pub(super) schema: SchemaOf,
    pub(super) is_required: bool,
}

/// What an answer contains.
#[derive(Clone, Copy)]
pub(super) enum Content {
    Nothing,
    Json(SchemaOf),
    /// Text of this media type.
    Text(&'static str),
}

impl Route {
    /// A route that the document describes with what is added to it. Routes of other crates add only a name: their
    /// answers have that interface's own format.
    pub fn new(
        method: &'static str,
        path: &'static str,
        access: Access,
        handler: MethodRouter<Arc<App>>,
    ) -> Self {
        let (name, summary, answers) = ("", "", Vec::new());
        let (id, query, body) = (None, None, None);
        let headers: &[Header] = &[];
        Self { method, path, access, handler, name, summary, id, query, headers, body, answers }
    }

    /// Its name in generated clients, and what it does.
    pub fn named(self, name: &'static str, summary: &'static str) -> Self {
        Self { name, summary, ..self }
    }

    fn id<T: JsonSchema>(self) -> Self {
        Self { id: Some(reference::<T>), ..self }
    }

    fn query<T: JsonSchema>(self) -> Self {
        Self { query: Some(inline::<T>), ..self }
    }

    fn headers(self, headers: &'static [Header]) -> Self {
        Self { headers, ..self }
    }

    fn body<T: JsonSchema>(self) -> Self {
        Self { body: Some(RequestBody { schema: reference::<T>, is_required: true }), ..self }
    }

    fn optional_body<T: JsonSchema>(self) -> Self {
        Self { body: Some(RequestBody { schema: reference::<T>, is_required: false }), ..self }
    }

    fn json<T: JsonSchema>(self, statuses: &[u16]) -> Self {
        let json = Content::Json(reference::<T>);
        statuses.iter().fold(self, |route, status| route.answer(*status, json))
    }

    fn answer(mut self, status: u16, content: Content) -> Self {
        self.answers.push((status, content));
        self
    }
}

const fn optional(name: &'static str, description: &'static str) -> Header {
    Header { name, description, is_required: false }
}

const STEP_HEADERS: &[Header] = &[
    optional("Stepgate-Session", "the session that the step joins"),
    optional("Prefer", "`wait=SECONDS`: wait for the outcome"),
];

const TURN_HEADERS: &[Header] = &[
    Header {
        name: "Idempotency-Key",
        description: "the idempotency key: the same key gets the same turn",
        is_required: true,
    },
    optional("Prefer", "`wait=SECONDS`: wait exactly that long"),
];

const EVENT_HEADERS: &[Header] = &[optional(
    "Last-Event-ID",
    "the id of the last event that was received: the stream goes on after it",
)];

/// Statuses of a step's response.
const STEP_STATUSES: &[u16] = &[200, 202, 400, 403, 409, 422];
/// Statuses of an InvokeResult.
const INVOKE_STATUSES: &[u16] = &[400, 404, 409, 413, 422, 424, 502, 504];

pub(super) fn all(mounted: &[Route]) -> Vec<Route> {
    let mut all = write_routes();
    all.extend(read_routes());
    all.extend_from_slice(mounted);
    all
}

/// Declares a function for each method, which makes a route.
macro_rules! methods {
    ($($function:ident: $method:literal),+) => {$(
        fn $function<T: 'static>(
            path: &'static str,
            access: Access,
            handler: impl Handler<T, Arc<App>>,
        ) -> Route {
            Route::new($method, path, access, routing::$function(handler))
        }
    )+};
}

methods!(get: "GET", post: "POST", delete: "DELETE");

/// Routes that change or trigger something.
#[expect(clippy::too_many_lines, reason = "a table")]
fn write_routes() -> Vec<Route> {
    use Access::{Operator, Proposer, Watcher};
    vec![
        post("/v1/steps", Proposer, steps::propose)
            .named("propose_step", "Take a proposal through the gate")
            .headers(STEP_HEADERS)
            .body::<Proposal>()
            .json::<StepResponse>(STEP_STATUSES),
        post("/v1/agent/turns", Proposer, turns::open)
            .named("open_turn", "Ask the agent, go on, or bring the results of your tools")
            .headers(TURN_HEADERS)
            .body::<turns::TurnRequest>()
            .json::<stepgate_agent::response::Response>(&[200])
            .json::<turns::Accepted>(&[202])
            .json::<InvokeResult>(INVOKE_STATUSES),
        post("/v1/agent/turns/{id}/cancel", Proposer, turns::cancel)
            .named("cancel_turn", "End a turn of your own that is not over")
            .id::<TurnId>()
            .json::<TurnObject>(&[200]),
        post("/v1/runs/{id}/resolve", Operator, runs::resolve)
            .named("resolve_run", "Say what became of a call in doubt")
            .id::<RunId>()
            .body::<runs::Resolve>()
            .json::<StepResponse>(STEP_STATUSES),
        post("/v1/recover", Watcher, runs::recover)
            .named("recover", "Go on with interrupted runs now")
            .json::<RecoveryObject>(&[200]),
        post("/v1/approvals/{id}/approve", Operator, approvals::approve)
            .named("approve", "Approve; answers when the decision is durable")
            .id::<ApprovalId>()
            .optional_body::<approvals::Note>()
            .json::<ApprovalObject>(&[200]),
        post("/v1/approvals/{id}/deny", Operator, approvals::deny)
            .named("deny", "Deny; answers when the decision is durable")
            .id::<ApprovalId>()
            .optional_body::<approvals::Note>()
            .json::<ApprovalObject>(&[200]),
        post("/v1/approvals/decide", Operator, approvals::decide)
            .named("decide", "Decide on several, each by its id")
            .body::<approvals::Batch>()
            .json::<approvals::BatchResults>(&[200]),
        post("/v1/grants", Operator, grants::create)
            .named("create_grant", "Approve further calls in advance, from an approved approval")
            .body::<grants::CreateGrant>()
            .json::<grants::GrantObject>(&[201]),
        delete("/v1/grants/{id}", Operator, grants::revoke)
            .named("revoke_grant", "Revoke a grant")
            .id::<ArtifactId>()
            .answer(204, Content::Nothing),
        post("/v1/labels/remove", Operator, labels::remove)
            .named("remove_label", "Take a label away")
            .query::<labels::CarrierParams>()
            .body::<labels::RemoveLabel>()
            .answer(204, Content::Nothing),
        post("/v1/sessions/{id}/requests", Proposer, requests::tell)
            .named("tell_request", "Record what the user of a session asked for")
            .id::<SessionId>()
            .body::<requests::Request>()
            .answer(204, Content::Nothing),
        post("/v1/stops", Operator, stops::make)
            .named("make_stop", "Stop calls at once, on every node, until it is lifted")
            .body::<stops::MakeStop>()
            .json::<stops::MadeStop>(&[200, 201]),
        post("/v1/stops/{id}/lift", Operator, stops::lift)
            .named("lift_stop", "Lift a stop")
            .id::<ArtifactId>()
            .json::<stops::StopObject>(&[200]),
        post("/v1/archives", Operator, archives::make)
            .named("make_archives", "Archive runs that are over and old enough, now")
            .body::<archives::MakeArchives>()
            .json::<archives::MadeArchives>(&[200]),
        post("/v1/holds", Operator, holds::make)
            .named("make_hold", "Keep runs in the store until it is lifted")
            .body::<holds::MakeHold>()
            .json::<holds::HoldObject>(&[200, 201]),
        post("/v1/holds/{id}/lift", Operator, holds::lift)
            .named("lift_hold", "Lift a hold")
            .id::<ArtifactId>()
            .json::<holds::HoldObject>(&[200]),
        post("/v1/erasable/find", Operator, erasable::find)
            .named("find_erasable", "Find runs with erasable arguments; nothing changes")
            .body::<erasable::FindErasable>()
            .json::<Found>(&[200]),
        post("/v1/erasable/erase", Operator, erasable::erase)
            .named("erase_arguments", "Erase arguments for good")
            .body::<erasable::Erase>()
            .json::<Found>(&[200]),
        post("/v1/policy/evaluate", Watcher, policy::evaluate)
            .named("evaluate_policy", "What would be decided on a proposal")
            .query::<policy::EvaluateParams>()
            .body::<Proposal>()
            .json::<policy::Evaluation>(&[200]),
        post("/v1/tools/{id}/accept", Operator, tools::accept)
            .named("accept_tool", "Accept the present definition of a tool")
            .id::<String>()
            .optional_body::<tools::Seen>()
            .json::<tools::AcceptedTool>(&[200]),
        post("/v1/tokens", Operator, tokens::create)
            .named("create_token", "Make a token; it is shown once")
            .body::<tokens::Create>()
            .json::<tokens::TokenObject>(&[201]),
        delete("/v1/tokens/{id}", Operator, tokens::revoke)
            .named("revoke_token", "Revoke a token")
            .id::<ArtifactId>()
            .answer(204, Content::Nothing),
    ]
}

/// The OpenAPI document.
type Document = Map<String, Value>;

/// Routes that only read.
#[expect(clippy::too_many_lines, reason = "a table")]
fn read_routes() -> Vec<Route> {
    use Access::{Operator, Public, Reader, Watcher};
    vec![
        get("/v1/runs", Reader, runs::list)
            .named("list_runs", "Runs, newest first")
            .query::<runs::ListParams>()
            .json::<runs::Runs>(&[200]),
        get("/v1/runs/{id}", Reader, runs::show)
            .named("show_run", "Everything about a run")
            .id::<RunId>()
            .json::<runs::RunDetail>(&[200]),
        get("/v1/runs/{id}/erasable", Operator, erasable::show)
            .named("show_erasable", "The erasable arguments of a run, or who erased them")
            .id::<RunId>()
            .json::<erasable::ErasableObject>(&[200]),
        get("/v1/runs/{id}/export", Watcher, runs::export)
            .named("export_run", "A run that anyone can verify")
            .id::<RunId>()
            .json::<Bundle>(&[200]),
        get("/v1/approvals", Reader, approvals::list)
            .named("list_approvals", "Approvals, newest first")
            .query::<approvals::ListParams>()
            .json::<approvals::Approvals>(&[200]),
        get("/v1/approvals/{id}", Reader, approvals::show)
            .named("show_approval", "One approval, with everything that is decided on")
            .id::<ApprovalId>()
            .json::<ApprovalObject>(&[200]),
        get("/v1/attention", Watcher, system::attention)
            .named("attention", "Everything that needs a person, oldest first")
            .json::<Attention>(&[200]),
        get("/v1/sessions", Reader, sessions::list)
            .named("list_sessions", "Sessions, newest first")
            .query::<sessions::ListParams>()
            .json::<sessions::Sessions>(&[200]),
        get("/v1/sessions/{id}", Reader, sessions::show)
            .named("show_session", "A session and the end of its chain")
            .id::<SessionId>()
            .json::<sessions::SessionObject>(&[200]),
        get("/v1/agent/turns", Reader, turns::list)
            .named("list_turns", "Turns, newest first")
            .query::<turns::ListParams>()
            .json::<turns::Turns>(&[200]),
        get("/v1/agent/turns/{id}", Reader, turns::show)
            .named("show_turn", "A turn as it stands")
            .id::<TurnId>()
            .json::<TurnObject>(&[200]),
        get("/v1/events", Reader, events::follow)
            .named(
                "follow_events",
                "The history, as server-sent events; `data` of each is an `Event`",
            )
            .query::<events::StreamParams>()
            .headers(EVENT_HEADERS)
            .answer(200, Content::Text("text/event-stream")),
        get("/v1/policy/shadow", Watcher, policy::shadow)
            .named("shadow_policy", "Where the shadow policies would have decided otherwise")
            .query::<policy::ShadowParams>()
            .json::<policy::ShadowAnswer>(&[200]),
        get("/v1/tools", Reader, tools::list)
            .named("list_tools", "What a proposal can name, with the schemas of its arguments")
            .json::<tools::ToolObjects>(&[200]),
        get("/v1/tools/{id}", Watcher, tools::show)
            .named("show_tool", "A tool's definition beside the accepted one")
            .id::<String>()
            .json::<tools::ComparedTool>(&[200]),
        get("/v1/grants", Watcher, grants::list)
            .named("list_grants", "Grants, newest first")
            .json::<grants::Grants>(&[200]),
        get("/v1/labels", Watcher, labels::list)
            .named("list_labels", "The labels of a session, a file or a memory")
            .query::<labels::CarrierParams>()
            .json::<labels::LabelsObject>(&[200]),
        get("/v1/budgets", Watcher, budgets::list)
            .named("list_budgets", "Budgets, and how much of each account is used")
            .query::<budgets::BudgetParams>()
            .json::<budgets::Budgets>(&[200]),
        get("/v1/stops", Watcher, stops::list)
            .named("list_stops", "Stops, in force and lifted, newest first")
            .json::<stops::Stops>(&[200]),
        get("/v1/archives", Watcher, archives::list)
            .named("list_archives", "Archives of runs that have left the store, oldest first")
            .json::<archives::Archives>(&[200]),
        get("/v1/holds", Watcher, holds::list)
            .named("list_holds", "Holds, in force and lifted, newest first")
            .json::<holds::Holds>(&[200]),
        get("/v1/tokens", Watcher, tokens::list)
            .named("list_tokens", "The tokens that are valid")
            .json::<tokens::TokenObjects>(&[200]),
        get("/healthz", Public, system::healthy)
            .named("healthy", "The process is there")
            .json::<system::Health>(&[200]),
        get("/readyz", Public, system::ready)
            .named("ready", "The store answers; which parts are off")
            .json::<system::Ready>(&[200]),
        get("/metrics", Watcher, system::metrics)
            .named("metrics", "Counts, for Prometheus")
            .answer(200, Content::Nothing),
        get("/openapi.json", Reader, system::openapi)
            .named("openapi", "This document")
            .json::<Document>(&[200]),
    ]
}

pub(super) fn is_public(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// The methods that a path has, for `Allow`.
pub(super) fn methods_of(mounted: &[Route], path: &str) -> Vec<&'static str> {
    let routes = all(mounted).into_iter().filter(|route| fits(route.path, path));
    routes.map(|route| route.method).chain(console::methods_of(path)).collect()
}

pub(super) fn fits(pattern: &str, path: &str) -> bool {
    let (mut parts, mut pattern) = (path.split('/'), pattern.split('/'));
    loop {
        match (parts.next(), pattern.next()) {
            (None, None) => return true,
            (Some(part), Some("{id}")) if !part.is_empty() => {}
            (Some(part), Some(expected)) if part == expected => {}
            (Some(_), _) | (None, Some(_)) => return false,
        }
    }
}

/// The id in the path. An id that cannot be parsed is answered as not found.
pub(super) struct Id<T>(pub(super) T);

impl<S: Send + Sync, T: FromStr> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        id.map(Self).ok_or_else(Problem::not_found)
    }
}

/// The parsed query.
pub(super) struct Params<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => Err(Problem::malformed(rejection.body_text())),
        }
    }
}
