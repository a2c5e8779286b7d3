//! `/grants`: calls that operators approved in advance; and the form that makes a grant from an approval.

use std::collections::{BTreeMap, HashMap};

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde_json::Value;
use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::consent::{self, GrantRefused, GrantStanding, GrantStatus, NewGrant};
use stepgate_core::grant::Condition;
use stepgate_core::ids::{ApprovalId, ArtifactId};
use stepgate_core::limits::Limits;
use stepgate_core::time::Timestamp;
use stepgate_gateway::text::hidden;

use super::form::Sent;
use super::text::kind;
use super::{Frame, Moment, Shown, Tab, Text, Trouble, Visit, Visitor, duration, form, html, left};
use crate::{App, Id, Problem};

/// The lives that the form offers, in minutes. Those above the limit are left out.
const LIVES: [(u64, &str); 5] = [
    (15, "15 minutes"),
    (60, "1 hour"),
    (8 * 60, "8 hours"),
    (24 * 60, "1 day"),
    (7 * 24 * 60, "7 days"),
];
/// The number of calls that the form suggests.
const USES_SUGGESTED: u64 = 5;

#[derive(Template)]
#[template(path = "grants.html")]
struct GrantsPage {
    frame: Frame,
    /// The CSRF token, if the visitor can revoke.
    csrf: Option<String>,
    grants: Vec<GrantRow>,
}

struct GrantRow {
    standing: GrantStanding,
    tool: Text,
    conditions: Vec<ConditionRow>,
    note: Option<Shown>,
    created: Moment,
    expires: Moment,
    left: String,
    status: &'static str,
    class: &'static str,
    is_active: bool,
}

/// What an argument must be, in words.
struct ConditionRow {
    name: Text,
    words: &'static str,
    value: Shown,
}

impl ConditionRow {
    fn of(name: &str, condition: &Condition) -> Self {
        let (words, value) = match condition {
            Condition::Equals(value) => ("is exactly", Shown::value(value)),
            Condition::Between(min, max) => {
                ("is a number from", Shown::of(&format!("{min} to {max}")))
            }
            // Quoted, so that a space at its end can be seen.
            Condition::StartsWith(beginning) => {
                ("begins with", Shown::of(&format!("“{beginning}”")))
            }
        };
        Self { name: Text::of(name), words, value }
    }
}

impl GrantRow {
    fn of(standing: GrantStanding, now: Timestamp) -> Self {
        let status = standing.status(now);
        let (words, class) = match status {
            GrantStatus::Active => ("active", "good"),
            GrantStatus::UsedUp => ("used up", "denied"),
            GrantStatus::Expired => ("expired", "denied"),
            GrantStatus::Revoked => ("revoked", "bad"),
        };
        let grant = &standing.grant;
        let conditions = grant.args.iter();
        Self {
            tool: Text::of(&grant.action()),
            conditions: conditions.map(|(name, it)| ConditionRow::of(name, it)).collect(),
            note: grant.note.as_deref().map(Shown::of),
            created: Moment::of(standing.created_at),
            expires: Moment::of(grant.expires_at),
            left: left(grant.expires_at, now),
            status: words,
            class,
            is_active: status == GrantStatus::Active,
            standing,
        }
    }
}

/// Every grant: those that can be used first, then the newest first.
pub(super) async fn list(Visit(app, visitor): Visit) -> Result<Response, Trouble> {
    let gate = &app.service.gate;
    let now = gate.world.now();
    let grants = consent::grants(gate).await?.into_iter();
    let mut grants: Vec<_> = grants.map(|standing| GrantRow::of(standing, now)).collect();
    grants.sort_by_key(|grant| !grant.is_active);
    let csrf = visitor.operator_csrf();
    let frame = Frame::at(Tab::Grants, "Grants", &visitor);
    Ok(html(StatusCode::OK, &GrantsPage { frame, csrf, grants }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeForm {
    csrf: String,
    grant_id: ArtifactId,
}

/// Revokes a grant. One that is revoked already stays so.
pub(super) async fn revoke(
    Visit(app, visitor): Visit,
    Sent(RevokeForm { csrf, grant_id }): Sent<RevokeForm>,
) -> Result<Response, Trouble> {
    visitor.may_change(&csrf)?;
    consent::revoke_grant(&app.service.gate, grant_id, visitor.principal_id.clone()).await?;
    Ok(Redirect::to("/grants").into_response())
}

#[derive(Template)]
#[template(path = "grant.html")]
struct GrantPage {
    frame: Frame,
    notice: Option<String>,
    csrf: String,
    approval_id: ApprovalId,
    principal: Text,
    tool: Text,
    arguments: Vec<ArgumentChoice>,
    lives: Vec<(u64, String)>,
    uses: u64,
    uses_max: u64,
}

/// An argument of the approved call, and what else the operator can allow for it.
struct ArgumentChoice {
    number: usize,
    name: Text,
    kind: &'static str,
    value: Shown,
    /// The text itself, where its beginning can be allowed.
    text: Option<String>,
    /// The number itself, where a range can be allowed.
    amount: Option<i64>,
}

pub(super) async fn ask(
    Visit(app, visitor): Visit,
    id: Result<Id<ApprovalId>, Problem>,
) -> Result<Response, Trouble> {
    let approval = approved(&app, id).await?;
    page(&app, &visitor, &approval, StatusCode::OK, None)
}

async fn approved(app: &App, id: Result<Id<ApprovalId>, Problem>) -> Result<Approval, Trouble> {
    let Ok(Id(id)) = id else { return Err(Trouble::no_such("approval")) };
    let approval = app.service.gate.store.approval(id).await?;
    approval
        .filter(|approval| approval.status == ApprovalStatus::Approved)
        .ok_or_else(|| Trouble::no_such("approval that was approved"))
}

fn page(
    app: &App,
    visitor: &Visitor,
    approval: &Approval,
    status: StatusCode,
    notice: Option<String>,
) -> Result<Response, Trouble> {
    let csrf = visitor.operator_csrf().ok_or_else(|| Trouble::from(Problem::forbidden()))?;
    let context = approval.context.read().map_err(stepgate_core::gate::Fault::from)?;
    let life_max_ms = app.service.gate.limits.grant_life_max_ms;
    let lives = LIVES.map(|(minutes, words)| (minutes * 60_000, words.to_owned()));
    let mut lives: Vec<(u64, String)> =
        lives.into_iter().filter(|(life_ms, _)| *life_ms <= life_max_ms).collect();
    if lives.is_empty() {
        lives.push((life_max_ms, duration(life_max_ms)));
    }
    let page = GrantPage {
        frame: Frame::at(Tab::Grants, "Allow further calls", visitor),
        notice,
        csrf,
        approval_id: approval.approval_id,
        principal: Text::of(context.principal_id.as_str()),
        tool: Text::of(&context.action()),
        arguments: choices(&context.args),
        lives,
        uses: USES_SUGGESTED,
        uses_max: Limits::GRANT_USES_MAX,
    };
    Ok(html(status, &page))
}

fn choices(args: &Value) -> Vec<ArgumentChoice> {
    let members = args.as_object().into_iter().flatten().enumerate();
    let choices = members.map(|(number, (name, value))| ArgumentChoice {
        number,
        name: Text::of(name),
        kind: kind(value),
        value: Shown::value(value),
        // A field of a form would not show what a text hides.
        text: value
            .as_str()
            .filter(|text| !text.chars().any(|c| hidden(c).is_some()))
            .map(str::to_owned),
        amount: value.as_i64(),
    });
    choices.collect()
}

/// Makes the grant that the form describes. If it cannot be made, the form is shown again with the reason.
pub(super) async fn create(
    Visit(app, visitor): Visit,
    id: Result<Id<ApprovalId>, Problem>,
    Sent(fields): Sent<Vec<(String, String)>>,
) -> Result<Response, Trouble> {
    let fields: HashMap<String, String> = fields.into_iter().collect();
    let field = |name: &str| fields.get(name).map_or("", String::as_str);
    visitor.may_change(field("csrf"))?;
    let approval = approved(&app, id).await?;
    let new = match new_grant(&approval, &field) {
        Ok(new) => new,
        Err(why) => return page(&app, &visitor, &approval, StatusCode::BAD_REQUEST, Some(why)),
    };
    match app.service.grant(&visitor.principal_id, new).await {
        Ok(_) => Ok(Redirect::to("/grants").into_response()),
        Err(GrantRefused::Fault(fault)) => Err(fault.into()),
        Err(refused) => {
            let why = format!("Nothing was granted: {refused}.");
            page(&app, &visitor, &approval, StatusCode::BAD_REQUEST, Some(why))
        }
    }
}

/// Whether the form has another beginning or range than the one that it offered.
fn is_edited<'a>(value: &Value, at: usize, field: &impl Fn(&str) -> &'a str) -> bool {
    let offered = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    ["begin", "min", "max"].iter().any(|name| {
        let typed = field(&format!("{name}{at}"));
        !typed.is_empty() && typed != offered
    })
}

fn new_grant<'a>(
    approval: &Approval,
    field: &impl Fn(&str) -> &'a str,
) -> Result<NewGrant, String> {
    let number = |name: &str, what: &str| {
        let why = || format!("Nothing was granted: {what} must be a whole number.");
        field(name).trim().parse::<i64>().map_err(|_| why())
    };
    let context = approval.context.read().map_err(|error| error.to_string())?;
    let mut args = BTreeMap::new();
    for (at, (name, value)) in context.args.as_object().into_iter().flatten().enumerate() {
        let condition = match field(&format!("kind{at}")) {
            "starts_with" => Condition::StartsWith(field(&format!("begin{at}")).to_owned()),
            "between" => Condition::Between(
                number(&format!("min{at}"), "the smallest value")?,
                number(&format!("max{at}"), "the largest value")?,
            ),
            _ if is_edited(value, at, field) => {
                return Err(format!(
                    "Nothing was granted: for `{name}` you typed a condition and did not choose it."
                ));
            }
            _ => continue,
        };
        args.insert(name.clone(), condition);
    }
    let whole = |value: i64| u64::try_from(value).unwrap_or(0);
    Ok(NewGrant {
        approval_id: approval.approval_id,
        args,
        uses_max: whole(number("uses", "the number of calls")?),
        life_ms: whole(number("life", "the time")?),
        note: form::note(field("note")).map_err(str::to_owned)?,
    })
}
