//! `/`: everything that needs a person, oldest first, and the buttons to decide.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::attention::Kind;
use stepgate_core::ids::ApprovalId;
use stepgate_core::ports::{ApprovalQuery, StoreError};
use stepgate_core::step::Refused;
use stepgate_core::time::Timestamp;
use stepgate_core::tool::ToolName;
use stepgate_gateway::attention::{Attention, NeedObject};

use super::moment::{Moment, ago};
use super::question::{Question, tool_path};
use super::text::{Shown, Text};
use super::trouble::Trouble;
use super::visitor::{Visitor, VisitorRole};
use super::{Frame, Tab, form, html};
use crate::approvals::{self, Decision};
use crate::{App, Problem};

/// Most approvals on the page. Each is shown in full.
const SHOWN_MAX: usize = 25;
/// Most approvals that are looked at to find the next one.
const LOOKED_AT_MAX: usize = 8;

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
    title: &'static str,
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
    let Attention { attention, counts } = app.service.attention().await?;
    let (approvals, others): (Vec<_>, Vec<_>) =
        attention.into_iter().partition(|need| need.kind == Kind::Approval.as_str());
    let mut asks = Vec::new();
    for need in approvals.iter().take(SHOWN_MAX) {
        asks.extend(ask(app, visitor, &need.subject, now).await?);
    }
    let csrf = match visitor.role {
        VisitorRole::Operator => Some(visitor.csrf.clone()),
        VisitorRole::Auditor => None,
    };
    let open = counts.get(Kind::Approval.as_str()).copied().unwrap_or_default();
    let more = (asks.len() < approvals.len())
        .then(|| format!("The oldest {} of {open} approvals are shown.", asks.len()));
    let (title, heading) = headings(counts.values().sum());
    let needs = others.iter().map(|need| Need::of(need, now)).collect();
    let frame = Frame::at(Tab::Inbox, title, visitor);
    Ok(html(status, &InboxPage { frame, heading, notices, csrf, asks, more, needs }))
}

/// The titles of the page and of its window.
fn headings(waiting: u64) -> (String, String) {
    match waiting {
        0 => ("Inbox".to_owned(), "Inbox".to_owned()),
        1 => ("(1) Inbox".to_owned(), "Inbox: one thing waits".to_owned()),
        waiting => (format!("({waiting}) Inbox"), format!("Inbox: {waiting} things wait")),
    }
}

/// An approval with everything that is decided on. None if it was decided meanwhile or cannot be read: a run that does
/// not verify is among the other needs.
async fn ask(
    app: &App,
    visitor: &Visitor,
    approval_id: &str,
    now: Timestamp,
) -> Result<Option<Ask>, StoreError> {
    let store = &app.service.gate.store;
    let Ok(approval_id) = approval_id.parse() else { return Ok(None) };
    let Some(approval) = store.approval(approval_id).await? else { return Ok(None) };
    let dossier = match store.dossier(approval.tool_run_id).await {
        Ok(Some(dossier)) if approval.status == ApprovalStatus::Pending => dossier,
        Ok(_) | Err(StoreError::State(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(question) = Question::of(&approval, &dossier, now) else { return Ok(None) };
    let can_decide = match visitor.role {
        VisitorRole::Operator => visitor.principal_id != question.principal_id,
        VisitorRole::Auditor => false,
    };
    Ok(Some(Ask { question, can_decide }))
}

/// The next approval that this visitor can decide on.
pub(super) async fn next(
    app: &App,
    visitor: &Visitor,
    done: ApprovalId,
) -> Result<Option<ApprovalId>, StoreError> {
    let query = ApprovalQuery {
        status: Some(ApprovalStatus::Pending),
        oldest_first: true,
        limit: LOOKED_AT_MAX,
        ..ApprovalQuery::default()
    };
    let now = app.service.gate.world.now();
    let is_for_them = |approval: &&Approval| {
        let context = approval.context.read();
        let is_own = context.is_ok_and(|it| it.principal_id == visitor.principal_id);
        approval.approval_id != done && !is_own && !approval.has_expired(now)
    };
    let open = app.service.gate.store.approvals(query).await?;
    Ok(open.iter().find(is_for_them).map(|approval| approval.approval_id))
}

impl Need {
    fn of(need: &NeedObject, now: Timestamp) -> Self {
        let NeedObject { subject, run_id, kind, reason, since, way_out } = need;
        let kind = Kind::parse(kind);
        let link = match (kind, run_id) {
            (_, Some(run_id)) => Some(format!("/runs/{run_id}")),
            (Some(Kind::ToolNew | Kind::ToolChanged), None) => {
                ToolName::parse(subject).ok().map(|name| format!("/tools/{}", tool_path(&name)))
            }
            (Some(Kind::ToolUnusable | Kind::ServerOff), None) => Some("/tools".to_owned()),
            (Some(Kind::PolicyNotLoaded), None) => Some("/policy".to_owned()),
            (Some(Kind::ExecutorUnreached), None) => Some("/health".to_owned()),
            (
                Some(Kind::Approval | Kind::InDoubt | Kind::Stuck | Kind::Quarantined) | None,
                None,
            ) => None,
        };
        Self {
            title: kind.map_or("Something", title),
            subject: Text::of(subject),
            link,
            reason: Shown::of(reason),
            way_out: Text::of(way_out),
            since: Moment::of(*since),
            age: ago(*since, now),
        }
    }
}

/// What it is, for people.
fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Approval => "An approval",
        Kind::InDoubt => "A call in doubt",
        Kind::Stuck => "A run that is stuck",
        Kind::Quarantined => "A run that does not verify",
        Kind::ToolNew => "A new tool",
        Kind::ToolChanged => "A changed tool",
        Kind::ToolUnusable => "A tool that cannot be offered",
        Kind::ServerOff => "A tool server that is off",
        Kind::PolicyNotLoaded => "Policies that could not be loaded",
        Kind::ExecutorUnreached => "Runs that no node can continue",
    }
}
