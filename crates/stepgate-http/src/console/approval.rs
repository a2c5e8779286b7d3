//! `/approvals/{id}`: one approval, everything that is decided on, and the buttons to approve or deny.

mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use stepgate_core::ids::ApprovalId;
use stepgate_core::run::Word;
use stepgate_core::step::{self, Refused};
use stepgate_gateway::service::Decided;

use super::trouble::Trouble;
use super::visitor::{Visitor, VisitorRole};
use super::{form, html};
use crate::approvals::{self, Decision};
use crate::routes::Id;
use crate::{App, Problem};

use view::ApprovalPage;

/// How long a decision waits for its step to end.
const LINGER: Duration = Duration::from_secs(1);

pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    id: Result<Id<ApprovalId>, Problem>,
) -> Result<Response, Trouble> {
    let Ok(Id(id)) = id else { return Err(Trouble::no_such_approval()) };
    page(&app, &visitor, id, StatusCode::OK, None).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionForm {
    csrf: String,
    decision: Decision,
    #[serde(default)]
    note: String,
}

/// Decides as `POST /v1/approvals/{id}/approve` and `deny` do, then redirects to the page.
pub(super) async fn decide(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    id: Result<Id<ApprovalId>, Problem>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Trouble> {
    let DecisionForm { csrf, decision, note } = form::read(&app, &headers, body).await?;
    if !visitor.made(&csrf) {
        return Err(Trouble::foreign_form());
    }
    let Ok(Id(id)) = id else { return Err(Trouble::no_such_approval()) };
    match visitor.role {
        VisitorRole::Operator => {}
        VisitorRole::Auditor => {
            let words = "Nothing was decided: auditors look, and operators decide.";
            return page(&app, &visitor, id, StatusCode::FORBIDDEN, Some(words)).await;
        }
    }
    // Browsers send CRLF line ends from a text area.
    let note = note.replace("\r\n", "\n").trim().to_owned();
    let Ok(note) = approvals::checked(Some(note)) else {
        let words = "Nothing was decided: the note is too long. It may have 4,096 bytes.";
        return page(&app, &visitor, id, StatusCode::BAD_REQUEST, Some(words)).await;
    };
    let said = decision.by(&visitor.principal_id, note);
    let (status, words) = match app.service.decide(id, said).await {
        Ok(decided) => {
            linger(&app, &decided).await;
            return Ok(Redirect::to(&format!("/approvals/{id}")).into_response());
        }
        Err(Refused::AlreadyDecided) => (
            StatusCode::CONFLICT,
            "Your answer changed nothing: the approval was decided before it came. What counts is \
             below.",
        ),
        Err(Refused::OwnRequest) => (
            StatusCode::FORBIDDEN,
            "Nothing was decided: you asked for this yourself, or your token and the one that asked \
             come from one maker. Another operator has to decide.",
        ),
        Err(Refused::OutOfReach) => (
            StatusCode::CONFLICT,
            "Nothing was decided: this node does not reach the call's executor. Decide on one that \
             does; `stepgate nodes` shows which.",
        ),
        Err(Refused::NoSuchApproval) => return Err(Trouble::no_such_approval()),
        Err(refused @ (Refused::NotInDoubt | Refused::Fault(_))) => return Err(refused.into()),
    };
    page(&app, &visitor, id, status, Some(words)).await
}

/// Waits a moment for the step to end: most calls are fast, and then the next page shows the outcome.
async fn linger(app: &App, decided: &Decided) {
    let (gate, run_id) = (&app.service.gate, decided.approval.tool_run_id);
    let mut watch = app.service.hub.watch(run_id);
    // It may have ended before the watch began.
    match step::answer_of(gate, run_id).await.map(|answer| answer.word()) {
        Ok(Word::Notice(_)) => {
            let _ = tokio::time::timeout(LINGER, watch.finished()).await;
        }
        Ok(Word::Outcome(_)) | Err(_) => {}
    }
}

async fn page(
    app: &App,
    visitor: &Visitor,
    id: ApprovalId,
    status: StatusCode,
    notice: Option<&'static str>,
) -> Result<Response, Trouble> {
    let gate = &app.service.gate;
    let approval = gate.store.approval(id).await?.ok_or_else(Trouble::no_such_approval)?;
    let dossier = gate.store.dossier(approval.tool_run_id).await?;
    let dossier = dossier.ok_or_else(Problem::internal)?;
    let page = ApprovalPage::of(&approval, &dossier, visitor, gate.world.now(), notice)?;
    Ok(html(status, &page))
}
