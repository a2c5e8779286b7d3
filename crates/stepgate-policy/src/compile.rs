//! From a directory to a set: read, name, validate, index, run the cases. All errors are reported, and a
//! single error prevents the set.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use cedar_policy::{Authorizer, Entities, Entity, PolicyId};
use stepgate_core::action::Action;

use crate::answer::CedarAnswer;
use crate::case;
use crate::directory::{self, Kind, SourceFile};
use crate::finding::{Finding, LoadError, Severity};
use crate::limits::{POLICIES_MAX, TOOLS_MAX};
use crate::nesting::STACK_BYTES;
use crate::rule::{self, Rule};
use crate::schema::{self, Vocabulary, group_of};
use crate::set::{Entry, PolicySet};
use crate::shape::{Record, ToolShape};
use crate::subject::Subject;
use crate::validate;

impl PolicySet {
    /// Reads, validates and tests the policies of a directory, for these tools.
    pub fn load(directory: &Path, tools: &[ToolShape]) -> Result<Self, LoadError> {
        compile(Source::Directory(directory), tools).into_set()
    }

    /// Validates policies that are in no file, for these tools. There are no cases.
    pub fn of_text(text: &str, tools: &[ToolShape]) -> Result<Self, LoadError> {
        compile(Source::Text(text), tools).into_set()
    }
}

/// Where policies come from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Directory(&'a Path),
    Text(&'a str),
}

impl Source<'_> {
    /// Its name in messages.
    fn shown(self) -> String {
        match self {
            Self::Directory(directory) => directory::shown_of(directory),
            Self::Text(_) => directory::TEXT_NAME.to_owned(),
        }
    }

    fn read(self, findings: &mut Vec<Finding>) -> Vec<SourceFile> {
        match self {
            Self::Directory(directory) => directory::read(directory, findings),
            Self::Text(text) => directory::file_of_text(text, findings),
        }
    }
}

/// A set, or why there is none.
pub(crate) struct Compiled {
    pub(crate) set: Option<PolicySet>,
    /// All findings; if there is a set, they are warnings and notes.
    pub(crate) findings: Vec<Finding>,
    /// How many cases were run.
    pub(crate) cases: usize,
}

impl Compiled {
    fn into_set(self) -> Result<PolicySet, LoadError> {
        let is_error = |finding: &Finding| finding.severity == Severity::Error;
        let Self { set, findings, .. } = self;
        set.ok_or_else(|| LoadError::new(findings.into_iter().filter(is_error).collect()))
    }
}

/// Makes a set, on a thread with a stack that is large enough for Cedar.
pub(crate) fn compile(source: Source<'_>, tools: &[ToolShape]) -> Compiled {
    let compiled = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("policies".into()).stack_size(STACK_BYTES);
        let running = thread
            .spawn_scoped(scope, || compile_here(source, tools))
            .map_err(|error| format!("no thread to read the policies: {error}; try again"))?;
        running.join().map_err(|_| "reading the policies panicked; please report it".to_owned())
    });
    compiled.unwrap_or_else(|message: String| {
        let finding = Finding::of_file(Severity::Error, &source.shown(), message);
        Compiled { set: None, findings: vec![finding], cases: 0 }
    })
}

fn compile_here(source: Source<'_>, tools: &[ToolShape]) -> Compiled {
    let mut findings = Vec::new();
    let files = source.read(&mut findings);
    let shown = source.shown();
    let rules = read_rules(&files, &shown, &mut findings);
    check_tools(tools, &shown, &mut findings);
    let mut set = if has_errors(&findings) {
        None
    } else {
        match assemble(&files, rules, tools, &mut findings) {
            Ok(set) => Some(set),
            Err(message) => {
                findings.push(Finding::of_file(Severity::Error, &shown, message));
                None
            }
        }
    };
    let cases = case::read(&files, &shown, &mut findings);
    let mut tried = 0;
    if let Some(set) = set.as_ref().filter(|_| !has_errors(&findings)) {
        tried = cases.iter().filter(|case| case.can_be_tried(tools)).count();
        findings.extend(cases.iter().filter_map(|case| case.run(set, tools)));
    }
    findings.sort_by(|left, right| {
        (&left.file, left.line, left.column).cmp(&(&right.file, right.line, right.column))
    });
    findings.dedup();
    if has_errors(&findings) {
        set = None;
    }
    if let Some(set) = &mut set {
        set.warnings.clone_from(&findings);
        set.cases = tried;
    }
    Compiled { set, findings, cases: tried }
}

fn has_errors(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// The policies of all files, each with a unique name.
fn read_rules(files: &[SourceFile], shown: &str, findings: &mut Vec<Finding>) -> Vec<Rule> {
    let mut rules = Vec::new();
    for file in files.iter().filter(|file| file.kind == Kind::Policies) {
        rules.extend(rule::read(file, findings));
    }
    if rules.len() > POLICIES_MAX {
        let message = format!("more than {POLICIES_MAX} policies; join some");
        findings.push(Finding::of_file(Severity::Error, shown, message));
    }
    if rules.is_empty() && !has_errors(findings) {
        let message =
            "no policy here, so everything is denied; write a `permit` into a `*.cedar` file";
        findings.push(Finding::of_file(Severity::Warning, shown, message));
    }
    let mut firsts: HashMap<&str, &Rule> = HashMap::new();
    for rule in &rules {
        if let Some(first) = firsts.insert(&rule.name, rule) {
            let line = first.place.map_or(0, |place| place.line);
            let message = format!(
                "`@id(\"{}\")` is taken by {}:{line}; choose another name",
                rule.name, first.file
            );
            findings.push(rule.finding(Severity::Error, message));
        }
    }
    rules
}

fn check_tools(tools: &[ToolShape], shown: &str, findings: &mut Vec<Finding>) {
    let mut refuse = |message: String| {
        findings.push(Finding::of_file(Severity::Error, shown, message));
    };
    if tools.len() > TOOLS_MAX {
        refuse(format!("more than {TOOLS_MAX} tools are configured; configure fewer"));
    }
    let mut names = HashSet::new();
    for tool in tools {
        if !names.insert(&tool.name) {
            refuse(format!("the tool `{}` is configured twice; remove one", tool.name));
        }
    }
}

/// The validated set; its cases are not run yet.
fn assemble(
    files: &[SourceFile],
    rules: Vec<Rule>,
    tools: &[ToolShape],
    findings: &mut Vec<Finding>,
) -> Result<PolicySet, String> {
    let vocabulary = Vocabulary::new()?;
    let shapes: Vec<Record> = tools.iter().map(ToolShape::args).collect();
    let schema = schema::of_tools(tools, &shapes)?;
    validate::validate(schema, &vocabulary, &rules, tools, &shapes, findings)?;
    let entries = index(&vocabulary, &rules, tools, shapes)?;
    let rule_of =
        rules.iter().zip(0..).map(|(rule, index)| (PolicyId::new(&rule.name), index)).collect();
    Ok(PolicySet {
        digest: directory::digest_of(files.iter().map(|file| (file.name.as_str(), &*file.text))),
        rules,
        rule_of,
        entries,
        vocabulary,
        authorizer: Authorizer::new(),
        warnings: Vec::new(),
        cases: 0,
    })
}

/// Every action, with everything that is known before a call.
pub(crate) fn index(
    vocabulary: &Vocabulary,
    rules: &[Rule],
    tools: &[ToolShape],
    shapes: Vec<Record>,
) -> Result<HashMap<String, Entry>, String> {
    let mut slices = Slices { vocabulary, rules, known: BTreeMap::new() };
    let mut entries = HashMap::new();
    for action in Action::ALL {
        let subject = Subject::Core { action: action_entity(vocabulary, action.name(), None) };
        entries.insert(action.name().to_owned(), slices.entry(action.name(), None, subject)?);
    }
    for (tool, shape) in tools.iter().zip(shapes) {
        let name = tool.name.as_str();
        let resource = vocabulary.tool(name);
        let server = HashSet::from([vocabulary.server(tool.name.server())]);
        let entities = Entities::from_entities(
            [
                action_entity(vocabulary, name, Some(tool)),
                Entity::new_no_attrs(resource.clone(), server),
            ],
            None,
        );
        let entities = entities.map_err(|error| error.to_string())?;
        let definition = tool.is_accepted.then_some(tool.definition_digest);
        let subject =
            Subject::Tool { mode: tool.mode, definition, resource, entities, args: shape };
        entries.insert(name.to_owned(), slices.entry(name, Some(tool), subject)?);
    }
    Ok(entries)
}

fn action_entity(vocabulary: &Vocabulary, name: &str, tool: Option<&ToolShape>) -> Entity {
    let group = vocabulary.action(group_of(tool.map(|tool| tool.mode)));
    Entity::new_no_attrs(vocabulary.action(name), HashSet::from([group]))
}

/// The policies that each action can match; actions with the same policies share them.
struct Slices<'a> {
    vocabulary: &'a Vocabulary,
    rules: &'a [Rule],
    known: BTreeMap<Vec<usize>, Arc<cedar_policy::PolicySet>>,
}

impl Slices<'_> {
    fn entry(
        &mut self,
        name: &str,
        tool: Option<&ToolShape>,
        subject: Subject,
    ) -> Result<Entry, String> {
        let action = self.vocabulary.action(name);
        let group = self.vocabulary.action(group_of(tool.map(|tool| tool.mode)));
        let matching =
            self.rules.iter().enumerate().filter(|(_, rule)| rule.can_match(&action, &group));
        let (rules, policies): (Vec<usize>, Vec<_>) =
            matching.map(|(index, rule)| (index, &rule.policy)).unzip();
        let policies = match self.known.get(&rules) {
            Some(policies) => Arc::clone(policies),
            None => {
                let set = cedar_policy::PolicySet::from_policies(policies.into_iter().cloned());
                let set = Arc::new(set.map_err(|error| error.to_string())?);
                self.known.insert(rules.clone(), Arc::clone(&set));
                set
            }
        };
        let asked = rules.iter().filter_map(|index| self.rules.get(*index));
        let standing = match &subject {
            Subject::Core { .. } => CedarAnswer::standing(asked),
            Subject::Tool { .. } => None,
        };
        Ok(Entry { action, policies, rules, subject, standing })
    }
}
