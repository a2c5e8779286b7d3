//! `/`: everything that needs a person, oldest first, and the buttons to decide.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use stepgate_core::approval::{Approval, ApprovalContext};
use stepgate_core::approvers;
use stepgate_core::attention::Kind;
use stepgate_core::consent;
use stepgate_core::digest::Digest;
use stepgate_core::ids::ApprovalId;
use stepgate_core::ports::StoreError;
use stepgate_core::step::Refused;
use stepgate_core::time::Timestamp;
use stepgate_core::tool::ToolName;
use stepgate_gateway::attention::{Attention, NeedObject};
use stepgate_gateway::text::shortened;

use super::form::Sent;
use super::question::{Question, tool_path};
use super::{
    Frame, Moment, Shown, Tab, Text, Trouble, Visit, Visitor, VisitorRole, ago, form, html, left,
};
use crate::approvals::{self, Decision};
use crate::{App, Params, Problem};

const SHOWN_MAX: usize = 25;
/// Longest approval that is shown in full. A longer one is decided on its own page.
const IN_FULL_BYTES_MAX: usize = 8 * 1024;
/// Longest name and reason, in characters.
const NAME_CHARS_MAX: usize = 128;
const REASON_CHARS_MAX: usize = 500;
/// Most approvals that are looked at to find the next one.
const LOOKED_AT_MAX: usize = 50;

#[derive(Template)]
#[template(path = "inbox.html")]
struct InboxPage {
    frame: Frame,
    heading: String,
    notices: Vec<String>,
    /// The CSRF token; none for a visitor who may only look.
    csrf: Option<String>,
    asks: Vec<Ask>,
    /// The last approval on the page, if more follow.
    more: Option<ApprovalId>,
    needs: Vec<Need>,
}

/// An approval, with those that ask for the same call of the same principal.
struct Ask {
    /// The oldest of them.
    approval_id: ApprovalId,
    equal: Vec<ApprovalId>,
    tool: Text,
    principal: Text,
    reason: Text,
    asked: Moment,
    age: String,
    left: String,
    is_own: bool,
    /// Whether policy lets other people decide, or this visitor has approved already.
    others_decide: bool,
    can_decide: bool,
    /// Everything that is decided on; none if it is too long for a list.
    question: Option<Question>,
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

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PageParams {
    /// The last approval of the page before.
    after: Option<ApprovalId>,
}

pub(super) async fn show(
    Visit(app, visitor): Visit,
    Params(PageParams { after }): Params<PageParams>,
) -> Result<Response, Trouble> {
    page(&app, &visitor, StatusCode::OK, Vec::new(), after).await
}

/// Decides on the approvals that the visitor chose, each by its id.
pub(super) async fn decide(
    Visit(app, visitor): Visit,
    Sent(fields): Sent<Vec<(String, String)>>,
) -> Result<Response, Trouble> {
    let chosen = Chosen::of(fields)?;
    visitor.may_change(&chosen.csrf)?;
    let nothing =
        |words: &str| page(&app, &visitor, StatusCode::BAD_REQUEST, vec![words.to_owned()], None);
    let Some(decision) = chosen.decision else {
        return nothing("Nothing was decided: press Approve or Deny.").await;
    };
    if chosen.ids.is_empty() {
        return nothing("Nothing was decided: you chose none.").await;
    }
    let note = match form::note(&chosen.note) {
        Ok(note) => note,
        Err(words) => return nothing(words).await,
    };
    let (mut decided, mut notices) = (0_usize, Vec::new());
    for id in chosen.ids {
        let said = decision.by(&visitor.principal_id, note.clone());
        match app.service.decide(id, said).await {
            Ok(_) => decided += 1,
            Err(refused) => notices.push(format!("Not decided: {id}: {}", why_not(&refused))),
        }
    }
    let word = match decision {
        Decision::Approve => "approved",
        Decision::Deny => "denied",
    };
    notices.insert(0, format!("You {word} {decided}."));
    page(&app, &visitor, StatusCode::OK, notices, None).await
}

fn why_not(refused: &Refused) -> &'static str {
    match refused {
        Refused::AlreadyDecided => "it was decided before.",
        Refused::OwnRequest => "it is your own request, so another operator has to decide.",
        Refused::NotAnApprover => "policy lets other people decide on it.",
        Refused::LinkedApprover(_) => "someone who is linked to you has approved before.",
        Refused::MorePeople => "policy requires more people.",
        Refused::Stopped(_) => "an operator has stopped these calls.",
        Refused::OutOfReach => "this node does not reach the call's executor.",
        Refused::NoSuchApproval => "there is no such approval.",
        Refused::NotInDoubt | Refused::Fault(_) => "Stepgate itself failed; look again.",
    }
}

/// The form for several approvals. The same field occurs once for each of them.
struct Chosen {
    csrf: String,
    /// None if the person pressed Enter instead of a button.
    decision: Option<Decision>,
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
                    decision = Some(match value.as_str() {
                        "approve" => Some(Decision::Approve),
                        "deny" => Some(Decision::Deny),
                        "none" => None,
                        _ => return Err(malformed()),
                    });
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
    after: Option<ApprovalId>,
) -> Result<Response, Trouble> {
    let now = app.service.gate.world.now();
    let Attention { attention, counts } = app.service.attention().await?;
    let others = attention.iter().filter(|need| need.kind != Kind::Approval.as_str());
    let open = app.service.decidable_after(after, SHOWN_MAX + 1).await?;
    let mut asks = Vec::new();
    consent::read_on(&app.service.gate).await?;
    for equal in joined(open.iter().take(SHOWN_MAX)) {
        asks.extend(ask(app, visitor, &equal, now).await?);
    }
    let last = open.get(SHOWN_MAX - 1).filter(|_| open.len() > SHOWN_MAX);
    let (title, heading) = headings(counts.values().sum());
    let page = InboxPage {
        frame: Frame::at(Tab::Inbox, title, visitor),
        heading,
        notices,
        csrf: visitor.operator_csrf(),
        asks,
        more: last.map(|last| last.approval_id),
        needs: others.map(|need| Need::of(need, now)).collect(),
    };
    Ok(html(status, &page))
}

/// The titles of the page and of its window.
fn headings(waiting: u64) -> (String, String) {
    match waiting {
        0 => ("Inbox".to_owned(), "Inbox".to_owned()),
        1 => ("(1) Inbox".to_owned(), "Inbox: one thing waits".to_owned()),
        waiting => (format!("({waiting}) Inbox"), format!("Inbox: {waiting} things wait")),
    }
}

/// Approvals of equal calls of one principal together, in the order of the oldest of each.
fn joined<'a>(open: impl Iterator<Item = &'a Approval>) -> Vec<Vec<&'a Approval>> {
    let mut groups: Vec<(Option<Digest>, Vec<&Approval>)> = Vec::new();
    for approval in open {
        let call = approval.context.read().ok().map(|context| context.call_digest);
        match groups.iter_mut().find(|(known, _)| call.is_some() && *known == call) {
            Some((_, equal)) => equal.push(approval),
            None => groups.push((call, vec![approval])),
        }
    }
    groups.into_iter().map(|(_, equal)| equal).collect()
}

/// Whether this visitor's approval is still of use: policy lets them decide, and they have not approved already.
fn can_help(app: &App, visitor: &Visitor, approval: &Approval, context: &ApprovalContext) -> bool {
    let gate = &app.service.gate;
    approvers::may_decide(&context.required, &gate.groups, &visitor.principal_id)
        && !gate.consents.known_votes(approval.approval_id).contains(&visitor.principal_id)
}

/// Equal approvals. None if the run of the oldest does not verify: then the run is among the other needs.
async fn ask(
    app: &App,
    visitor: &Visitor,
    equal: &[&Approval],
    now: Timestamp,
) -> Result<Option<Ask>, StoreError> {
    let Some((approval, others)) = equal.split_first() else { return Ok(None) };
    let Ok(context) = approval.context.read() else { return Ok(None) };
    let question = match approval.context.text().len() <= IN_FULL_BYTES_MAX {
        false => None,
        true => match app.service.gate.store.dossier(approval.tool_run_id).await {
            Ok(Some(dossier)) => Question::of(approval, &dossier, now).ok(),
            Ok(None) | Err(StoreError::State(_)) => return Ok(None),
            Err(error) => return Err(error),
        },
    };
    let is_own = visitor.principal_id == context.principal_id;
    let others_decide = !can_help(app, visitor, approval, context);
    let can_decide = visitor.role == VisitorRole::Operator && !is_own && !others_decide;
    Ok(Some(Ask {
        approval_id: approval.approval_id,
        equal: others.iter().map(|other| other.approval_id).collect(),
        tool: Text::of(&shortened(&context.action(), NAME_CHARS_MAX)),
        principal: Text::of(context.principal_id.as_str()),
        reason: Text::of(&shortened(&context.reason, REASON_CHARS_MAX)),
        asked: Moment::of(approval.ts_requested),
        age: ago(approval.ts_requested, now),
        left: left(context.expires_at, now),
        is_own,
        others_decide,
        // What is not shown here in full is not decided here.
        can_decide: can_decide && question.is_some(),
        question,
    }))
}

/// The next approval that this visitor can decide on.
pub(super) async fn next(
    app: &App,
    visitor: &Visitor,
    done: ApprovalId,
) -> Result<Option<ApprovalId>, StoreError> {
    let open = app.service.decidable_after(None, LOOKED_AT_MAX).await?;
    let next = open.iter().find(|approval| {
        let can_decide = |context: &ApprovalContext| {
            context.principal_id != visitor.principal_id
                && can_help(app, visitor, approval, context)
        };
        approval.approval_id != done && approval.context.read().is_ok_and(can_decide)
    });
    Ok(next.map(|approval| approval.approval_id))
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
            (Some(Kind::PolicyNotLoaded | Kind::ShadowNotLoaded), None) => {
                Some("/policy".to_owned())
            }
            (Some(Kind::ExecutorUnreached | Kind::DiskLow), None) => Some("/health".to_owned()),
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
        Kind::ShadowNotLoaded => "Shadow policies that could not be loaded",
        Kind::ExecutorUnreached => "Runs that no node can continue",
        Kind::DiskLow => "A disk that is nearly full",
    }
}
