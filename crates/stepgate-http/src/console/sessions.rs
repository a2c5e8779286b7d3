//! `/sessions`: the conversations of agents, and the end of each chain.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::ports::{RunQuery, SessionQuery, TurnQuery};
use stepgate_core::session::{Session, SessionKind};
use stepgate_core::time::Timestamp;

use super::runs::{self, RunRow};
use super::turns::TurnRow;
use super::{Frame, Moment, Tab, Trouble, Visit, ago, html};
use crate::{Id, Params, Problem};

const ROWS: usize = 50;

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage {
    frame: Frame,
    principal: String,
    rows: Vec<SessionRow>,
    /// The session before the next page.
    older: Option<SessionId>,
}

#[derive(Template)]
#[template(path = "session.html")]
struct SessionPage {
    frame: Frame,
    row: SessionRow,
    rows: Vec<RunRow>,
    turns: Vec<TurnRow>,
}

struct SessionRow {
    session: Session,
    kind: &'static str,
    opened: Moment,
    age: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Filters {
    principal: String,
    before: String,
}

pub(super) async fn list(
    Visit(app, visitor): Visit,
    Params(filters): Params<Filters>,
) -> Result<Response, Trouble> {
    let now = app.service.gate.world.now();
    let malformed = |what: &str| Trouble::from(Problem::malformed(what));
    let principal_id = match filters.principal.trim() {
        "" => None,
        name => Some(PrincipalId::parse(name).map_err(|_| malformed("this is no principal"))?),
    };
    let before = match filters.before.as_str() {
        "" => None,
        id => Some(id.parse().map_err(|_| malformed("this is no session id"))?),
    };
    let query = SessionQuery { before, principal_id, limit: ROWS, ..SessionQuery::default() };
    let sessions = app.service.gate.store.session_page(query).await?;
    let page = SessionsPage {
        frame: Frame::at(Tab::Sessions, "Sessions", &visitor),
        principal: filters.principal,
        older: sessions.last().filter(|_| sessions.len() == ROWS).map(|last| last.session_id),
        rows: sessions.into_iter().map(|session| SessionRow::of(session, now)).collect(),
    };
    Ok(html(StatusCode::OK, &page))
}

pub(super) async fn show(
    Visit(app, visitor): Visit,
    id: Result<Id<SessionId>, Problem>,
) -> Result<Response, Trouble> {
    let Ok(Id(session_id)) = id else { return Err(Trouble::no_such("session")) };
    let store = &app.service.gate.store;
    let session = store.session(session_id).await?;
    let session = session.ok_or_else(|| Trouble::no_such("session"))?;
    let now = app.service.gate.world.now();
    let query = RunQuery { session_id: Some(session_id), ..RunQuery::default() };
    let rows = runs::read(&app, query, now).await?;
    let query = TurnQuery { session_id: Some(session_id), limit: ROWS, ..TurnQuery::default() };
    let turns = store.opened_turns(query).await?;
    let page = SessionPage {
        frame: Frame::at(Tab::Sessions, "Session", &visitor),
        row: SessionRow::of(session, now),
        rows,
        turns: turns.iter().filter_map(|opened| TurnRow::of(opened, now)).collect(),
    };
    Ok(html(StatusCode::OK, &page))
}

impl SessionRow {
    fn of(session: Session, now: Timestamp) -> Self {
        let kind = match session.kind {
            SessionKind::System => "operators' acts",
            SessionKind::Default => "the principal's default",
            SessionKind::Named => "named",
        };
        Self { kind, opened: Moment::of(session.ts), age: ago(session.ts, now), session }
    }
}
