//! `/policy/replay`: what an edited set of policies would have decided on recorded history.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use stepgate_core::history::Ruling;
use stepgate_core::ids::RunId;
use stepgate_core::ports::StoreError;
use stepgate_core::tool::ToolName;
use stepgate_gateway::panics::{self, Panicked};
use stepgate_gateway::replay::{self, Change, Replayed};
use stepgate_policy::PolicySet;

use super::form::{POLICIES_BYTES_MAX, Sent};
use super::{Frame, Shown, Tab, Text, Trouble, Visit, Visitor, html};
use crate::{App, Problem};

/// Most recorded decisions that are asked again.
const DECISIONS_MAX: u32 = 1000;
/// Most changes on the page. All are counted.
const CHANGES_MAX: usize = 100;

#[derive(Template)]
#[template(path = "replay.html")]
struct ReplayPage {
    frame: Frame,
    csrf: String,
    policies: String,
    decisions_max: u32,
    /// Why the edited policies cannot be loaded.
    errors: Vec<Shown>,
    outcome: Option<Outcome>,
}

struct Outcome {
    replayed: Replayed,
    changes: Vec<ChangeRow>,
}

struct ChangeRow {
    run_id: RunId,
    principal: Text,
    tool: Text,
    was: String,
    would_be: String,
    class: &'static str,
    by: Text,
}

impl ChangeRow {
    fn of(change: &Change) -> Self {
        let Change { past, ruling, policies } = change;
        let by = if policies.is_empty() { "no policy".to_owned() } else { policies.join(", ") };
        Self {
            run_id: past.run_id,
            principal: Text::of(past.principal_id.as_str()),
            tool: Text::of(past.call.name()),
            was: words(&past.ruling),
            would_be: words(ruling),
            class: match ruling {
                Ruling::Permit(_) => "good",
                Ruling::RequireApproval(_) => "pending",
                Ruling::Deny => "bad",
            },
            by: Text::of(&by),
        }
    }
}

fn words(ruling: &Ruling) -> String {
    let (word, caps) = match ruling {
        Ruling::Permit(caps) => ("permitted", Some(caps)),
        Ruling::RequireApproval(caps) => ("a person is asked", Some(caps)),
        Ruling::Deny => ("denied", None),
    };
    let caps = caps.into_iter().flatten().map(|(name, max)| format!(", {name} <= {max}"));
    format!("{word}{}", caps.collect::<String>())
}

/// The form, with the policies in force.
pub(super) async fn ask(Visit(app, visitor): Visit) -> Response {
    let set = app.service.control.as_ref().map(|control| control.policy.current());
    let policies = set.map(|set| set.text()).unwrap_or_default();
    html(StatusCode::OK, &page(&visitor, policies, Vec::new(), None))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayForm {
    csrf: String,
    policies: String,
}

/// Asks recorded decisions again. Nothing is executed or recorded, so auditors may do it too.
pub(super) async fn replay(
    Visit(app, visitor): Visit,
    Sent(ReplayForm { csrf, policies }): Sent<ReplayForm, POLICIES_BYTES_MAX>,
) -> Result<Response, Trouble> {
    visitor.sent(&csrf)?;
    let Some(control) = app.service.control.clone() else {
        return Err(Problem::internal().into());
    };
    let text = policies.replace("\r\n", "\n");
    let edited = text.clone();
    let gate = app.service.gate.clone();
    let compiled = panics::contained_blocking(move || control.compiled(&gate, &edited)).await;
    let set = match compiled.map_err(|Panicked| Problem::internal())? {
        Ok(set) => set,
        Err(error) => {
            let errors = error.to_string().lines().map(Shown::of).collect();
            return Ok(html(StatusCode::OK, &page(&visitor, text, errors, None)));
        }
    };
    let outcome = outcome(&app, &set).await?;
    Ok(html(StatusCode::OK, &page(&visitor, text, Vec::new(), Some(outcome))))
}

async fn outcome(app: &App, set: &PolicySet) -> Result<Outcome, StoreError> {
    let gate = &app.service.gate;
    let mut changes = Vec::new();
    let changed = |change: Change| {
        if changes.len() < CHANGES_MAX {
            changes.push(ChangeRow::of(&change));
        }
        Ok::<(), StoreError>(())
    };
    let tool = |name: &ToolName| gate.tools.tool(name);
    let replayed = replay::replay(&*gate.store, tool, set, DECISIONS_MAX, changed, |_| {}).await?;
    Ok(Outcome { replayed, changes })
}

fn page(
    visitor: &Visitor,
    policies: String,
    errors: Vec<Shown>,
    outcome: Option<Outcome>,
) -> ReplayPage {
    ReplayPage {
        frame: Frame::at(Tab::Policy, "Replay", visitor),
        csrf: visitor.csrf.clone(),
        policies,
        decisions_max: DECISIONS_MAX,
        errors,
        outcome,
    }
}
