//! `GET /v1/sessions/{id}`: a session and the end of its chain.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stepgate_core::digest::Digest;
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::session::Session;
use stepgate_core::time::Timestamp;

use super::admit::Reader;
use super::routes::Id;
use super::{App, Problem};

/// A session as people see it.
#[derive(Serialize)]
pub(super) struct SessionObject {
    session_id: SessionId,
    principal_id: PrincipalId,
    kind: &'static str,
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

fn object(session: Session) -> SessionObject {
    SessionObject {
        session_id: session.session_id,
        principal_id: session.principal_id,
        kind: session.kind.as_str(),
        ts: session.ts,
        last_step_index: session.last_step_index,
        head_number: session.head.number,
        head_digest: session.head.digest,
    }
}
