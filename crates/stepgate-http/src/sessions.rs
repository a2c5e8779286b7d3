//! `/v1/sessions`: the sessions, each with the end of its chain.

use axum::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::digest::Digest;
use stepgate_core::ids::{IdPrefix, PrincipalId, SessionId};
use stepgate_core::ports::SessionQuery;
use stepgate_core::session::{Session, SessionKind};
use stepgate_core::time::Timestamp;

use super::page::{self, Page};
use super::{App, Caller, Id, Params, Problem, Reader};

/// A session as people see it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub(super) struct SessionObject {
    session_id: SessionId,
    principal_id: PrincipalId,
    kind: SessionKind,
    ts: Timestamp,
    last_step_index: u64,
    /// Number and digest of the last link: with `verify --heads` a later check proves that it is unchanged.
    head_number: u64,
    head_digest: Digest,
}

pub(super) async fn show(
    Reader(app, caller): Reader,
    Id(id): Id<SessionId>,
) -> Result<Json<SessionObject>, Problem> {
    Ok(Json(object(visible(&app, &caller, id).await?)))
}

/// A session. To an agent, those of other principals do not exist.
pub(super) async fn visible(app: &App, caller: &Caller, id: SessionId) -> Result<Session, Problem> {
    match app.service.gate.store.session(id).await? {
        Some(session) if caller.may_see(&session.principal_id) => Ok(session),
        Some(_) | None => Err(Problem::not_found()),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// only sessions that were opened before this one
    before: Option<SessionId>,
    /// only those whose id begins with this, from 8 characters on
    id_prefix: Option<IdPrefix>,
    /// only sessions of this principal
    principal: Option<PrincipalId>,
    /// at most so many: 1 to 1000, 50 otherwise
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Sessions {
    sessions: Vec<SessionObject>,
    /// Cursor of the next page; none on the last page.
    next_before: Option<SessionId>,
}

pub(super) async fn list(
    Reader(app, caller): Reader,
    Params(params): Params<ListParams>,
) -> Result<Json<Sessions>, Problem> {
    let Ok(principal_id) = caller.lists(params.principal) else {
        return Ok(Json(Sessions { sessions: Vec::new(), next_before: None }));
    };
    let ListParams { before, id_prefix, limit, .. } = params;
    let query = SessionQuery { id_prefix, principal_id, ..SessionQuery::default() };
    let store = &app.service.gate.store;
    let id = |session: &Session| session.session_id;
    let weight = |_: &Session| size_of::<Session>();
    let read = |before, limit| store.session_page(SessionQuery { before, limit, ..query.clone() });
    let Page { rows, next_before } = page::read(limit, before, id, weight, read).await?;
    Ok(Json(Sessions { sessions: rows.into_iter().map(object).collect(), next_before }))
}

fn object(session: Session) -> SessionObject {
    SessionObject {
        session_id: session.session_id,
        principal_id: session.principal_id,
        kind: session.kind,
        ts: session.ts,
        last_step_index: session.last_step_index,
        head_number: session.head.number,
        head_digest: session.head.digest,
    }
}
