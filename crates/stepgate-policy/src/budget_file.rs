//! `budgets.toml`: the budgets of a directory, checked against the tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::tz::TimeZone;
use serde::Deserialize;
use stepgate_core::budget::{BudgetName, Per, Terms, WindowLength};
use stepgate_core::decimal::Decimal;
use stepgate_core::ids::PrincipalId;
use toml::Spanned;

use crate::budget::Budget;
use crate::directory::{Kind, SourceFile};
use crate::finding::{Finding, Severity, one_line};
use crate::limits::BUDGETS_MAX;
use crate::literal::Known;
use crate::shape::{Shape, ToolShape};
use crate::vocabulary::{GROUP, SERVER, TOOL};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetsFile {
    #[serde(default, rename = "budget")]
    budgets: BTreeMap<Spanned<String>, Entry>,
}

/// A budget as written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    tools: Option<BTreeSet<String>>,
    servers: Option<BTreeSet<String>>,
    argument: Option<String>,
    limit: toml::Value,
    per: Per,
    window: WindowLength,
    zone: Option<String>,
    #[serde(default)]
    principals: BTreeSet<String>,
    #[serde(default)]
    groups: BTreeSet<String>,
}

const FIELDS: &str = "a `[budget.NAME]` has `limit`, `per` (principal, group, session, tool, server or all) and \
                      `window` (minute, hour, day, week, month or ever), and may have `argument`, `tools`, `servers`, \
                      `principals`, `groups` and `zone`";

/// The budgets of the files. There is one such file in a directory.
pub(crate) fn read(
    files: &[SourceFile],
    known: &Known<'_>,
    findings: &mut Vec<Finding>,
) -> Vec<Budget> {
    let mut budgets = Vec::new();
    for file in files.iter().filter(|file| file.kind == Kind::Budgets) {
        let parsed: BudgetsFile = match toml::from_str(&file.text) {
            Ok(parsed) => parsed,
            Err(error) => {
                let message =
                    format!("not a file of budgets: {}; {FIELDS}", one_line(error.message()));
                findings.push(file.error(error.span().map(|span| span.start), message));
                continue;
            }
        };
        if parsed.budgets.len() > BUDGETS_MAX {
            let message = format!("more than {BUDGETS_MAX} budgets; join some");
            findings.push(file.error(None, message));
            continue;
        }
        for (name, entry) in parsed.budgets {
            let start = name.span().start;
            match budget_of(name.get_ref(), entry) {
                Ok(budget) => {
                    check(&budget, start, file, known, findings);
                    budgets.push(budget);
                }
                Err(why) => {
                    let message = format!("the budget `{}`: {why}", name.get_ref());
                    findings.push(file.error(Some(start), message));
                }
            }
        }
    }
    budgets
}

fn budget_of(name: &str, entry: Entry) -> Result<Budget, String> {
    let name = BudgetName::parse(name).map_err(|error| error.to_string())?;
    let Entry { tools, servers, argument, limit, per, window, zone, principals, groups } = entry;
    let limit = limit_of(&limit)?;
    let zone = match zone {
        None => Terms::UTC,
        Some(name) => TimeZone::get(&name)
            .map_err(|_| format!("`{name}` is not a time zone: write it like `Europe/Berlin`"))?,
    };
    for (names, of) in [(&tools, "tools"), (&servers, "servers")] {
        if names.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(format!(
                "`{of}` is empty, so nothing is covered; name some, or leave it out"
            ));
        }
    }
    if per == Per::Group && (groups.is_empty() || !principals.is_empty()) {
        return Err("`per = \"group\"` needs `groups`, the groups that have an account, and no `principals`".into());
    }
    let principals = principals.iter().map(|name| PrincipalId::parse(name));
    let principals: Result<_, _> = principals.collect();
    Ok(Budget {
        terms: Arc::new(Terms { name, argument, limit, per, window, zone }),
        tools: tools.unwrap_or_default(),
        servers: servers.unwrap_or_default(),
        principals: principals.map_err(|error| error.to_string())?,
        groups,
    })
}

/// Names that do not exist, and tools whose argument cannot be added up.
fn check(
    budget: &Budget,
    start: usize,
    file: &SourceFile,
    known: &Known<'_>,
    findings: &mut Vec<Finding>,
) {
    let name = &budget.terms.name;
    let tools = budget.tools.iter().map(|tool| TOOL.entity(tool));
    let servers = budget.servers.iter().map(|server| SERVER.entity(server));
    let groups = budget.groups.iter().map(|group| GROUP.entity(group));
    for entity in tools.chain(servers).chain(groups) {
        if let Some(why) = known.refusal(&entity) {
            findings.push(file.error(Some(start), format!("the budget `{name}`: {why}")));
        }
    }
    let Some(argument) = &budget.terms.argument else { return };
    let covered = known.tools.iter().filter(|tool| tool.is_accepted && budget.is_about(&tool.name));
    for tool in covered {
        let Some(why) = trouble_with(argument, tool) else { continue };
        let message = format!("the budget `{name}`: {why}");
        // A server may get tools without the argument at any time. Their calls are denied.
        let mut finding = file.error(Some(start), message);
        if !budget.tools.contains(tool.name.as_str()) {
            finding.severity = Severity::Warning;
            finding.message +=
                "; every call of it is denied: name the tools that have it in `tools`";
        }
        findings.push(finding);
    }
}

/// A limit: a text, so that a number with decimals stays exact, or a whole number.
fn limit_of(limit: &toml::Value) -> Result<Decimal, String> {
    let text = match limit {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_)
        | toml::Value::Array(_)
        | toml::Value::Table(_) => {
            return Err("`limit` is a text like \"100.00\", or a whole number".to_owned());
        }
    };
    let limit = Decimal::parse(&text).map_err(|why| format!("the limit `{text}` is {why}"))?;
    match limit > Decimal::ZERO {
        true => Ok(limit),
        false => Err(format!("the limit `{text}` is not above zero; write a `forbid` instead")),
    }
}

/// Why an argument of a tool cannot be added up.
fn trouble_with(argument: &str, tool: &ToolShape) -> Option<String> {
    let (record, tool) = (tool.args(), &tool.name);
    let Some(attribute) = record.attributes.get(argument) else {
        return Some(format!("`{tool}` has no argument `{argument}`"));
    };
    match &attribute.seen {
        Ok(Shape::Long | Shape::Decimal) => None,
        Ok(Shape::String | Shape::Bool | Shape::Set(_) | Shape::Record(_)) => {
            Some(format!("the argument `{argument}` of `{tool}` is not a number"))
        }
        Err(cause) => Some(format!("the argument `{argument}` of `{tool}` is {}", cause.as_str())),
    }
}
