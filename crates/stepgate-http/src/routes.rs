//! The table of routes. The router and the OpenAPI document are both built from it.

use std::str::FromStr;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::routing::{self, MethodRouter};
use serde::de::DeserializeOwned;

use super::{
    App, Problem, approvals, console, events, policy, runs, sessions, steps, system, tokens, tools,
    turns,
};
use std::sync::Arc;

type Handler = MethodRouter<Arc<App>>;

/// Who may use a route, for the document. The extractors of the handlers enforce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every caller, without a token.
    Public,
    /// Any token; an agent sees only its own objects.
    Reader,
    /// Agents and operators.
    Proposer,
    /// Operators.
    Operator,
    /// Operators and auditors.
    Watcher,
}

/// One method of one path.
#[derive(Clone)]
pub struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) handler: Handler,
    pub(super) doc: Doc,
}

impl Route {
    /// A route of another crate. Its answers have that interface's own format.
    pub fn new(
        method: &'static str,
        path: &'static str,
        access: Access,
        handler: MethodRouter<Arc<App>>,
        summary: &'static str,
    ) -> Self {
        Self { method, path, access, handler, doc: doc(summary, &[]) }
    }
}

/// What the document says besides method and path.
#[derive(Clone)]
pub(super) struct Doc {
    pub(super) summary: &'static str,
    pub(super) query: &'static [(&'static str, &'static str)],
    /// The schema of the body.
    pub(super) body: Option<&'static str>,
    /// Statuses that are regular answers, with the schema of each. All others are an `Error`.
    pub(super) answers: &'static [(u16, &'static str)],
}

const fn doc(summary: &'static str, answers: &'static [(u16, &'static str)]) -> Doc {
    Doc { summary, query: &[], body: None, answers }
}

impl Doc {
    const fn query(mut self, query: &'static [(&'static str, &'static str)]) -> Self {
        self.query = query;
        self
    }

    const fn body(mut self, schema: &'static str) -> Self {
        self.body = Some(schema);
        self
    }
}

const STEP_ANSWERS: &[(u16, &str)] = &[
    (200, "Response"),
    (202, "Response"),
    (400, "Response"),
    (403, "Response"),
    (409, "Response"),
    (422, "Response"),
];

const TURN_ANSWERS: &[(u16, &str)] = &[
    (200, "TurnResponse"),
    (202, "TurnAccepted"),
    (400, "InvokeResult"),
    (404, "InvokeResult"),
    (409, "InvokeResult"),
    (413, "InvokeResult"),
    (422, "InvokeResult"),
    (424, "InvokeResult"),
    (502, "InvokeResult"),
    (504, "InvokeResult"),
];

/// Every route, including those of other crates.
pub(super) fn all(mounted: &[Route]) -> Vec<Route> {
    let mut all = write_routes();
    all.extend(read_routes());
    all.extend_from_slice(mounted);
    all
}

/// Routes that change or trigger something.
#[expect(clippy::too_many_lines, reason = "a table")]
fn write_routes() -> Vec<Route> {
    use Access::{Operator, Proposer, Watcher};
    let post = |path, access, handler, doc| Route { method: "POST", path, access, handler, doc };
    vec![
        post(
            "/v1/steps",
            Proposer,
            routing::post(steps::propose),
            doc("Take a proposal through the gate", STEP_ANSWERS).body("Proposal"),
        ),
        post(
            "/v1/agent/turns",
            Proposer,
            routing::post(turns::open),
            doc("Ask the agent, go on, or bring the results of your tools", TURN_ANSWERS)
                .body("TurnRequest"),
        ),
        post(
            "/v1/agent/turns/{id}/cancel",
            Proposer,
            routing::post(turns::cancel),
            doc("End a turn of your own that is not over", &[(200, "Turn")]),
        ),
        post(
            "/v1/runs/{id}/resolve",
            Operator,
            routing::post(runs::resolve),
            doc("Say what became of a call in doubt", STEP_ANSWERS).body("Resolve"),
        ),
        post(
            "/v1/recover",
            Watcher,
            routing::post(runs::recover),
            doc("Go on with interrupted runs now", &[(200, "Recovery")]),
        ),
        post(
            "/v1/approvals/{id}/approve",
            Operator,
            routing::post(approvals::approve),
            doc("Approve; answers when the decision is durable", &[(200, "Approval")]).body("Note"),
        ),
        post(
            "/v1/approvals/{id}/deny",
            Operator,
            routing::post(approvals::deny),
            doc("Deny; answers when the decision is durable", &[(200, "Approval")]).body("Note"),
        ),
        post(
            "/v1/approvals/decide",
            Operator,
            routing::post(approvals::decide),
            doc("Decide on several, each by its id", &[(200, "BatchResults")]).body("Batch"),
        ),
        post(
            "/v1/policy/evaluate",
            Watcher,
            routing::post(policy::evaluate),
            doc("What would be decided on a proposal", &[(200, "Evaluation"), (422, "Error")])
                .query(&[("principal", "as whom it is asked")])
                .body("Proposal"),
        ),
        post(
            "/v1/tools/{id}/accept",
            Operator,
            routing::post(tools::accept),
            doc("Accept the present definition of a tool", &[(200, "AcceptedTool")])
                .body("SeenTool"),
        ),
        post(
            "/v1/tokens",
            Operator,
            routing::post(tokens::create),
            doc("Make a token; it is shown once", &[(201, "Token")]).body("CreateToken"),
        ),
        Route {
            method: "DELETE",
            path: "/v1/tokens/{id}",
            access: Operator,
            handler: routing::delete(tokens::revoke),
            doc: doc("Revoke a token", &[(204, "")]),
        },
    ]
}

/// Routes that only read.
#[expect(clippy::too_many_lines, reason = "a table")]
fn read_routes() -> Vec<Route> {
    use Access::{Public, Reader, Watcher};
    const RUN_QUERY: &[(&str, &str)] = &[
        ("status", "only runs with this status"),
        ("tool", "only runs of this tool"),
        ("session", "only runs of this session"),
        ("principal", "only runs of this principal"),
        (
            "since",
            "only runs at this time or later, such as 2026-01-31T12:00:00.000Z; the end can be left out",
        ),
        ("until", "only runs before this time"),
        ("text", "the beginning of a run's id, from 8 characters on, or a part of a tool's name"),
        ("before", "only runs older than this one"),
        ("limit", "at most so many: 1 to 1000, 50 otherwise"),
    ];
    const APPROVAL_QUERY: &[(&str, &str)] = &[
        ("status", "only those with this status"),
        ("before", "only those that were asked before this one"),
        ("limit", "at most so many: 1 to 1000, 50 otherwise"),
    ];
    const SESSION_QUERY: &[(&str, &str)] = &[
        ("principal", "only sessions of this principal"),
        ("before", "only sessions that were opened before this one"),
        ("limit", "at most so many: 1 to 1000, 50 otherwise"),
    ];
    const TURN_QUERY: &[(&str, &str)] = &[
        ("session", "only turns of this session"),
        ("principal", "only turns of this principal"),
        ("before", "only turns that were opened before this one"),
        ("limit", "at most so many: 1 to 1000, 50 otherwise"),
    ];
    const EVENT_QUERY: &[(&str, &str)] = &[("after", "only events after this id")];
    let get = |path, access, handler, doc| Route { method: "GET", path, access, handler, doc };
    vec![
        get(
            "/v1/runs",
            Reader,
            routing::get(runs::list),
            doc("Runs, newest first", &[(200, "Runs")]).query(RUN_QUERY),
        ),
        get(
            "/v1/runs/{id}",
            Reader,
            routing::get(runs::show),
            doc("Everything about a run", &[(200, "RunDetail")]),
        ),
        get(
            "/v1/runs/{id}/export",
            Watcher,
            routing::get(runs::export),
            doc("A run that anyone can verify", &[(200, "Bundle")]),
        ),
        get(
            "/v1/approvals",
            Reader,
            routing::get(approvals::list),
            doc("Approvals, newest first", &[(200, "Approvals")]).query(APPROVAL_QUERY),
        ),
        get(
            "/v1/approvals/{id}",
            Reader,
            routing::get(approvals::show),
            doc("One approval, with everything that is decided on", &[(200, "Approval")]),
        ),
        get(
            "/v1/attention",
            Watcher,
            routing::get(system::attention),
            doc("Everything that needs a person, oldest first", &[(200, "Attention")]),
        ),
        get(
            "/v1/sessions",
            Reader,
            routing::get(sessions::list),
            doc("Sessions, newest first", &[(200, "Sessions")]).query(SESSION_QUERY),
        ),
        get(
            "/v1/sessions/{id}",
            Reader,
            routing::get(sessions::show),
            doc("A session and the end of its chain", &[(200, "Session")]),
        ),
        get(
            "/v1/agent/turns",
            Reader,
            routing::get(turns::list),
            doc("Turns, newest first", &[(200, "Turns")]).query(TURN_QUERY),
        ),
        get(
            "/v1/agent/turns/{id}",
            Reader,
            routing::get(turns::show),
            doc("A turn as it stands", &[(200, "Turn")]),
        ),
        get(
            "/v1/events",
            Reader,
            routing::get(events::follow),
            doc("The history, as server-sent events", &[(200, "")]).query(EVENT_QUERY),
        ),
        get(
            "/v1/tools",
            Reader,
            routing::get(tools::list),
            doc("What a proposal can name", &[(200, "Tools")]),
        ),
        get(
            "/v1/tools/{id}",
            Watcher,
            routing::get(tools::show),
            doc("A tool's definition beside the accepted one", &[(200, "ComparedTool")]),
        ),
        get(
            "/v1/tokens",
            Watcher,
            routing::get(tokens::list),
            doc("The tokens that are good", &[(200, "Tokens")]),
        ),
        get(
            "/healthz",
            Public,
            routing::get(system::healthy),
            doc("The process is there", &[(200, "Health")]),
        ),
        get(
            "/readyz",
            Public,
            routing::get(system::ready),
            doc("The store answers; which parts are off", &[(200, "Ready")]),
        ),
        get(
            "/metrics",
            Watcher,
            routing::get(system::metrics),
            doc("Counts, for Prometheus", &[(200, "")]),
        ),
        get(
            "/openapi.json",
            Reader,
            routing::get(system::openapi),
            doc("This document", &[(200, "Document")]),
        ),
    ]
}

/// Whether a path needs no token.
pub(super) fn is_public(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// The methods that a path has, for `Allow`.
pub(super) fn methods_of(mounted: &[Route], path: &str) -> Vec<&'static str> {
    let routes = all(mounted).into_iter().filter(|route| fits(route.path, path));
    routes.map(|route| route.method).chain(console::methods_of(path)).collect()
}

/// Whether a path matches a pattern.
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
