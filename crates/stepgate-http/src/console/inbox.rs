//! `/`: everything that needs a person, oldest first, and the buttons to decide.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::attention;
use stepgate_core::ids::ApprovalId;
use stepgate_core::ports::{ApprovalQuery, StoreError};
use stepgate_core::step::Refused;
use stepgate_core::time::Timestamp;
use stepgate_gateway::attention::NeedObject;

use super::moment::{Moment, ago};
use super::question::Question;
use super::text::{Shown, Text};
use super::trouble::Trouble;
use super::visitor::{Visitor, VisitorRole};
use super::{Frame, Tab, form, html};
use crate::approvals::{self, Decision};
use crate::{App, Problem};

/// Most approvals on the page. Each is shown in full.
const SHOWN_MAX: usize = 25;
/// Approvals per read of the store.
const PAGE: usize = 500;
/// Most approvals that are read to find the oldest.
const READ_MAX: usize = 5000;

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage {
    frame: Frame,
    heading: String,
    notices: Vec<String>,
    /// The CSRF token; none for a visitor who may only look.
    csrf: Option<String>,
    asks: Vec<Ask>,
    /// How many are not shown.
    more: Option<String>,
    needs: Vec<Need>,
}

/// An approval.
struct Ask {
    question: Question,
    can_decide: bool,
}

/// Something else that needs a person.
struct Need {
    title: String,
    subject: Text,
    link: Option<String>,
    reason: Shown,
    way_out: Text,
    since: Moment,
    age: String,
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
) -> Result<Response, Trouble> {
    page(&app, &visitor, StatusCode::OK, Vec::new()).await
}

/// Decides on the approvals that the visitor chose, each by its id.
pub(super) async fn decide(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Trouble> {
    let chosen = Chosen::of(form::read::<Vec<(String, String)>>(&app, &headers, body).await?)?;
    if !visitor.made(&chosen.csrf) {
        return Err(Trouble::foreign_form());
    }
    match visitor.role {
        VisitorRole::Operator => {}
        VisitorRole::Auditor => return Err(Problem::forbidden().into()),
    }
    if chosen.ids.is_empty() {
        let words = "Nothing was decided: you chose none.".to_owned();
        return page(&app, &visitor, StatusCode::BAD_REQUEST, vec![words]).await;
    }
    let Ok(note) = approvals::checked(Some(chosen.note.trim().to_owned())) else {
        let words =
            "Nothing was decided: the note is too long. It may have 4,096 bytes.".to_owned();
        return page(&app, &visitor, StatusCode::BAD_REQUEST, vec![words]).await;
    };
    let (mut decided, mut notices) = (0_usize, Vec::new());
    for id in chosen.ids {
        let said = chosen.decision.by(&visitor.principal_id, note.clone());
        match app.service.decide(id, said).await {
            Ok(_) => decided += 1,
            Err(refused) => notices.push(format!("Not decided: {id}: {}", why_not(&refused))),
        }
    }
    let word = match chosen.decision {
        Decision::Approve => "approved",
        Decision::Deny => "denied",
    };
    notices.insert(0, format!("You {word} {decided}."));
    page(&app, &visitor, StatusCode::OK, notices).await
}

/// Why a decision was not accepted.
fn why_not(refused: &Refused) -> &'static str {
    match refused {
        Refused::AlreadyDecided => "it was decided before.",
        Refused::OwnRequest => "it is your own request, so another operator has to decide.",
        Refused::OutOfReach => "this node does not reach the call's executor.",
        Refused::NoSuchApproval => "there is no such approval.",
        Refused::NotInDoubt | Refused::Fault(_) => "Stepgate itself failed; look again.",
    }
}

/// The form for several approvals. The same field occurs once for each of them.
struct Chosen {
    csrf: String,
    decision: Decision,
    note: String,
    ids: Vec<ApprovalId>,
}

impl Chosen {
    fn of(fields: Vec<(String, String)>) -> Result<Self, Trouble> {
        let malformed = || Trouble::from(Problem::malformed("the form is not one of ours"));
        let (mut csrf, mut decision, mut note) = (None, None, String::new());
        let mut ids = Vec::new();
        for (name, value) in fields {
            match name.as_str() {
                "csrf" => csrf = Some(value),
                "decision" => {
                    let word: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
                        serde::de::IntoDeserializer::into_deserializer(value.as_str());
                    decision = Decision::deserialize(word).ok();
                }
                "note" => note = value,
                "id" => ids.push(value.parse().map_err(|_| malformed())?),
                _ => return Err(malformed()),
            }
        }
        match (csrf, decision) {
            (Some(csrf), Some(decision)) if ids.len() <= approvals::BATCH_MAX => {
                Ok(Self { csrf, decision, note, ids })
            }
            (_, _) => Err(malformed()),
        }
    }
}

async fn page(
    app: &App,
    visitor: &Visitor,
    status: StatusCode,
    notices: Vec<String>,
) -> Result<Response, Trouble> {
    let now = app.service.gate.world.now();
    let open = open(app, now).await?;
    let mut asks = Vec::new();
    for approval in open.iter().take(SHOWN_MAX) {
        // An approval whose run does not verify cannot be decided on; the run is among the needs.
        let dossier = match app.service.gate.store.dossier(approval.tool_run_id).await {
            Ok(Some(dossier)) => dossier,
            Ok(None) | Err(StoreError::State(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        let Ok(question) = Question::of(approval, &dossier, now) else { continue };
        let can_decide = match visitor.role {
            VisitorRole::Operator => visitor.principal_id != question.principal_id,
            VisitorRole::Auditor => false,
        };
        asks.push(Ask { question, can_decide });
    }
    let needs: Vec<Need> = attention::of(&app.service.gate)
        .await?
        .iter()
        .map(|need| Need::of(&NeedObject::of(need), now))
        .collect();
    let waiting = open.len() + needs.len();
    let title = match waiting {
        0 => "Inbox".to_owned(),
        waiting => format!("({waiting}) Inbox"),
    };
    let heading = match waiting {
        0 => "Inbox".to_owned(),
        1 => "Inbox: one thing waits".to_owned(),
        waiting => format!("Inbox: {waiting} things wait"),
    };
    let csrf = match visitor.role {
        VisitorRole::Operator => Some(visitor.csrf.clone()),
        VisitorRole::Auditor => None,
    };
    let more = (open.len() > SHOWN_MAX)
        .then(|| format!("The oldest {SHOWN_MAX} of {} approvals are shown.", open.len()));
    let frame = Frame::at(Tab::Inbox, title, visitor);
    Ok(html(status, &InboxPage { frame, heading, notices, csrf, asks, more, needs }))
}

/// The approvals that a person can decide on, oldest first.
async fn open(app: &App, now: Timestamp) -> Result<Vec<Approval>, StoreError> {
    let status = Some(ApprovalStatus::Pending);
    let mut query = ApprovalQuery { status, limit: PAGE, ..ApprovalQuery::default() };
    let mut open = Vec::new();
    while open.len() < READ_MAX {
        let page = app.service.gate.store.approvals(query.clone()).await?;
        let Some(last) = page.last() else { break };
        query.before = Some(last.approval_id);
        open.extend(page.into_iter().filter(|approval| !approval.has_expired(now)));
    }
    open.reverse();
    Ok(open)
}

/// The next approval that this visitor can decide on.
pub(super) async fn next(
    app: &App,
    visitor: &Visitor,
    done: ApprovalId,
) -> Result<Option<ApprovalId>, StoreError> {
    let open = open(app, app.service.gate.world.now()).await?;
    let is_own = |approval: &Approval| {
        let context = approval.context.read();
        context.is_ok_and(|context| context.principal_id == visitor.principal_id)
    };
    let next = open.iter().find(|it| it.approval_id != done && !is_own(it));
    Ok(next.map(|approval| approval.approval_id))
}

impl Need {
    fn of(need: &NeedObject, now: Timestamp) -> Self {
        let NeedObject { run_id, kind, reason, since, way_out } = need;
        Self {
            title: kind.replace('_', " "),
            subject: Text::of(&run_id.to_string()),
            link: Some(format!("/runs/{run_id}")),
            reason: Shown::of(reason),
            way_out: Text::of(way_out),
            since: Moment::of(*since),
            age: ago(*since, now),
        }
    }
}
