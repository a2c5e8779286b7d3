//! Test cases: the decisions that the policies of a directory must make, or the directory is not loaded.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use stepgate_core::action::Action;
use stepgate_core::budget::BudgetName;
use stepgate_core::call::{Call, ServerCall};
use stepgate_core::decimal::Decimal;
use stepgate_core::facts::Facts;
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::Flow;
use stepgate_core::origin::{self, Origin};
use stepgate_core::ports::{Policy, PolicyDecision, PolicyRequest};
use stepgate_core::tool::{Standing, Tool};
use toml::Spanned;

use crate::answer::Verdict;
use crate::directory::{Kind, SourceFile};
use crate::finding::{FilePosition, Finding, Severity, one_line};
use crate::limits::CASES_MAX;
use crate::literal::Known;
use crate::set::PolicySet;
use crate::shape::ToolShape;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CasesFile {
    #[serde(default, rename = "case")]
    cases: Vec<Entry>,
}

/// A case as written in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    principal: String,
    action: String,
    #[serde(default)]
    args: toml::Table,
    /// The groups that the principal is in.
    #[serde(default)]
    groups: BTreeSet<String>,
    /// The labels of the session.
    #[serde(default)]
    labels: BTreeSet<String>,
    /// The open windows.
    #[serde(default)]
    schedule: BTreeSet<String>,
    /// Where the call's targets come from; from the agent where it is left out.
    targets: Option<BTreeSet<String>>,
    /// Where the addresses in the other arguments come from; there is none where it is left out.
    addresses: Option<BTreeSet<String>>,
    /// How many steps the session had.
    #[serde(default)]
    steps: u64,
    /// The windows that were open when the session was opened.
    #[serde(default)]
    opened: BTreeSet<String>,
    /// What is used of budgets.
    #[serde(default)]
    used: BTreeMap<String, Decimal>,
    expect: Verdict,
    caps: Option<BTreeMap<String, i64>>,
}

/// A case that can be run.
pub(crate) struct Case {
    file: String,
    place: FilePosition,
    name: String,
    principal_id: PrincipalId,
    action: String,
    args: Map<String, Value>,
    /// What its file says beside the call.
    facts: Facts,
    expect: Verdict,
    caps: Option<BTreeMap<String, i64>>,
}

/// The names that a case can state something about.
pub(crate) struct CaseNames<'a> {
    pub(crate) known: Known<'a>,
    pub(crate) budgets: BTreeSet<BudgetName>,
}

/// The cases of all files, in order.
pub(crate) fn read(
    files: &[SourceFile],
    shown: &str,
    names: &CaseNames<'_>,
    findings: &mut Vec<Finding>,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for file in files.iter().filter(|file| file.kind == Kind::Cases) {
        cases.extend(read_file(file, names, findings));
    }
    if cases.len() > CASES_MAX {
        let message = format!("more than {CASES_MAX} cases; remove some");
        findings.push(Finding::of_file(Severity::Error, shown, message));
        cases.clear();
    }
    cases
}

fn read_file(file: &SourceFile, names: &CaseNames<'_>, findings: &mut Vec<Finding>) -> Vec<Case> {
    let parsed: CasesFile = match toml::from_str(&file.text) {
        Ok(parsed) => parsed,
        Err(error) => {
            let message = format!(
                "not a file of cases: {}; a `[[case]]` has `name`, `principal`, `action`, `args`, \
                 `groups`, `labels`, `schedule`, `targets`, `addresses`, `steps`, `opened`, `used`, \
                 `expect` and, for a tool, `caps`",
                one_line(error.message())
            );
            findings.push(file.error(error.span().map(|span| span.start), message));
            return Vec::new();
        }
    };
    let mut taken = HashSet::new();
    let mut cases = Vec::new();
    for entry in parsed.cases {
        let start = entry.name.span().start;
        let mut refuse = |message: String| findings.push(file.error(Some(start), message));
        if !taken.insert(entry.name.get_ref().clone()) {
            refuse(format!("the case `{}` is there twice; rename one", entry.name.get_ref()));
        }
        match prepared(file, start, names, entry) {
            Ok(case) => cases.push(case),
            Err(message) => refuse(message),
        }
    }
    cases
}

fn prepared(
    file: &SourceFile,
    start: usize,
    names: &CaseNames<'_>,
    entry: Entry,
) -> Result<Case, String> {
    let facts = facts(&entry, names);
    let name = entry.name.into_inner();
    let wrong = |what: String| format!("the case `{name}`: {what}");
    let facts = facts.map_err(wrong)?;
    let principal_id =
        PrincipalId::parse(&entry.principal).map_err(|error| wrong(error.to_string()))?;
    let args = entry.args.into_iter().map(|(name, value)| Some((name, json(value)?)));
    let args: Option<Map<String, Value>> = args.collect();
    let args = args.ok_or_else(|| {
        wrong("`args` holds a date or a number that JSON cannot say; write a string".to_owned())
    })?;
    Ok(Case {
        file: file.shown.clone(),
        place: FilePosition::of_offset(&file.text, start),
        principal_id,
        action: entry.action,
        args,
        facts,
        expect: entry.expect,
        caps: entry.caps,
        name,
    })
}

/// What a case says beside its call. A name that does not exist would make the case meaningless.
fn facts(entry: &Entry, names: &CaseNames<'_>) -> Result<Facts, String> {
    let unknown = |kind: &str, name: &str| format!("there is no {kind} `{name}`; correct it");
    let unknown_budget = |name: &&String| !names.budgets.iter().any(|it| it.as_str() == **name);
    if let Some(budget) = entry.used.keys().find(unknown_budget) {
        return Err(unknown("budget", budget));
    }
    let (known, names) = (&names.known, names.known.names);
    if let Some(group) = entry.groups.difference(&names.groups).next() {
        return Err(unknown("group", group));
    }
    if let Some(window) =
        entry.schedule.union(&entry.opened).find(|it| !names.windows.contains(*it))
    {
        return Err(unknown("window", window));
    }
    let label = |text: &String| {
        let known = names.labels.iter().find(|label| label.as_str() == text);
        known.cloned().ok_or_else(|| unknown("label", text))
    };
    let origins = |texts: &BTreeSet<String>| origins(texts, known);
    Ok(Facts {
        groups: entry.groups.clone(),
        labels: entry.labels.iter().map(label).collect::<Result<_, _>>()?,
        schedule: entry.schedule.clone(),
        opened: Some(entry.opened.clone()),
        targets: entry.targets.as_ref().map_or_else(|| Ok(origin::agents()), origins)?,
        addresses: entry.addresses.as_ref().map_or_else(|| Ok(origin::none()), origins)?,
        steps: Some(entry.steps),
        used: entry.used.clone(),
        ..Facts::default()
    })
}

/// These origins, with those that include them.
fn origins(texts: &BTreeSet<String>, known: &Known<'_>) -> Result<BTreeSet<Origin>, String> {
    let origin = |text: &String| match known.wrong_origin(text) {
        Some(why) => Err(why),
        None => Origin::parse(text).map_err(|error| error.to_string()),
    };
    let origins: BTreeSet<Origin> = texts.iter().map(origin).collect::<Result<_, _>>()?;
    Ok(origin::widened(&origins))
}

/// The value in JSON, which has no dates and no infinity.
fn json(value: toml::Value) -> Option<Value> {
    match value {
        toml::Value::String(text) => Some(text.into()),
        toml::Value::Integer(number) => Some(number.into()),
        toml::Value::Float(number) => serde_json::Number::from_f64(number).map(Value::Number),
        toml::Value::Boolean(truth) => Some(truth.into()),
        toml::Value::Datetime(_) => None,
        toml::Value::Array(values) => values.into_iter().map(json).collect(),
        toml::Value::Table(members) => {
            let members = members.into_iter().map(|(name, value)| Some((name, json(value)?)));
            members.collect::<Option<Map<String, Value>>>().map(Value::Object)
        }
    }
}

impl Case {
    /// Runs the case: a finding where the policies do not decide as it says.
    pub(crate) fn run(&self, set: &PolicySet, tools: &[ToolShape]) -> Option<Finding> {
        if !self.can_be_tried(tools) {
            let message = format!(
                "the case `{}` is not tried: `{}` is off, or its definition is not accepted",
                self.name, self.action
            );
            return Some(Finding::at(Severity::Warning, &self.file, Some(self.place), message));
        }
        let message = match self.call(tools) {
            Ok(call) => {
                // As when the gate asks: redacted arguments are digests.
                let call = call.written();
                let flow = self.tool(tools).map(|tool| tool.flow.clone());
                let Flow { reads, sends, .. } = flow.unwrap_or_default();
                let facts = Facts { reads, sends, ..self.facts.clone() };
                let principal_id = &self.principal_id;
                let request = PolicyRequest { principal_id, call: &call, facts: &facts };
                self.mismatch(&set.decide(request))?
            }
            Err(message) => message,
        };
        let message = format!("the case `{}`: {message}", self.name);
        Some(Finding::at(Severity::Error, &self.file, Some(self.place), message))
    }

    /// Whether its action is one that an operator has accepted.
    pub(crate) fn can_be_tried(&self, tools: &[ToolShape]) -> bool {
        self.tool(tools).is_none_or(|tool| tool.is_accepted)
    }

    fn tool<'a>(&self, tools: &'a [ToolShape]) -> Option<&'a ToolShape> {
        tools.iter().find(|tool| tool.name.as_str() == self.action)
    }

    fn mismatch(&self, decision: &PolicyDecision) -> Option<String> {
        let decided_by = match decision.policies.as_slice() {
            [] => "no policy".to_owned(),
            policies => policies.join(", "),
        };
        let got = Verdict::of(decision);
        if got != self.expect {
            return Some(format!(
                "expected {}, got {} (by {decided_by}); correct the policy or the case",
                self.expect.as_str(),
                got.as_str(),
            ));
        }
        let expected = self.caps.as_ref().filter(|caps| **caps != decision.caps)?;
        Some(format!(
            "expected caps {}, got caps {} (by {decided_by}); correct the policy or the case",
            listed(expected),
            listed(&decision.caps),
        ))
    }

    fn call(&self, tools: &[ToolShape]) -> Result<Call, String> {
        if let Some(action) = Action::parse(&self.action) {
            let call = action.call(&self.args).map(Call::Core);
            return call.map_err(|error| {
                format!("no call of {} has these args: {error}; correct them", self.action)
            });
        }
        let tool = self.tool(tools).ok_or_else(|| {
            format!(
                "there is no action or tool `{}`; configure the tool first, or correct the name",
                self.action
            )
        })?;
        self.check_names(tool)?;
        // Policies can decide on it, but it cannot be called.
        let tool = tool.tool(Standing::Gone, Tool::gone(tool.name.clone()).contract);
        Ok(Call::Server(ServerCall { tool: Arc::new(tool), args: self.args.clone() }))
    }

    /// A misspelled argument would make the case meaningless.
    fn check_names(&self, tool: &ToolShape) -> Result<(), String> {
        if let Some(unknown) = self.args.keys().find(|name| tool.argument(name).is_none()) {
            return Err(format!("`{}` has no argument `{unknown}`; correct `args`", tool.name));
        }
        if let Some(missing) = tool.required().find(|name| !self.args.contains_key(*name)) {
            return Err(format!(
                "`{}` needs the argument `{missing}`; add it to `args`",
                tool.name
            ));
        }
        Ok(())
    }
}

fn listed(caps: &BTreeMap<String, i64>) -> String {
    let caps: Vec<String> = caps.iter().map(|(name, max)| format!("{name} <= {max}")).collect();
    format!("`{}`", caps.join("; "))
}
