//! `/sessions`: the conversations of agents, and the end of each chain.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use stepgate_core::digest::Digest;
use stepgate_core::ids::SessionId;
use stepgate_core::ports::RunQuery;
use stepgate_core::session::{Session, SessionKind};
use stepgate_core::time::Timestamp;

use super::moment::{Moment, ago};
use super::runs::{self, RunRow};
use super::text::Text;
use super::trouble::Trouble;
use super::visitor::Visitor;
use super::{Frame, Tab, html};
use crate::routes::Id;
use crate::{App, Problem};

/// Sessions on a page.
const ROWS: usize = 50;

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage {
    frame: Frame,
    rows: Vec<SessionRow>,
}

#[derive(Template)]
#[template(path = "session.html")]
struct SessionPage {
    frame: Frame,
    session: SessionRow,
    rows: Vec<RunRow>,
}

struct SessionRow {
    session_id: SessionId,
    principal: Text,
    kind: &'static str,
    opened: Moment,
    age: String,
    last_step_index: u64,
    head_number: u64,
    head_digest: Digest,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    visitor: Visitor,
) -> Result<Response, Trouble> {
    let now = app.service.gate.world.now();
    let sessions = app.service.gate.store.sessions().await?;
    let newest = sessions.iter().rev().take(ROWS);
    let rows = newest.map(|session| SessionRow::of(session, now)).collect();
    let frame = Frame::at(Tab::Sessions, "Sessions", &visitor);
    Ok(html(StatusCode::OK, &SessionsPage { frame, rows }))
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    id: Result<Id<SessionId>, Problem>,
) -> Result<Response, Trouble> {
    let Ok(Id(session_id)) = id else { return Err(Trouble::no_such("session")) };
    let session = app.service.gate.store.session(session_id).await?;
    let session = session.ok_or_else(|| Trouble::no_such("session"))?;
    let now = app.service.gate.world.now();
    let query = RunQuery { session_id: Some(session_id), ..RunQuery::default() };
    let rows = runs::read(&app, query, now).await?;
    let session = SessionRow::of(&session, now);
    let frame = Frame::at(Tab::Sessions, "Session", &visitor);
    Ok(html(StatusCode::OK, &SessionPage { frame, session, rows }))
}

impl SessionRow {
    fn of(session: &Session, now: Timestamp) -> Self {
        Self {
            session_id: session.session_id,
            principal: Text::of(session.principal_id.as_str()),
            kind: match session.kind {
                SessionKind::System => "operators' acts",
                SessionKind::Default => "the principal's default",
                SessionKind::Named => "named",
            },
            opened: Moment::of(session.ts),
            age: ago(session.ts, now),
            last_step_index: session.last_step_index,
            head_number: session.head.number,
            head_digest: session.head.digest,
        }
    }
}
