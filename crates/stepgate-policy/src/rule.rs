//! One policy with its annotations: its name, whether it requires an approval, its caps, and what it makes erasable.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{
    ActionConstraint, EntityUid, Policy, PolicyId, PolicySet, PrincipalConstraint,
    ResourceConstraint,
};
use schemars::JsonSchema;
use serde::Serialize;
use stepgate_core::approvers::Required;
use stepgate_core::facts::FactNeeds;
use stepgate_core::ids::PrincipalId;

use crate::advice;
use crate::cap;
use crate::directory::SourceFile;
use crate::erasable;
use crate::evaluate::Condition;
use crate::finding::{FilePosition, Finding, Severity, message_of, offset_of};
use crate::limits::{APPROVERS_MAX, NAME_BYTES_MAX, QUORUM_MAX, REASON_BYTES_MAX};
use crate::nesting;
use crate::reads::Reads;
use crate::subject::{Reach, Subject};
use crate::who::Who;

/// A parsed policy.
pub(crate) struct Rule {
    /// Its name in decisions: its `@id`, or `FILE#N`.
    pub(crate) name: String,
    pub(crate) file: String,
    /// The text of its file, to locate what Cedar reports later.
    pub(crate) source: Arc<str>,
    /// Where it begins.
    pub(crate) place: Option<FilePosition>,
    pub(crate) effect: Effect,
    /// Why a person must decide.
    pub(crate) approval: Option<String>,
    /// Who must decide, where not any one operator may.
    pub(crate) required: Option<Required>,
    pub(crate) caps: BTreeMap<String, i64>,
    /// The arguments that are erasable, in calls of every tool that its head is about.
    pub(crate) erasable: BTreeSet<String>,
    /// The arguments that its conditions read.
    pub(crate) reads: Reads,
    /// The facts that its conditions read.
    pub(crate) needs: FactNeeds,
    /// When it matches.
    pub(crate) condition: Condition,
    /// Its id is the name.
    pub(crate) policy: Policy,
}

/// The effect of a policy that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are Cedar's")]
pub enum Effect {
    Permit,
    Forbid,
}

impl Rule {
    /// Whether its scope can match an action of this name, in this group.
    pub(crate) fn can_match(&self, action: &EntityUid, group: &EntityUid) -> bool {
        match self.policy.action_constraint() {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(only) => only == *action,
            ActionConstraint::In(several) => {
                several.iter().any(|one| one == action || one == group)
            }
        }
    }

    /// Whether it matches every request for an action that its scope allows.
    pub(crate) fn is_unconditional(&self) -> bool {
        !self.policy.has_non_scope_constraint()
            && self.policy.principal_constraint() == PrincipalConstraint::Any
            && self.policy.resource_constraint() == ResourceConstraint::Any
    }

    /// Which calls of one principal it can match, by its scope alone: conditions are evaluated only for a
    /// call.
    pub(crate) fn reach(&self, who: &Who, subject: &Subject) -> Reach {
        let principals = Reach::whether(match self.policy.principal_constraint() {
            PrincipalConstraint::Any => true,
            PrincipalConstraint::Eq(only) => only == who.principal,
            PrincipalConstraint::In(group) => who.is_in(&group),
            PrincipalConstraint::Is(kind) => kind == *who.principal.type_name(),
            PrincipalConstraint::IsIn(kind, group) => {
                kind == *who.principal.type_name() && who.is_in(&group)
            }
        });
        let condition = match self.policy.has_non_scope_constraint() {
            true => Reach::SomeCalls,
            false => Reach::EveryCall,
        };
        principals.min(subject.reach(&self.policy.resource_constraint())).min(condition)
    }

    /// Everything about it that decides, as a text; none where it cannot be written down.
    pub(crate) fn meaning(&self) -> Option<String> {
        let mut json = self.policy.to_json().ok()?;
        json.as_object_mut()?.remove("annotations");
        let Self { approval, required, caps, .. } = self;
        Some(format!("{json} {} {required:?} {caps:?}", approval.is_some()))
    }

    pub(crate) fn finding(&self, severity: Severity, message: impl Into<String>) -> Finding {
        Finding::at(severity, &self.file, self.place, message)
    }
}

/// The policies of a file, in order, with a finding for each invalid one.
pub(crate) fn read(file: &SourceFile, findings: &mut Vec<Finding>) -> Vec<Rule> {
    if let Some((offset, message)) = nesting::excess(&file.text) {
        findings.push(file.error(Some(offset), message));
        return Vec::new();
    }
    let parsed = match PolicySet::from_str(&file.text) {
        Ok(parsed) => parsed,
        Err(errors) => {
            findings.extend(errors.iter().map(|error| {
                let offset = offset_of(error);
                let advice = offset.and_then(|offset| advice::for_syntax(&file.text, offset));
                let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
                file.error(offset, format!("not a Cedar policy: {}{advice}", message_of(error)))
            }));
            return Vec::new();
        }
    };
    for template in parsed.templates() {
        let offset = template.as_ref().loc().map(|loc| loc.start());
        let message = "a template, with `?principal` or `?resource`, is never used; write the \
                       principal or resource instead";
        findings.push(file.error(offset, message));
    }
    let mut policies: Vec<(Option<usize>, &Policy)> = parsed
        .policies()
        .map(|policy| (policy.as_ref().loc().map(|loc| loc.start()), policy))
        .collect();
    policies.sort_by_key(|(offset, _)| *offset);
    let mut rules = Vec::new();
    for ((offset, policy), number) in policies.into_iter().zip(1..) {
        match annotated(file, number, offset, policy) {
            Ok(rule) => rules.push(rule),
            Err(message) => findings.push(file.error(offset, message)),
        }
    }
    rules
}

fn annotated(
    file: &SourceFile,
    number: usize,
    offset: Option<usize>,
    policy: &Policy,
) -> Result<Rule, String> {
    let effect = match policy.effect() {
        cedar_policy::Effect::Permit => Effect::Permit,
        cedar_policy::Effect::Forbid => Effect::Forbid,
    };
    let mut name = format!("{}#{number}", file.name);
    let (mut approval, mut caps) = (None, BTreeMap::new());
    let (mut approvers, mut quorum) = (None, None);
    let mut erasable = BTreeSet::new();
    for (key, text) in policy.annotations() {
        match key {
            "id" => name = named(text)?,
            "approval" => approval = Some(reason(text)?),
            "approvers" => approvers = Some(approver_names(text)?),
            "quorum" => quorum = Some(people(text)?),
            "cap" => caps = cap::parse(text).map_err(|error| error.to_string())?,
            "erasable" => erasable = erasable::parse(text)?,
            unknown => {
                return Err(format!(
                    "unknown annotation `@{unknown}`; the annotations are `@id`, `@approval`, \
                     `@approvers`, `@quorum`, `@cap` and `@erasable`, anything else belongs into a comment"
                ));
            }
        }
    }
    if effect == Effect::Forbid && (approval.is_some() || !caps.is_empty()) {
        return Err("`@approval` and `@cap` belong to a `permit`: a `forbid` refuses without \
                    conditions; remove the annotation, or write a `permit`"
            .to_owned());
    }
    let is_required = approvers.is_some() || quorum.is_some();
    let required = is_required.then(|| Required {
        approvers: approvers.unwrap_or_default(),
        quorum: quorum.unwrap_or(1),
    });
    if is_required && approval.is_none() {
        return Err("`@approvers` and `@quorum` say who decides: add `@approval(\"why a person \
                    must decide\")`, or remove them"
            .to_owned());
    }
    let (reads, needs) = (Reads::of(policy), Reads::facts_of(policy));
    let condition = Condition::of(policy);
    let policy = policy.new_id(PolicyId::new(&name));
    let place = offset.map(|offset| FilePosition::of_offset(&file.text, offset));
    let (file, source) = (file.shown.clone(), Arc::clone(&file.text));
    Ok(Rule {
        name,
        file,
        source,
        place,
        effect,
        approval,
        required,
        caps,
        erasable,
        reads,
        needs,
        condition,
        policy,
    })
}

/// A valid name for journals and lists.
fn named(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(is_allowed) {
        return Err(format!(
            "`@id({text:?})` is not a name; use 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_`, \
             `-` or `/`"
        ));
    }
    Ok(text.to_owned())
}

/// Valid names of groups and people, separated by commas.
fn approver_names(text: &str) -> Result<BTreeSet<String>, String> {
    let names: BTreeSet<&str> = text.split(',').map(str::trim).collect();
    if names.len() > APPROVERS_MAX || names.iter().any(|name| PrincipalId::parse(name).is_err()) {
        return Err(format!(
            "`@approvers({text:?})` needs 1 to {APPROVERS_MAX} names of groups or people, \
             separated by commas: `@approvers(\"finance, ann\")`"
        ));
    }
    Ok(names.into_iter().map(str::to_owned).collect())
}

/// A valid number of people.
fn people(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=QUORUM_MAX).contains(number));
    number.ok_or_else(|| {
        format!("`@quorum({text:?})` needs a number of people from 1 to {QUORUM_MAX}")
    })
}

/// A valid reason for a person, on one line.
fn reason(text: &str) -> Result<String, String> {
    let is_plain = !text.trim().is_empty() && !text.chars().any(char::is_control);
    if !is_plain || text.len() > REASON_BYTES_MAX {
        return Err(format!(
            "`@approval` needs a reason for the person who decides, of one line and at most \
             {REASON_BYTES_MAX} bytes: `@approval(\"this changes the world\")`"
        ));
    }
    Ok(text.to_owned())
}
