//! From a directory to a set: read, name, validate, index, run the cases. All errors are reported, and a
//! single error prevents the set.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::LazyLock;

use cedar_policy::{Entities, Entity};
use serde::Serialize;
use stepgate_core::action::Action;
use stepgate_core::digest::Digest;
use stepgate_core::facts::{FactNames, FactNeeds};

use crate::answer::CedarAnswer;
use crate::budget::Budget;
use crate::budget_file;
use crate::case::{self, CaseNames};
use crate::directory::{self, Kind, SourceFile};
use crate::erasable;
use crate::evaluate::Condition;
use crate::finding::{Finding, LoadError, Severity};
use crate::limits::{POLICIES_MAX, TOOLS_MAX};
use crate::literal::Known;
use crate::nesting::STACK_BYTES;
use crate::rule::{self, Rule};
use crate::schema::{self, CORE_GROUP};
use crate::set::{Entry, PolicySet};
use crate::shape::{Record, ToolShape};
use crate::subject::Subject;
use crate::validate;
use crate::vocabulary::{ACTION, SERVER, TOOL};

impl PolicySet {
    /// Reads, validates and tests the policies of a directory, for these tools.
    pub fn load<'a>(
        directory: &Path,
        nameable: impl Into<Nameable<'a>>,
    ) -> Result<Self, LoadError> {
        compile_directory(directory, nameable.into()).into_set()
    }

    /// Validates policies that are in no file, for these tools, with the budgets of this set. There are no cases.
    pub fn with_text<'a>(
        &self,
        text: &str,
        nameable: impl Into<Nameable<'a>>,
    ) -> Result<Self, LoadError> {
        let mut findings = Vec::new();
        let files = directory::file_of_text(text, self.budgets_file.as_ref(), &mut findings);
        compile(directory::TEXT_NAME, &files, findings, nameable.into()).into_set()
    }
}

/// What policies can name: the tools, and the names of facts.
#[derive(Clone, Copy, Debug)]
pub struct Nameable<'a> {
    /// The tools.
    pub tools: &'a [ToolShape],
    /// Groups, labels, windows and directories.
    pub facts: &'a FactNames,
}

/// Tools alone, without any fact.
impl<'a, T: AsRef<[ToolShape]> + ?Sized> From<&'a T> for Nameable<'a> {
    fn from(tools: &'a T) -> Self {
        static NONE: LazyLock<FactNames> = LazyLock::new(FactNames::default);
        Self { tools: tools.as_ref(), facts: &NONE }
    }
}

/// The result of checking a directory of policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Errors, warnings and notes, in the order of files and lines.
    pub findings: Vec<Finding>,
    /// How many policies there are, if the set could be loaded.
    pub policies: usize,
    /// How many cases were run; none where the policies themselves have errors.
    pub cases: usize,
    /// Digest of the set, if it could be loaded.
    pub policy_hash: Option<Digest>,
}

impl Checked {
    /// Whether the directory can be loaded.
    pub fn is_loadable(&self) -> bool {
        !self.findings.iter().any(Finding::is_error)
    }
}

/// Checks a directory: syntax, annotations, schema, policies that can never apply, cases.
pub fn check<'a>(directory: &Path, nameable: impl Into<Nameable<'a>>) -> Checked {
    let compiled = compile_directory(directory, nameable.into());
    Checked {
        policies: compiled.set.as_ref().map_or(0, |set| set.policies().count()),
        policy_hash: compiled.set.as_ref().map(|set| set.digest()),
        findings: compiled.findings,
        cases: compiled.cases,
    }
}

/// A set, or why there is none.
struct Compiled {
    set: Option<PolicySet>,
    /// All findings; if there is a set, they are warnings and notes.
    findings: Vec<Finding>,
    cases: usize,
}

impl Compiled {
    fn into_set(self) -> Result<PolicySet, LoadError> {
        let Self { set, findings, .. } = self;
        set.ok_or_else(|| LoadError {
            findings: findings.into_iter().filter(Finding::is_error).collect(),
        })
    }
}

fn compile_directory(directory: &Path, nameable: Nameable<'_>) -> Compiled {
    let mut findings = Vec::new();
    let files = directory::read(directory, &mut findings);
    compile(&directory::shown_of(directory), &files, findings, nameable)
}

/// Makes a set of these files, on a thread with a stack that is large enough for Cedar. `shown` is the name
/// of the whole in messages; the findings are those of reading the files.
fn compile(
    shown: &str,
    files: &[SourceFile],
    findings: Vec<Finding>,
    nameable: Nameable<'_>,
) -> Compiled {
    let compiled = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("policies".into()).stack_size(STACK_BYTES);
        let running = thread
            .spawn_scoped(scope, || compile_here(shown, files, findings, nameable))
            .map_err(|error| format!("no thread to read the policies: {error}; try again"))?;
        running.join().map_err(|_| "reading the policies panicked; please report it".to_owned())
    });
    compiled.unwrap_or_else(|message: String| {
        let finding = Finding::of_file(Severity::Error, shown, message);
        Compiled { set: None, findings: vec![finding], cases: 0 }
    })
}

fn compile_here(
    shown: &str,
    files: &[SourceFile],
    mut findings: Vec<Finding>,
    nameable: Nameable<'_>,
) -> Compiled {
    let Nameable { tools, facts } = nameable;
    let rules = read_rules(files, shown, &mut findings);
    check_tools(tools, shown, &mut findings);
    let tools = &*erasable::hidden_in(&rules, tools);
    let nameable = Nameable { tools, facts };
    let budgets = budget_file::read(files, &Known::new(tools, facts), &mut findings);
    let names = budgets.iter().map(|budget| budget.terms.name.clone()).collect();
    let mut set = None;
    if !has_errors(&findings) {
        match assemble(files, rules, budgets, nameable, &mut findings) {
            Ok(assembled) => set = Some(assembled),
            Err(message) => findings.push(Finding::of_file(Severity::Error, shown, message)),
        }
    }
    let names = CaseNames { known: Known::new(tools, facts), budgets: names };
    let cases = case::read(files, shown, &names, &mut findings);
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
    findings.iter().any(Finding::is_error)
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
    mut rules: Vec<Rule>,
    budgets: Vec<Budget>,
    Nameable { tools, facts }: Nameable<'_>,
    findings: &mut Vec<Finding>,
) -> Result<PolicySet, String> {
    let shapes: Vec<Record> = tools.iter().map(ToolShape::args).collect();
    let schema = schema::of_tools(tools, &shapes, &budgets)?;
    let known = Known::new(tools, facts);
    validate::validate(schema, &rules, &shapes, &known, findings)?;
    let origins = known.origins();
    Condition::number(rules.iter_mut().map(|rule| &mut rule.condition));
    let entries = index(&rules, tools, shapes)?;
    let has_erasable = rules.iter().any(|rule| !rule.erasable.is_empty());
    Ok(PolicySet {
        digest: directory::digest_of(files.iter().map(|file| (file.name.as_str(), &*file.text))),
        budgets_file: files.iter().find(|file| file.kind == Kind::Budgets).cloned(),
        budgets,
        rules,
        entries,
        has_erasable,
        origins,
        warnings: Vec::new(),
        cases: 0,
    })
}

/// Every action, with everything that is known before a call.
pub(crate) fn index(
    rules: &[Rule],
    tools: &[ToolShape],
    shapes: Vec<Record>,
) -> Result<HashMap<String, Entry>, String> {
    let mut entries = HashMap::new();
    for action in Action::ALL {
        let subject = Subject::Core { action: action_entity(action.name(), CORE_GROUP) };
        entries.insert(action.name().to_owned(), entry(rules, action.name(), CORE_GROUP, subject));
    }
    for (tool, shape) in tools.iter().zip(shapes) {
        let (name, group) = (tool.name.as_str(), tool.mode.as_str());
        let resource = TOOL.entity(name);
        let server = HashSet::from([SERVER.entity(tool.name.server())]);
        let entities = Entities::from_entities(
            [action_entity(name, group), Entity::new_no_attrs(resource.clone(), server)],
            None,
        );
        let entities = entities.map_err(|error| error.to_string())?;
        let definition = tool.is_accepted.then_some(tool.definition_digest);
        let subject =
            Subject::Tool { mode: tool.mode, definition, resource, entities, args: shape };
        let erasable = erasable::of_tool(rules, tool);
        let entry = Entry { erasable, ..entry(rules, name, group, subject) };
        entries.insert(name.to_owned(), entry);
    }
    Ok(entries)
}

fn action_entity(name: &str, group: &str) -> Entity {
    Entity::new_no_attrs(ACTION.entity(name), HashSet::from([ACTION.entity(group)]))
}

/// An action with the policies that can match it.
fn entry(rules: &[Rule], name: &str, group: &str, subject: Subject) -> Entry {
    let (action, group) = (ACTION.entity(name), ACTION.entity(group));
    let matching = rules.iter().enumerate().filter(|(_, rule)| rule.can_match(&action, &group));
    let (places, matching): (Vec<usize>, Vec<&Rule>) = matching.unzip();
    let needs = matching.iter().map(|rule| rule.needs).fold(FactNeeds::default(), FactNeeds::or);
    let standing = match &subject {
        Subject::Core { .. } => CedarAnswer::standing(matching.into_iter()),
        Subject::Tool { .. } => None,
    };
    Entry { action, rules: places, subject, needs, standing, erasable: BTreeSet::new() }
}
