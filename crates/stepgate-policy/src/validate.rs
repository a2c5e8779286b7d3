//! Checks policies against the schema, and against what Cedar's validator cannot know: which tools and paths
//! exist, and which arguments can be capped.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cedar_policy::{
    ActionConstraint, PolicyId, Schema, ValidationError, ValidationMode, ValidationWarning,
    Validator,
};
use miette::Diagnostic;
use stepgate_core::action::Action;

use crate::advice;
use crate::erasable;
use crate::finding::{FilePosition, Finding, Severity, message_of, offset_of};
use crate::literal::{Known, listed, listed_up_to};
use crate::reads::Reads;
use crate::rule::Rule;
use crate::schema::{CORE_GROUP, groups};
use crate::shape::{Record, Shape, ToolShape};
use crate::unseen::{BlindSpot, blind_spots};
use crate::vocabulary::ACTION;

/// All problems of policies that could be parsed.
pub(crate) fn validate(
    schema: Schema,
    rules: &[Rule],
    shapes: &[Record],
    known: &Known<'_>,
    findings: &mut Vec<Finding>,
) -> Result<(), String> {
    let tools = known.tools;
    let set = cedar_policy::PolicySet::from_policies(rules.iter().map(|rule| rule.policy.clone()))
        .map_err(|error| error.to_string())?;
    let result = Validator::new(schema).validate(&set, ValidationMode::Strict);
    let rule_of: HashMap<PolicyId, &Rule> =
        rules.iter().map(|rule| (PolicyId::new(&rule.name), rule)).collect();
    for error in result.validation_errors() {
        let Some(rule) = rule_of.get(error.policy_id()) else { continue };
        let retyped = retyped(rule, error, &covered(rule, tools.iter().zip(shapes)));
        let way_out = retyped.unwrap_or_else(|| way_out(error).to_owned());
        let place = offset_of(error).map(|at| FilePosition::of_offset(&rule.source, at));
        let message = format!("{}{way_out}", message_of(error));
        findings.push(Finding::at(Severity::Error, &rule.file, place.or(rule.place), message));
    }
    for warning in result.validation_warnings() {
        let rule = rule_of.get(warning.policy_id());
        findings.extend(rule.map(|rule| warned(rule, tools, warning)));
    }
    for rule in rules {
        let refusals: BTreeSet<String> = rule
            .policy
            .entity_literals()
            .iter()
            .filter_map(|entity| known.refusal(entity))
            .collect();
        findings.extend(refusals.into_iter().map(|text| rule.finding(Severity::Error, text)));
        findings.extend(wrong_caps(rule, tools));
        findings.extend(erasable::wrong(rule, tools));
        findings.extend(unseen(rule, tools.iter().zip(shapes)));
    }
    findings.extend(undeclared(rules, tools));
    Ok(())
}

/// Tools of which the configuration does not say what they bring into a session, where a policy asks for that: what the
/// operator forgot would let calls pass.
fn undeclared(rules: &[Rule], tools: &[ToolShape]) -> Option<Finding> {
    let rule = rules.iter().find(|rule| Reads::labels_of(&rule.policy))?;
    let is_undeclared = |tool: &&ToolShape| tool.is_accepted && tool.flow.is_undeclared;
    let tools = tools.iter().filter(is_undeclared);
    let count = tools.clone().count();
    if count == 0 {
        return None;
    }
    let message = format!(
        "`{}` asks what the session has read, and {count} tools are not declared: {}; their results bring no label in. \
         Say in stepgate.toml what they are: `reads = [\"untrusted\"]`, or `reads = []` where strangers write nothing into \
         their results (`stepgate policy init` asks for each)",
        rule.name,
        listed_up_to(8, tools.map(|tool| tool.name.as_str())),
    );
    Some(rule.finding(Severity::Warning, message))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "Cedar's own enum, which may grow")]
fn way_out(error: &ValidationError) -> &'static str {
    match error {
        ValidationError::UnrecognizedActionId(_) => {
            "; the actions are the core actions, the configured tools as `SERVER.TOOL`, and the \
             groups `core`, `read_only`, `draft`, `execute_gated`: configure the tool first, or \
             correct the name"
        }
        ValidationError::UnrecognizedEntityType(_) => {
            "; the types are `Principal`, `Group`, `Path`, `Tool`, `Server`, `Action`, `Label` and `Window`"
        }
        ValidationError::UnsafeAttributeAccess(_) => {
            "; policies see `context.args`, `context.mode`, `context.server`, `context.unseen`, \
             `context.reads`, `context.sends`, `context.session.labels`, `context.schedule` and `context.used`, and of the arguments those that the tool's schema types: see \
             docs/policy.md"
        }
        ValidationError::UnsafeOptionalAttributeAccess(_) => "; it can be absent: ask `has` first",
        ValidationError::NonLitExtConstructor(_) => {
            "; `decimal` takes a text in the policy, as in `decimal(\"99.5\")`; arguments that are a \
             `number` in the tool's schema are decimals already"
        }
        _ => "; see docs/policy.md for what policies can say",
    }
}

/// What to write where Cedar's types do not fit.
fn retyped(
    rule: &Rule,
    error: &ValidationError,
    tools: &[(&ToolShape, &Record)],
) -> Option<String> {
    let (ValidationError::UnexpectedType(_)
    | ValidationError::IncompatibleTypes(_)
    | ValidationError::FunctionArgumentValidation(_)) = error
    else {
        return None;
    };
    let label = error.labels()?.next()?;
    let place = label.offset()..label.offset() + label.len();
    let tools: Vec<_> = tools.iter().map(|(tool, args)| (tool.name.as_str(), *args)).collect();
    let advice = advice::for_types(&rule.policy, &rule.source, place, &tools)?;
    Some(format!("; {advice}"))
}

/// A warning of Cedar, or a note where it only means that nothing is configured yet.
#[expect(clippy::wildcard_enum_match_arm, reason = "Cedar's own enum, which may grow")]
fn warned(rule: &Rule, tools: &[ToolShape], warning: &ValidationWarning) -> Finding {
    match warning {
        ValidationWarning::ImpossiblePolicy(_) | ValidationWarning::InvalidActionApplication(_) => {
            never_applies(rule, tools)
        }
        _ => rule.finding(Severity::Warning, message_of(warning)),
    }
}

fn never_applies(rule: &Rule, tools: &[ToolShape]) -> Finding {
    let name = &rule.name;
    if let Some(tool) = tools.iter().find(|tool| !tool.is_accepted && covers(rule, tool)) {
        let message = format!(
            "`{name}` is not checked: `{}` is off, or its definition is not accepted, and every \
             call of it is denied; see `stepgate tools`, and correct the policy for it first",
            tool.name
        );
        return rule.finding(Severity::Warning, message);
    }
    if let Some(group) = empty_group(rule, tools) {
        let message = format!("no configured tool is `{group}`, so `{name}` waits for one");
        return rule.finding(Severity::Note, message);
    }
    let message = format!(
        "`{name}` can never apply: no action, principal and resource meet all its conditions; \
         correct it, or remove it"
    );
    rule.finding(Severity::Warning, message)
}

/// The group that a policy is about, if it covers no action. Then it names only groups: a missing action has
/// been reported as an error before.
fn empty_group(rule: &Rule, tools: &[ToolShape]) -> Option<&'static str> {
    let ActionConstraint::In(named) = rule.policy.action_constraint() else {
        return None;
    };
    if tools.iter().any(|tool| covers(rule, tool)) || covers_core(rule) {
        return None;
    }
    groups().find(|group| named.contains(&ACTION.entity(group)))
}

fn covers(rule: &Rule, tool: &ToolShape) -> bool {
    let group = ACTION.entity(tool.mode.as_str());
    rule.can_match(&ACTION.entity(tool.name.as_str()), &group)
}

/// The accepted tools that a policy is about, with their arguments.
fn covered<'a>(
    rule: &Rule,
    tools: impl Iterator<Item = (&'a ToolShape, &'a Record)>,
) -> Vec<(&'a ToolShape, &'a Record)> {
    tools.filter(|(tool, _)| tool.is_accepted && covers(rule, tool)).collect()
}

fn covers_core(rule: &Rule) -> bool {
    let group = ACTION.entity(CORE_GROUP);
    Action::ALL.iter().any(|action| rule.can_match(&ACTION.entity(action.name()), &group))
}

/// Caps that could not be applied: they would be silently ignored, or refuse every call.
fn wrong_caps(rule: &Rule, tools: &[ToolShape]) -> Vec<Finding> {
    if rule.caps.is_empty() {
        return Vec::new();
    }
    if covers_core(rule) {
        let message = "core actions cannot be capped, and this policy is about them too; name the \
                       tools, or a group of tools: `action == Action::\"SERVER.TOOL\"`";
        return vec![rule.finding(Severity::Error, message)];
    }
    let covered: Vec<&ToolShape> =
        tools.iter().filter(|tool| tool.is_accepted && covers(rule, tool)).collect();
    if covered.is_empty() {
        return Vec::new();
    }
    let is_by_name = match rule.policy.action_constraint() {
        ActionConstraint::Any => false,
        ActionConstraint::Eq(_) => true,
        ActionConstraint::In(named) => {
            !named.iter().any(|entity| groups().any(|group| ACTION.entity(group) == *entity))
        }
    };
    let severity = if is_by_name { Severity::Error } else { Severity::Warning };
    let wrong = rule.caps.keys().filter_map(|argument| wrong_cap(argument, &covered));
    wrong.map(|message| rule.finding(severity, message)).collect()
}

fn wrong_cap(argument: &str, tools: &[&ToolShape]) -> Option<String> {
    let names: Vec<String> = tools.iter().map(|tool| format!("`{}`", tool.name)).collect();
    let having: Vec<&&ToolShape> =
        tools.iter().filter(|tool| tool.argument(argument).is_some()).collect();
    if having.is_empty() {
        return Some(format!(
            "`@cap` names `{argument}`, and no such argument is in the schema of {}; correct the \
             name",
            names.join(", ")
        ));
    }
    if let Some(hidden) = having.iter().find(|tool| tool.is_redacted(argument)) {
        return Some(format!(
            "`@cap` names `{argument}`, which is redacted or erasable for `{}`: every call with it would be refused; \
             cap another argument",
            hidden.name
        ));
    }
    let wrong = having.iter().find(|tool| !can_be_capped(tool, argument))?;
    Some(format!(
        "`@cap` names `{argument}`, which is not a number for `{}`: every call of it would be \
         refused; cap a number",
        wrong.name
    ))
}

/// Whether an argument is a number, as far as its schema says.
fn can_be_capped(tool: &ToolShape, argument: &str) -> bool {
    let args = tool.args();
    let shape = args.attributes.get(argument).and_then(|attribute| attribute.seen.as_ref().ok());
    shape.is_none_or(|shape| matches!(shape, Shape::Long | Shape::Decimal))
}

/// Arguments that a policy reads and cannot always see: a call with such a value is denied.
fn unseen<'a>(
    rule: &Rule,
    tools: impl Iterator<Item = (&'a ToolShape, &'a Record)>,
) -> Vec<Finding> {
    let mut blind: BTreeMap<BlindSpot, Vec<&str>> = BTreeMap::new();
    for (tool, args) in covered(rule, tools) {
        for spot in blind_spots(rule, args) {
            blind.entry(spot).or_default().push(tool.name.as_str());
        }
    }
    let found = blind.into_iter().map(|(spot, names)| {
        // Legitimate calls seldom have such a number, so it is only a note and not reported at every start.
        let is_rare = spot.causes.iter().all(|cause| cause.is_rare());
        let severity = if is_rare { Severity::Note } else { Severity::Warning };
        let message = format!(
            "{}: a call of {} with such a value is denied; see \"What policies see\" in docs/policy.md",
            spot.told(rule),
            listed(names.into_iter())
        );
        rule.finding(severity, message)
    });
    found.collect()
}
