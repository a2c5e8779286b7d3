//! `/stops`: emergency stops, and the form that makes one.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_core::stop::{StopOrder, StopTarget};
use stepgate_core::stops::{self, Lift, StopStanding};
use stepgate_gateway::service::Stopped;

use super::form::{Press, Sent};
use super::{Frame, Moment, Shown, Tab, Text, Trouble, Visit, Visitor, form, html};
use crate::stops::defect;
use crate::{App, Id, Problem};

#[derive(Template)]
#[template(path = "stops.html")]
struct StopsPage {
    frame: Frame,
    notice: Option<String>,
    /// The CSRF token, if the visitor can stop.
    csrf: Option<String>,
    stops: Vec<StopRow>,
}

struct StopRow {
    standing: StopStanding,
    target: Text,
    note: Option<Shown>,
    made: Moment,
    lift: Option<(Lift, Moment)>,
    status: &'static str,
    class: &'static str,
}

impl StopRow {
    fn of(standing: StopStanding) -> Self {
        let (status, class) = match &standing.lift {
            None => ("in force", "bad"),
            Some(_) => ("lifted", "denied"),
        };
        let lift = standing.lift.clone();
        Self {
            target: Text::of(&standing.order.target.to_string()),
            note: standing.order.note.as_deref().map(Shown::of),
            made: Moment::of(standing.made_at),
            lift: lift.map(|lift| (lift.clone(), Moment::of(lift.ts))),
            status,
            class,
            standing,
        }
    }
}

pub(super) async fn list(Visit(app, visitor): Visit) -> Result<Response, Trouble> {
    page(&app, &visitor, StatusCode::OK, None).await
}

/// Every stop: those in force first, then the newest first.
async fn page(
    app: &App,
    visitor: &Visitor,
    status: StatusCode,
    notice: Option<String>,
) -> Result<Response, Trouble> {
    let stops = stops::list(&app.service.gate).await?.into_iter();
    let mut stops: Vec<_> = stops.map(StopRow::of).collect();
    stops.sort_by_key(|stop| stop.lift.is_some());
    let (frame, csrf) = (Frame::at(Tab::Stops, "Stop", visitor), visitor.operator_csrf());
    Ok(html(status, &StopsPage { frame, notice, csrf, stops }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StopForm {
    csrf: String,
    kind: String,
    name: String,
    note: String,
}

/// Makes the stop that the form describes. If it cannot be made, the page says why.
pub(super) async fn make(
    Visit(app, visitor): Visit,
    Sent(StopForm { csrf, kind, name, note }): Sent<StopForm>,
) -> Result<Response, Trouble> {
    visitor.may_change(&csrf)?;
    let order = target(&kind, name.trim()).and_then(|target| {
        let note = form::note(&note).map_err(str::to_owned)?;
        Ok(StopOrder { note, stopped_by: visitor.principal_id.clone(), target })
    });
    let order = match order {
        Ok(order) => order,
        Err(why) => return page(&app, &visitor, StatusCode::BAD_REQUEST, Some(why)).await,
    };
    let Stopped { stop, covered, warning, .. } = app.service.stop(order).await?;
    let mut words = format!(
        "Stopped: {}. Calls that may have been sent before and are not taken back: {}. Runs that wait for an \
         approval: {}.",
        stop.order.target,
        covered.running.len(),
        covered.waiting
    );
    if let Some(warning) = warning {
        words = format!("{words} Warning: {warning}");
    }
    let visitor = visitor.again(&app).await;
    page(&app, &visitor, StatusCode::OK, Some(words)).await
}

fn target(kind: &str, name: &str) -> Result<StopTarget, String> {
    let nothing = |why: &str| format!("Nothing was stopped: {why}.");
    let target = match kind {
        "all" if name.is_empty() => StopTarget::All,
        "all" => return Err(nothing("there is a name in the field; clear it to stop everything")),
        "principal" => {
            let principal_id =
                PrincipalId::parse(name).map_err(|error| nothing(&error.to_string()))?;
            StopTarget::Principal(principal_id)
        }
        "session" => StopTarget::Session(
            name.parse().map_err(|_| nothing("this is not the id of a session"))?,
        ),
        "server" => StopTarget::Server(name.to_owned()),
        _ => return Err(nothing("press one of the buttons")),
    };
    match defect(&target) {
        Some(why) => Err(nothing(why)),
        None => Ok(target),
    }
}

/// Lifts a stop. One that is lifted already stays so.
pub(super) async fn lift(
    Visit(app, visitor): Visit,
    id: Result<Id<ArtifactId>, Problem>,
    Sent(Press { csrf }): Sent<Press>,
) -> Result<Response, Trouble> {
    visitor.may_change(&csrf)?;
    let Ok(Id(id)) = id else { return Err(Trouble::no_such("stop")) };
    app.service.lift(id, visitor.principal_id.clone()).await?;
    Ok(Redirect::to("/stops").into_response())
}
