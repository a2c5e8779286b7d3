//! `/v1/sessions`: the sessions, each with the end of its chain.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::digest::Digest;
use stepgate_core::ids::{IdPrefix, PrincipalId, SessionId};
use stepgate_core::ports::SessionQuery;
use stepgate_core::session::{Session, SessionKind};
use stepgate_core::time::Timestamp;

use super::admit::Reader;
use super::page::{self, Page};
use super::routes::{Id, Params};
use super::{App, Problem};

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
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Id(id): Id<SessionId>,
) -> Result<Json<SessionObject>, Problem> {
    match app.service.gate.store.session(id).await? {
        Some(session) if caller.may_see(&session.principal_id) => Ok(Json(object(session))),
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
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Params(params): Params<ListParams>,
) -> Result<Json<Sessions>, Problem> {
    let Ok(principal_id) = caller.lists(params.principal) else {
        return Ok(Json(Sessions { sessions: Vec::new(), next_before: None }));
    };
    let (before, id_prefix) = (params.before, params.id_prefix);
    let query = SessionQuery { before, id_prefix, principal_id, limit: 0 };
    let store = &app.service.gate.store;
    let weight = |_: &Session| size_of::<Session>();
    let read = |last: Option<Session>, limit| {
        let before = last.map(|session| session.session_id).or(query.before);
        let query = SessionQuery { before, limit, ..query.clone() };
        async move { Ok(store.session_page(query).await?) }
    };
    let Page { rows, is_full } = page::read(params.limit, weight, read).await?;
    let next_before = rows.last().filter(|_| is_full).map(|session| session.session_id);
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
