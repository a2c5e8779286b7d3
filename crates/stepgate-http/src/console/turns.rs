//! `/turns/{id}`: a turn of the agent, as it stands.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use stepgate_agent::turn::TurnId;

use super::text::Shown;
use super::trouble::Trouble;
use super::visitor::Visitor;
use super::{Frame, Tab, html};
use crate::routes::Id;
use crate::{App, Problem, turns};

#[derive(Template)]
#[template(path = "turn.html")]
struct TurnPage {
    frame: Frame,
    turn_id: TurnId,
    turn: turns::TurnObject,
    response: Option<Shown>,
    errors: Vec<Shown>,
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    id: Result<Id<TurnId>, Problem>,
) -> Result<Response, Trouble> {
    let Ok(Id(turn_id)) = id else { return Err(Trouble::no_such("turn")) };
    let Some(turn) = turns::find(&app, turn_id).await? else {
        return Err(Trouble::no_such("turn"));
    };
    let errors = turn.errors.iter().flatten();
    let page = TurnPage {
        frame: Frame::at(Tab::Sessions, "Turn", &visitor),
        turn_id,
        response: turn.response.as_ref().map(shown),
        errors: errors.map(shown).collect(),
        turn,
    };
    Ok(html(StatusCode::OK, &page))
}

/// A part of the turn, as its JSON.
fn shown(part: &impl Serialize) -> Shown {
    Shown::value(&serde_json::to_value(part).unwrap_or_default())
}
