//! `/approvals/{id}`: one approval, everything that is decided on, and the buttons to approve or deny.

mod view;

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::consent;
use stepgate_core::ids::ApprovalId;
use stepgate_core::run::Word;
use stepgate_core::step::{self, Refused};
use stepgate_gateway::service::Decided;

use super::form::Sent;
use super::{Trouble, Visit, Visitor, form, html, inbox, question};
use crate::approvals::Decision;
use crate::{App, Id, Params, Problem};

use view::{ApprovalPage, Extras, Notice};

/// How long a decision waits for its step to end.
const LINGER: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowParams {
    /// The approval that was decided before, if this one comes next.
    decided: Option<ApprovalId>,
}

pub(super) async fn show(
    Visit(app, visitor): Visit,
    id: Result<Id<ApprovalId>, Problem>,
    Params(params): Params<ShowParams>,
) -> Result<Response, Trouble> {
    let Ok(Id(id)) = id else { return Err(Trouble::no_such("approval")) };
    let notice = match params.decided {
        Some(decided) => next_notice(&app, decided).await?,
        None => None,
    };
    page(&app, &visitor, id, StatusCode::OK, notice).await
}

/// What became of the approval before this one.
async fn next_notice(app: &App, decided: ApprovalId) -> Result<Option<Notice>, Trouble> {
    let before = app.service.gate.store.approval(decided).await?;
    Ok(before.map(|before| {
        let words = match before.status {
            ApprovalStatus::Approved => "The one before was approved. This one comes next.",
            ApprovalStatus::Denied => "The one before was denied. This one comes next.",
            ApprovalStatus::Expired => "The one before expired. This one comes next.",
            ApprovalStatus::Pending => {
                "Your approval of the one before is kept, and more people must approve it. This one \
                 comes next."
            }
        };
        Notice { words, decided: Some(decided) }
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionForm {
    csrf: String,
    decision: Decision,
    #[serde(default)]
    note: String,
    /// Where to go afterwards.
    #[serde(default)]
    back: Back,
}

/// Where a decision leads.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Back {
    /// To the next approval; to this one if there is none.
    #[default]
    Next,
    /// To the inbox.
    Inbox,
}

/// Decides as `POST /v1/approvals/{id}/approve` and `deny` do, then redirects.
pub(super) async fn decide(
    Visit(app, visitor): Visit,
    id: Result<Id<ApprovalId>, Problem>,
    Sent(DecisionForm { csrf, decision, note, back }): Sent<DecisionForm>,
) -> Result<Response, Trouble> {
    visitor.may_change(&csrf)?;
    let Ok(Id(id)) = id else { return Err(Trouble::no_such("approval")) };
    let note = match form::note(&note) {
        Ok(note) => note,
        Err(words) => {
            return page(&app, &visitor, id, StatusCode::BAD_REQUEST, refusal(words)).await;
        }
    };
    let said = decision.by(&visitor.principal_id, note);
    let (status, words) = match app.service.decide(id, said).await {
        Ok(decided) => {
            let path = match back {
                Back::Inbox => "/".to_owned(),
                Back::Next => match inbox::next(&app, &visitor, id).await? {
                    Some(next) => format!("/approvals/{next}?decided={id}"),
                    None => {
                        linger(&app, &decided).await;
                        format!("/approvals/{id}")
                    }
                },
            };
            return Ok(Redirect::to(&path).into_response());
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
        Err(Refused::NotAnApprover) => (
            StatusCode::FORBIDDEN,
            "Nothing was decided: policy lets other people decide on this call. They are named \
             below.",
        ),
        Err(Refused::LinkedApprover(_)) => (
            StatusCode::FORBIDDEN,
            "Nothing was decided: someone who is linked to you by who made the tokens has approved \
             before. Another person has to approve.",
        ),
        Err(Refused::MorePeople) => {
            (StatusCode::CONFLICT, "Nothing was decided: policy requires more people.")
        }
        Err(Refused::OutOfReach) => (
            StatusCode::CONFLICT,
            "Nothing was decided: this node does not reach the call's executor. Decide on one that \
             does; `stepgate nodes` shows which.",
        ),
        Err(Refused::Stopped(_)) => (
            StatusCode::CONFLICT,
            "Nothing was decided: an operator has stopped this call. The question stays open: approve \
             once the stop is lifted, or deny.",
        ),
        Err(Refused::NoSuchApproval) => return Err(Trouble::no_such("approval")),
        Err(refused @ (Refused::NotInDoubt | Refused::Fault(_))) => return Err(refused.into()),
    };
    page(&app, &visitor, id, status, refusal(words)).await
}

/// The notice of a decision that was not accepted.
fn refusal(words: &'static str) -> Option<Notice> {
    Some(Notice { words, decided: None })
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
    notice: Option<Notice>,
) -> Result<Response, Trouble> {
    let gate = &app.service.gate;
    let approval = gate.store.approval(id).await?.ok_or_else(|| Trouble::no_such("approval"))?;
    let dossier = gate.store.dossier(approval.tool_run_id).await?;
    let dossier = dossier.ok_or_else(Problem::internal)?;
    let context =
        approval.context.read().ok().filter(|_| approval.status == ApprovalStatus::Pending);
    let (change, tool) = match context {
        Some(context) => {
            (question::file_change(app, context).await, question::described_tool(app, context))
        }
        None => (None, None),
    };
    let votes = consent::votes(gate, id).await?;
    let extras = Extras { notice, change, tool, votes, groups: gate.groups.clone() };
    let page = ApprovalPage::of(&approval, &dossier, visitor, gate.world.now(), extras)?;
    Ok(html(status, &page))
}
