//! `/policy`: the rules in force, and what they would decide on a proposal.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use stepgate_core::assumed::Assumed;
use stepgate_core::digest::Digest;
use stepgate_core::failure::Failure;
use stepgate_core::ids::PrincipalId;
use stepgate_core::run::Payload;
use stepgate_policy::{Effect, Explanation, Outcome, PolicySet};

use super::form::Sent;
use super::{Frame, Shown, Tab, Text, Trouble, Visit, Visitor, html};
use crate::policy::{self, Evaluation, VerdictWord};
use crate::{App, Problem};

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage {
    frame: Frame,
    csrf: String,
    digest: Option<Digest>,
    cases: usize,
    warnings: Vec<Text>,
    rules: Vec<RuleRow>,
    principal: String,
    proposal: String,
    tried: Option<Tried>,
}

struct RuleRow {
    name: Text,
    effect: &'static str,
    class: &'static str,
    approval: Option<Shown>,
    place: Text,
    text: Shown,
}

struct Tried {
    class: &'static str,
    words: &'static str,
    reasons: Vec<Shown>,
    evaluated: Vec<EvaluatedRow>,
}

struct EvaluatedRow {
    name: Text,
    effect: &'static str,
    place: Text,
    outcome: &'static str,
    class: &'static str,
}

const EXAMPLE: &str = r#"{
  "schema_version": "1.0.0",
  "id": "00000000-0000-4000-8000-000000000001",
  "action": "WRITE_FILE",
  "args": { "path": "/sandbox/notes.txt", "content": "hello" },
  "reasoning": "to see what policy says"
}"#;

pub(super) async fn show(Visit(app, visitor): Visit) -> Response {
    html(StatusCode::OK, &page(&app, &visitor, String::new(), EXAMPLE.to_owned(), None))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TryForm {
    csrf: String,
    principal: String,
    proposal: String,
}

/// Tries a proposal. Nothing is executed or recorded, so auditors may do it too.
pub(super) async fn evaluate(
    Visit(app, visitor): Visit,
    Sent(TryForm { csrf, principal, proposal }): Sent<TryForm>,
) -> Result<Response, Trouble> {
    visitor.sent(&csrf)?;
    let as_whom = match principal.trim() {
        "" => visitor.principal_id.clone(),
        name => PrincipalId::parse(name).map_err(|_| Problem::malformed("this is no principal"))?,
    };
    let payload = Payload::whole(proposal.as_bytes());
    let asked = policy::Asked { principal_id: as_whom, session_id: None, payload };
    let weighed = policy::weighed(&app, asked, &Assumed::default()).await;
    let tried = match weighed.map_err(Problem::from)? {
        Ok(evaluation) => Tried::of(&evaluation),
        Err(failure) => Tried::invalid(&failure),
    };
    Ok(html(StatusCode::OK, &page(&app, &visitor, principal, proposal, Some(tried))))
}

fn page(
    app: &App,
    visitor: &Visitor,
    principal: String,
    proposal: String,
    tried: Option<Tried>,
) -> PolicyPage {
    let set = app.service.control.as_ref().map(|control| control.policy.current());
    let set = set.as_deref();
    PolicyPage {
        frame: Frame::at(Tab::Policy, "Policy", visitor),
        csrf: visitor.csrf.clone(),
        digest: set.map(PolicySet::digest),
        cases: set.map_or(0, PolicySet::cases),
        warnings: set
            .map(|set| set.warnings().iter().map(|it| Text::of(&it.to_string())).collect())
            .unwrap_or_default(),
        rules: set.map(rules).unwrap_or_default(),
        principal,
        proposal,
        tried,
    }
}

fn rules(set: &PolicySet) -> Vec<RuleRow> {
    let rows = set.shown().map(|rule| {
        let (effect, class) = match (rule.effect, &rule.approval) {
            (Effect::Forbid, _) => ("forbids", "bad"),
            (Effect::Permit, Some(_)) => ("asks a person", "pending"),
            (Effect::Permit, None) => ("permits", "good"),
        };
        RuleRow {
            name: Text::of(rule.name),
            effect,
            class,
            approval: rule.approval.map(Shown::of),
            place: place(rule.file, rule.line),
            text: Shown::of(&rule.text),
        }
    });
    rows.collect()
}

/// The file's name and the line. The rest of the path is the host's own.
fn place(file: &str, line: Option<usize>) -> Text {
    let name = file.rsplit('/').next().unwrap_or(file);
    Text::of(&line.map_or(name.to_owned(), |line| format!("{name}:{line}")))
}

impl Tried {
    fn of(evaluation: &Evaluation) -> Self {
        let (class, words) = match evaluation.verdict {
            VerdictWord::Permit => ("good", "It would be permitted."),
            VerdictWord::RequireApproval => ("pending", "A person would be asked."),
            VerdictWord::Deny => ("bad", "It would be denied."),
        };
        let reasons = [&evaluation.reason, &evaluation.rule, &evaluation.detail];
        let mut reasons: Vec<Shown> =
            reasons.into_iter().flatten().map(|reason| Shown::of(reason)).collect();
        let caps = evaluation.caps.iter();
        reasons.extend(caps.map(|(name, max)| Shown::of(&format!("`{name}` is lowered to {max}"))));
        if !evaluation.policies.is_empty() {
            reasons.push(Shown::of(&format!("by {}", evaluation.policies.join(", "))));
        }
        let evaluated = evaluation.explanation.as_ref().map(evaluated).unwrap_or_default();
        Self { class, words, reasons, evaluated }
    }

    fn invalid(failure: &Failure) -> Self {
        let reasons = vec![
            Shown::of(&format!("{}: {}", failure.code(), failure.message())),
            Shown::of(&failure.detail().unwrap_or_default()),
        ];
        let words = "It would be refused before policy: it is not a valid proposal.";
        Self { class: "bad", words, reasons, evaluated: Vec::new() }
    }
}

fn evaluated(explanation: &Explanation) -> Vec<EvaluatedRow> {
    let policies = explanation.requests.iter().flat_map(|request| &request.policies);
    let rows = policies.map(|policy| {
        let (outcome, class) = match policy.outcome {
            Outcome::Matched => ("matches", "good"),
            Outcome::NotMatched => ("does not match", "denied"),
            Outcome::Errored(_) => ("cannot be evaluated", "bad"),
        };
        EvaluatedRow {
            name: Text::of(&policy.name),
            effect: match policy.effect {
                Effect::Permit => "permit",
                Effect::Forbid => "forbid",
            },
            place: place(&policy.file, policy.line),
            outcome,
            class,
        }
    });
    rows.collect()
}
