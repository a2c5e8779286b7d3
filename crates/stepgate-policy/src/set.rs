//! A directory of policies as an immutable set, and the set's decision.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use cedar_policy::EntityUid;
use stepgate_core::budget::Covering;
use stepgate_core::call::{Call, ServerCall, exceeds, lowered};
use stepgate_core::digest::Digest;
use stepgate_core::facts::{FactNeeds, Facts};
use stepgate_core::ids::PrincipalId;
use stepgate_core::origin::Origin;
use stepgate_core::ports::{
    Payer, Policy, PolicyDecision, PolicyErasable, PolicyRequest, Prospect,
};
use stepgate_core::result_pointer::pointer_to;
use stepgate_core::tool::Tool;

use crate::answer::{CedarAnswer, Verdict};
use crate::budget::{self, Budget, Refusal};
use crate::directory::SourceFile;
use crate::evaluate::Evaluation;
use crate::finding::{Finding, LoadError, Severity};
use crate::question::{Asked, Beside, CedarQuestion, Unaskable, asked};
use crate::rule::{Effect, Rule};
use crate::subject::{Reach, Subject};
use crate::unseen::{self, ExplainedUnseen};
use crate::who::Who;

/// Validated policies whose cases hold. A set never changes.
pub struct PolicySet {
    pub(crate) digest: Digest,
    /// The file of the budgets, where there is one.
    pub(crate) budgets_file: Option<SourceFile>,
    pub(crate) budgets: Vec<Budget>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) entries: HashMap<String, Entry>,
    /// Whether any policy makes arguments erasable.
    pub(crate) has_erasable: bool,
    /// Every origin that policies can name, except that of the agent.
    pub(crate) origins: BTreeSet<Origin>,
    pub(crate) warnings: Vec<Finding>,
    pub(crate) cases: usize,
}

/// A rule as people read it.
pub struct ShownRule<'a> {
    /// Its name in decisions.
    pub name: &'a str,
    /// Whether it permits or forbids.
    pub effect: Effect,
    /// Why a person must decide, where it matches.
    pub approval: Option<&'a str>,
    /// The arguments that it makes erasable.
    pub erasable: &'a BTreeSet<String>,
    /// The file.
    pub file: &'a str,
    /// The line where it begins.
    pub line: Option<usize>,
    /// Its text.
    pub text: String,
}

/// An action, with everything about it that does not depend on the call.
pub(crate) struct Entry {
    pub(crate) action: EntityUid,
    /// Only the policies whose scope can match the action, by their place in `PolicySet::rules`: evaluating the others
    /// would be useless.
    pub(crate) rules: Vec<usize>,
    pub(crate) subject: Subject,
    /// The facts that these policies read.
    pub(crate) needs: FactNeeds,
    /// The answer to every call of a core action, if its policies depend on nothing but the action. Then
    /// Cedar is not asked, which saves most of the cost of a decision.
    pub(crate) standing: Option<CedarAnswer>,
    /// The arguments that policies make erasable.
    pub(crate) erasable: BTreeSet<String>,
}

impl PolicySet {
    /// Refuses a set that makes arguments erasable, for a process that has nothing to encrypt them with.
    pub(crate) fn refuse_without_key(&self) -> Result<(), LoadError> {
        let Some(rule) = self.rules.iter().find(|rule| !rule.erasable.is_empty()) else {
            return Ok(());
        };
        let message = format!(
            "`{}` makes arguments erasable, and this process has no key to encrypt them with: where the store is in the data \
             directory, start Stepgate again, which makes `payload.key`; nodes of a shared store need the file that \
             `store.payload_key_file` names; see docs/erasure.md",
            rule.name
        );
        Err(LoadError { findings: vec![rule.finding(Severity::Error, message)] })
    }

    /// The digest of the files' names and texts.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The names of the policies, in the order of files and lines.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.name.as_str())
    }

    /// The rules as people read them, in the order of files and lines.
    pub fn shown(&self) -> impl Iterator<Item = ShownRule<'_>> {
        self.rules.iter().map(|rule| ShownRule {
            name: &rule.name,
            effect: rule.effect,
            approval: rule.approval.as_deref(),
            erasable: &rule.erasable,
            file: &rule.file,
            line: rule.place.map(|place| place.line),
            text: rule.policy.to_string(),
        })
    }

    /// The budgets, in the order of their names.
    pub fn all_budgets(&self) -> &[Budget] {
        &self.budgets
    }

    /// The names of the policies whose scope allows an action; none where the set does not know it.
    pub fn policies_for(&self, action: &str) -> impl Iterator<Item = &str> {
        let rules = self.entries.get(action).into_iter().flat_map(|entry| self.rules_of(entry));
        rules.map(|rule| rule.name.as_str())
    }

    /// Whether both sets have the same budgets, and the same policies for an action, whatever their names, order and
    /// reasons.
    pub fn decides_like(&self, other: &Self, action: &str) -> bool {
        let rules = |set: &Self| -> Option<BTreeSet<String>> {
            let entry = set.entries.get(action)?;
            set.rules_of(entry).map(Rule::meaning).collect()
        };
        let own = rules(self);
        own.is_some() && own == rules(other) && self.budgets == other.budgets
    }

    /// The texts of all policy files, one after the other.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut last = None;
        for rule in &self.rules {
            if last.replace(&rule.file) != Some(&rule.file) {
                text.push_str(rule.source.trim_end());
                text.push_str("\n\n");
            }
        }
        text
    }

    /// How many cases were run.
    pub fn cases(&self) -> usize {
        self.cases
    }

    /// Warnings for the operator, although the set could be loaded.
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    /// The questions about a call, with the entry of its action.
    pub(crate) fn ask(
        &self,
        who: &Who,
        call: &Call,
        facts: &Facts,
    ) -> Result<(&Entry, Asked), Unaskable> {
        let entry = self.entries.get(call.name()).ok_or(Unaskable::UnknownAction)?;
        let (targets, needs) = (&facts.targets, entry.needs);
        let (origins, budgets) = (&self.origins, self.budgets.as_slice());
        let beside = Beside { facts, targets, needs, origins, budgets };
        let asked = asked(&entry.action, &entry.subject, who, call, beside)?;
        Ok((entry, asked))
    }

    pub(crate) fn answer(&self, entry: &Entry, question: &CedarQuestion) -> CedarAnswer {
        let mut evaluation = Evaluation::of(question);
        let rules = self.rules_of(entry);
        CedarAnswer::of(rules.map(|rule| (rule, rule.condition.outcome(&mut evaluation))))
    }

    /// The policies whose scope can match a call.
    pub(crate) fn candidates<'a>(
        &'a self,
        entry: &'a Entry,
        who: &'a Who,
    ) -> impl Iterator<Item = &'a Rule> + Clone {
        let rules = self.rules_of(entry);
        rules.filter(move |rule| rule.reach(who, &entry.subject) > Reach::None)
    }

    /// The policies whose scope allows an action, in the order of files and lines.
    pub(crate) fn rules_of<'a>(
        &'a self,
        entry: &'a Entry,
    ) -> impl Iterator<Item = &'a Rule> + Clone {
        entry.rules.iter().filter_map(|index| self.rules.get(*index))
    }

    /// Arguments of a call that policies cannot see, with the policies that read them.
    pub(crate) fn unseen(&self, entry: &Entry, who: &Who, asked: &Asked) -> Vec<ExplainedUnseen> {
        if asked.unseen.is_empty() {
            return Vec::new();
        }
        unseen::read_by(&asked.unseen, self.candidates(entry, who))
    }

    /// The answer to all questions about a call: each must permit it. If a policy reads an argument and
    /// cannot see it, the call is denied, whether or not the policy would match.
    fn answer_all(&self, entry: &Entry, who: &Who, asked: &Asked) -> CedarAnswer {
        let unseen = self.unseen(entry, who, asked);
        if let Some(detail) = unseen::refusal(&unseen) {
            let readers = unseen.into_iter().flat_map(|unseen| unseen.read_by).collect();
            return CedarAnswer::refuse(readers, detail);
        }
        let answers = asked.questions.iter().map(|question| self.answer(entry, question));
        answers.reduce(CedarAnswer::and).unwrap_or_default()
    }

    /// The answer about the call as asked, and about the call with its caps applied: both must permit it.
    /// `look` is called for each.
    pub(crate) fn judge<'a>(
        &'a self,
        who: &Who,
        call: &Call,
        facts: &Facts,
        mut look: impl FnMut(&'a Entry, &Call, &Asked),
    ) -> Result<CedarAnswer, Unaskable> {
        let (entry, mut asked) = self.ask(who, call, facts)?;
        let mut answer = self.answer_all(entry, who, &asked);
        look(entry, call, &asked);
        let mut priced = std::mem::take(&mut asked.priced);
        let mut current = Cow::Borrowed(call);
        // The loop ends: each round lowers an argument, and the number of caps is finite.
        while let Some(capped) = capped(&current, &answer) {
            let (entry, asked) = self.ask(who, &capped, facts)?;
            answer = answer.and(self.answer_all(entry, who, &asked));
            look(entry, &capped, &asked);
            priced = asked.priced;
            current = Cow::Owned(capped);
        }
        if let Some(detail) = default_above_cap(&answer.caps, &asked) {
            answer = CedarAnswer::refuse(answer.policies, detail);
        }
        // Of the call as it would be sent.
        match budget::due(&priced) {
            _ if answer.verdict == Verdict::Deny => {}
            Ok(due) => answer.due = due,
            Err(Refusal { budgets, detail }) => answer = CedarAnswer::refuse(budgets, detail),
        }
        answer.defaults = asked.defaults;
        Ok(answer)
    }
}

/// The call with its arguments lowered; none where no argument is lowered, or a cap cannot be applied.
fn capped(call: &Call, answer: &CedarAnswer) -> Option<Call> {
    if answer.verdict == Verdict::Deny || answer.caps.is_empty() {
        return None;
    }
    let Call::Server(ServerCall { tool, args }) = call else { return None };
    let args = lowered(args.clone(), &answer.caps).ok().filter(|lowered| lowered != args)?;
    Some(Call::Server(ServerCall { tool: Arc::clone(tool), args }))
}

/// Why a cap cannot hold: an omitted argument cannot be lowered, and the tool would use its default.
fn default_above_cap(caps: &BTreeMap<String, i64>, asked: &Asked) -> Option<String> {
    let is_above = |(name, max): &(&String, &i64)| {
        match asked.defaults.get(&pointer_to([name.as_str()])) {
            Some(default) => default.as_number().is_none_or(|number| exceeds(number, **max)),
            // A default that is unclear or redacted.
            None => {
                let mut unseen = asked.unseen.iter();
                unseen.any(|unseen| unseen.by_default && unseen.path == [name.as_str()])
            }
        }
    };
    let (name, max) = caps.iter().find(is_above)?;
    Some(format!(
        "the call omits `{name}`, and the tool's default for it is not within the cap of {max}"
    ))
}

impl fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicySet").field("digest", &self.digest).finish_non_exhaustive()
    }
}

impl Policy for PolicySet {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        let PolicyRequest { principal_id, call, facts } = request;
        let standing = self.entries.get(call.name()).and_then(|entry| entry.standing.clone());
        let answer = standing.unwrap_or_else(|| {
            let who = Who::of(principal_id, &facts.groups);
            let answer = self.judge(&who, call, facts, |_, _, _| {});
            answer.unwrap_or_else(|unaskable| match unaskable {
                Unaskable::OtherMode | Unaskable::OtherDefinition => {
                    CedarAnswer::refuse(BTreeSet::new(), unaskable.to_string())
                }
                Unaskable::UnknownAction | Unaskable::Values => CedarAnswer::default(),
            })
        });
        let erasable = match call {
            Call::Core(_) => PolicyErasable::default(),
            Call::Server(call) => self.erasable(&call.tool),
        };
        PolicyDecision { erasable, ..answer.into_decision(self.digest) }
    }

    fn needs(&self, action: &str) -> FactNeeds {
        self.entries.get(action).map(|entry| entry.needs).unwrap_or_default()
    }

    fn budgets(&self, payer: Payer<'_>, call: &Call) -> Vec<Covering> {
        let Call::Server(call) = call else { return Vec::new() };
        if self.budgets.is_empty() {
            return Vec::new();
        }
        let who = Who::of(payer.principal_id, payer.groups);
        let tool = &call.tool.name;
        let covering = self.budgets.iter().filter(|budget| budget.covers(&who, tool));
        covering.map(|budget| budget.covering(payer, tool)).collect()
    }

    fn erasable(&self, tool: &Tool) -> PolicyErasable {
        if !self.has_erasable {
            return PolicyErasable::default();
        }
        match self.entries.get(tool.name.as_str()) {
            Some(Entry { subject: Subject::Tool { mode, definition, .. }, erasable, .. })
                if *mode == tool.mode && *definition == Some(tool.definition_digest) =>
            {
                PolicyErasable::Named(erasable.clone())
            }
            // The heads of policies, and the names in them, were written for what the tool was.
            Some(_) | None => PolicyErasable::Every,
        }
    }

    fn has_erasable(&self) -> bool {
        self.has_erasable
    }

    fn prospect(&self, who: &PrincipalId, groups: &BTreeSet<String>, action: &str) -> Prospect {
        let Some(entry) = self.entries.get(action) else { return Prospect::default() };
        let who = Who::of(who, groups);
        let reaches = |effect| {
            let rules = self.rules_of(entry).filter(|rule| rule.effect == effect);
            rules.map(|rule| rule.reach(&who, &entry.subject)).max()
        };
        Prospect {
            could_permit: reaches(Effect::Permit) > Some(Reach::None)
                && reaches(Effect::Forbid) < Some(Reach::EveryCall),
            could_ask: self.candidates(entry, &who).any(|rule| rule.approval.is_some()),
        }
    }
}
