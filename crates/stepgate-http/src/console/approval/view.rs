//! The content of an approval's page, built only from the approval and its run.

use std::collections::BTreeSet;

use askama::Template;
use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::approvers::{self, Groups, Required};
use stepgate_core::failure::Outcome;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{ApprovalId, PrincipalId};
use stepgate_core::journal::StateError;
use stepgate_core::ports::Dossier;
use stepgate_core::record::RecordBody;
use stepgate_core::run::Status;
use stepgate_core::time::Timestamp;
use stepgate_gateway::text;

use super::super::difference::Difference;
use super::super::question::{self, DescribedTool, Question};
use super::super::{Frame, Moment, Shown, Tab, Text, Visitor, VisitorRole};

/// Longest part of a result that is shown; `stepgate runs show` has all of it.
const RESULT_CHARS_MAX: usize = 4000;

#[derive(Template)]
#[template(path = "approval.html")]
pub(super) struct ApprovalPage {
    frame: Frame,
    /// Why the last decision was not accepted, if there was one.
    notice: Option<Notice>,
    approval_id: ApprovalId,
    standing: Standing,
    floor: VisitorActions,
    question: Question,
    change: Option<Difference>,
    /// The tool, as its server describes it.
    tool: Option<DescribedTool>,
    /// What policy requires of the people who decide.
    people: Vec<People>,
    /// Who has approved so far, where more people must.
    votes: Vec<Text>,
    /// Whether the visitor can allow further calls like this one.
    can_grant: bool,
    decision: Option<Decision>,
    fate: Option<Fate>,
    /// Whether the run has ended, so that the page does not change any more.
    is_final: bool,
}

/// What one policy requires of the people who decide.
struct People {
    quorum: u32,
    /// Groups and people; any operator where there are none.
    approvers: Vec<Text>,
}

impl People {
    fn of(required: &Required) -> Self {
        let approvers = required.approvers.iter().map(|name| Text::of(name)).collect();
        Self { quorum: required.quorum, approvers }
    }
}

/// A line above the page: what became of the last decision.
pub(super) struct Notice {
    pub(super) words: &'static str,
    /// The approval that was decided, if this page shows the next one.
    pub(super) decided: Option<ApprovalId>,
}

/// What the page shows beside the approval and its run.
#[derive(Default)]
pub(super) struct Extras {
    pub(super) notice: Option<Notice>,
    pub(super) change: Option<Difference>,
    pub(super) tool: Option<DescribedTool>,
    pub(super) votes: BTreeSet<PrincipalId>,
    pub(super) groups: Groups,
}

/// The state of the approval: a CSS class, and words for people.
struct Standing {
    /// `asks` while it is pending, `asked` after that.
    verb: &'static str,
    class: &'static str,
    words: &'static str,
}

/// What this visitor can do with the approval now.
enum VisitorActions {
    /// Decide; the form contains this CSRF token.
    Decides { csrf: String },
    /// Only look.
    Watches,
    /// Only look, because the request is the visitor's own.
    AskedThemselves,
    /// Only look, because policy lets other people decide.
    OthersDecide,
    /// Nothing: it is decided or expired.
    Over,
}

/// Who decided, and their note.
struct Decision {
    by: Option<Text>,
    at: Moment,
    note: Option<Shown>,
}

struct Fate {
    words: &'static str,
    is_over: bool,
    at: Option<Moment>,
    /// Error code and detail of the record.
    because: Option<(Text, Option<Shown>)>,
    result: Option<Shown>,
}

impl ApprovalPage {
    pub(super) fn of(
        approval: &Approval,
        dossier: &Dossier,
        visitor: &Visitor,
        now: Timestamp,
        extras: Extras,
    ) -> Result<Self, Fault> {
        let context = approval.context.read()?;
        let request = question::request(dossier)?;
        let Extras { notice, change, tool, votes, groups } = extras;
        let status = match approval.has_expired(now) {
            true => ApprovalStatus::Expired,
            false => approval.status,
        };
        let may_decide = approvers::may_decide(&context.required, &groups, &visitor.principal_id);
        let title = format!("{} asks for {}", context.principal_id, request.proposal.action());
        Ok(Self {
            frame: Frame::at(Tab::Inbox, text::shortened(&text::printable(&title), 120), visitor),
            notice,
            approval_id: approval.approval_id,
            standing: Standing::of(status),
            floor: VisitorActions::of(status, visitor, &context.principal_id, may_decide),
            people: context.required.iter().map(People::of).collect(),
            votes: votes.iter().map(|person| Text::of(person.as_str())).collect(),
            can_grant: visitor.role == VisitorRole::Operator
                && status == ApprovalStatus::Approved
                && visitor.principal_id != context.principal_id,
            decision: decision(approval),
            fate: fate(status, dossier)?,
            question: Question::of(approval, dossier, now)?,
            change,
            tool,
            is_final: dossier.run.status.is_final(),
        })
    }
}

impl Standing {
    fn of(status: ApprovalStatus) -> Self {
        let (verb, class, words) = match status {
            ApprovalStatus::Pending => ("asks", "pending", "Waits for a decision"),
            ApprovalStatus::Approved => ("asked", "approved", "Approved"),
            ApprovalStatus::Denied => ("asked", "denied", "Denied"),
            ApprovalStatus::Expired => ("asked", "expired", "Expired"),
        };
        Self { verb, class, words }
    }
}

impl VisitorActions {
    fn of(
        status: ApprovalStatus,
        visitor: &Visitor,
        asker: &PrincipalId,
        may_decide: bool,
    ) -> Self {
        match (status, visitor.operator_csrf()) {
            (ApprovalStatus::Approved | ApprovalStatus::Denied | ApprovalStatus::Expired, _) => {
                Self::Over
            }
            (ApprovalStatus::Pending, None) => Self::Watches,
            (ApprovalStatus::Pending, Some(_)) if visitor.principal_id == *asker => {
                Self::AskedThemselves
            }
            (ApprovalStatus::Pending, Some(_)) if !may_decide => Self::OthersDecide,
            (ApprovalStatus::Pending, Some(csrf)) => Self::Decides { csrf },
        }
    }
}

fn decision(approval: &Approval) -> Option<Decision> {
    let resolution = approval.resolution.as_ref()?;
    Some(Decision {
        by: resolution.approver_id.as_ref().map(|who| Text::of(who.as_str())),
        at: Moment::of(resolution.ts_resolved),
        note: resolution.note.as_deref().map(Shown::of),
    })
}

/// The outcome of the run; none while the approval is pending.
fn fate(status: ApprovalStatus, dossier: &Dossier) -> Result<Option<Fate>, StateError> {
    let body = dossier.record.as_ref().map(|(record, _)| record.body()).transpose();
    let Some(body) = body.map_err(StateError::checksum)? else {
        let words = match status {
            ApprovalStatus::Pending => return Ok(None),
            ApprovalStatus::Approved => "The call is under way.",
            ApprovalStatus::Denied | ApprovalStatus::Expired => "The step is about to end.",
        };
        let (at, because, result) = (None, None, None);
        return Ok(Some(Fate { words, is_over: false, at, because, result }));
    };
    // A person's denial is already shown in the decision.
    let because = Some(&body).filter(|body| body.status != Status::Denied);
    let ending = dossier.run.ending.as_ref();
    let result = ending.and_then(|ending| ending.output_json.as_deref());
    Ok(Some(Fate {
        words: ended(&body),
        is_over: true,
        at: Some(Moment::of(body.completed_at)),
        because: because.and_then(question::failure),
        result: result.map(|text| Shown::of(&text::shortened(text, RESULT_CHARS_MAX))),
    }))
}

fn ended(body: &RecordBody) -> &'static str {
    match (body.outcome, body.status) {
        (Outcome::Success, _) => "It was executed, and it succeeded.",
        (Outcome::ExecutionError, Status::Timeout) => "It was cut off: no answer came in time.",
        (Outcome::ExecutionError, _) => "It failed.",
        (Outcome::Denied, Status::Denied) => "It was never executed.",
        (Outcome::Denied, _) => "It was refused after the approval.",
        (Outcome::ValidationError, _) => "It was refused as not valid.",
    }
}

#[cfg(test)]
mod tests;
