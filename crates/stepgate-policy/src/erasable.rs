//! `@erasable("body, subject")`: these arguments of every tool that the head of a policy is about are kept apart from the
//! journal, until an operator erases them.
//!
//! What is erasable must be known before anything of a call is durable, and no policy sees it. So neither the conditions of
//! a policy have a part in it, nor its effect, nor the principal that its head names.

use std::borrow::Cow;
use std::collections::BTreeSet;

use cedar_policy::{EntityUid, PrincipalConstraint, ResourceConstraint};
use serde_json::Value;
use stepgate_core::action::{Action, CORE_SERVER};

use crate::finding::{Finding, Severity};
use crate::limits::{ERASABLE_MAX, NAME_BYTES_MAX};
use crate::literal::listed;
use crate::rule::Rule;
use crate::schema::{CORE_GROUP, has_path};
use crate::shape::ToolShape;
use crate::subject::allows;
use crate::vocabulary::{ACTION, PATH, SERVER, TOOL};

/// Parts of a schema, beside `properties`, that can give a tool arguments.
const OTHER_PARTS: [&str; 10] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "dependentSchemas",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
];

/// Valid names of arguments, separated by commas.
pub(crate) fn parse(text: &str) -> Result<BTreeSet<String>, String> {
    let names: BTreeSet<&str> = text.split(',').map(str::trim).collect();
    let is_name = |name: &str| {
        (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
    };
    if names.len() > ERASABLE_MAX || !names.iter().all(|name| is_name(name)) {
        return Err(format!(
            "`@erasable({text:?})` needs 1 to {ERASABLE_MAX} names of arguments, separated by commas: \
             `@erasable(\"body, subject\")`"
        ));
    }
    Ok(names.into_iter().map(str::to_owned).collect())
}

/// The arguments of a tool that policies make erasable.
pub(crate) fn of_tool(rules: &[Rule], tool: &ToolShape) -> BTreeSet<String> {
    let erasing = rules.iter().filter(|rule| !rule.erasable.is_empty() && is_about(rule, tool));
    erasing.flat_map(|rule| rule.erasable.iter().cloned()).collect()
}

/// The tools as policies see them: what is erasable is hidden like what the configuration redacts.
pub(crate) fn hidden_in<'a>(rules: &[Rule], tools: &'a [ToolShape]) -> Cow<'a, [ToolShape]> {
    if rules.iter().all(|rule| rule.erasable.is_empty()) {
        return Cow::Borrowed(tools);
    }
    tools.iter().map(|tool| hiding(tool, of_tool(rules, tool)).into_owned()).collect()
}

/// A tool of which policies do not see these arguments either.
pub(crate) fn hiding(tool: &ToolShape, names: BTreeSet<String>) -> Cow<'_, ToolShape> {
    let names: Vec<String> = names.into_iter().filter(|name| !tool.is_redacted(name)).collect();
    if names.is_empty() {
        return Cow::Borrowed(tool);
    }
    let mut tool = tool.clone();
    tool.redacted.extend(names);
    Cow::Owned(tool)
}

/// Whether the head of a policy is about calls of a tool, by any principal.
fn is_about(rule: &Rule, tool: &ToolShape) -> bool {
    let name = tool.name.as_str();
    rule.can_match(&ACTION.entity(name), &ACTION.entity(tool.mode.as_str()))
        && allows_tool(rule, name, tool.name.server())
}

/// Whether it is about calls of a core action.
fn is_about_core(rule: &Rule) -> bool {
    Action::ALL.into_iter().any(|action| {
        rule.can_match(&ACTION.entity(action.name()), &ACTION.entity(CORE_GROUP))
            && match has_path(action) {
                true => allows_paths(&rule.policy.resource_constraint()),
                false => allows_tool(rule, action.name(), CORE_SERVER),
            }
    })
}

fn allows_tool(rule: &Rule, name: &str, server: &str) -> bool {
    let (tool, server) = (TOOL.entity(name), SERVER.entity(server));
    let is_in = |above: &EntityUid| *above == tool || *above == server;
    allows(&rule.policy.resource_constraint(), &tool, is_in)
}

/// Whether a constraint allows any path.
fn allows_paths(constraint: &ResourceConstraint) -> bool {
    let path = PATH.entity("/sandbox");
    match constraint {
        ResourceConstraint::Any => true,
        ResourceConstraint::Eq(one) | ResourceConstraint::In(one) => {
            one.type_name() == path.type_name()
        }
        ResourceConstraint::Is(kind) | ResourceConstraint::IsIn(kind, _) => {
            kind == path.type_name()
        }
    }
}

/// What is wrong with the arguments that a policy makes erasable.
pub(crate) fn wrong(rule: &Rule, tools: &[ToolShape]) -> Vec<Finding> {
    if rule.erasable.is_empty() {
        return Vec::new();
    }
    if is_about_core(rule) {
        let message = "core actions have no erasable arguments (WRITE_FILE writes its content into a file, and READ_FILE \
                       returns it), and the head of this policy is about them too; name tools, or a server: \
                       `action == Action::\"SERVER.TOOL\"`, `resource in Server::\"SERVER\"`";
        return vec![rule.finding(Severity::Error, message)];
    }
    let mut findings = Vec::new();
    let read = rule.erasable.iter().filter(|name| rule.reads.touches(std::slice::from_ref(name)));
    findings.extend(read.map(|name| {
        let message = format!(
            "`{}` makes `{name}` erasable and reads it: policies do not see what is erasable, so every call with it would be \
             denied; take one of the two away",
            rule.name
        );
        rule.finding(Severity::Error, message)
    }));
    let about: Vec<&ToolShape> = tools.iter().filter(|tool| is_about(rule, tool)).collect();
    let names = about.iter().map(|tool| tool.name.as_str());
    // A tool that is off may have what no other one has.
    if !about.is_empty() && about.iter().all(|tool| tool.is_accepted) {
        let misspelled = |name: &&String| !about.iter().any(|tool| may_have(tool, name));
        findings.extend(rule.erasable.iter().filter(misspelled).map(|name| {
            let message = format!(
                "`@erasable` names `{name}`, and no such argument is in the schema of {}; correct it: it is the name of an \
                 argument and not a path into one",
                listed(names.clone())
            );
            rule.finding(Severity::Error, message)
        }));
    }
    if rule.policy.principal_constraint() != PrincipalConstraint::Any {
        let message = format!(
            "what `{}` makes erasable is so in calls of everyone, not only of the principals that its head names",
            rule.name
        );
        findings.push(rule.finding(Severity::Note, message));
    }
    findings
}

/// Whether a tool has an argument of this name, or can have it as far as can be told here.
fn may_have(tool: &ToolShape, name: &str) -> bool {
    let schema = &tool.input_schema;
    let is_open = |part: &str| schema.get(part).is_some_and(|it| *it != Value::Bool(false));
    tool.argument(name).is_some() || OTHER_PARTS.iter().any(|part| is_open(part))
}
