//! A directory of policies as a set that cannot change, and the set's decision.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cedar_policy::{Authorizer, Entities, Entity, EntityUid, PolicyId, ResourceConstraint};
use stepgate_core::call::Call;
use stepgate_core::digest::Digest;
use stepgate_core::ids::PrincipalId;
use stepgate_core::ports::{Policy, PolicyDecision, PolicyRequest};
use stepgate_core::tool::Mode;

use crate::answer::Answer;
use crate::compile::compile;
use crate::explain::Effect;
use crate::finding::{Finding, LoadError, Severity};
use crate::question::{Question, Unaskable, questions};
use crate::rule::{Reach, Rule};
use crate::schema::Vocabulary;
use crate::shape::{Attribute, ToolShape};

/// Policies that were validated, and whose cases hold. It never changes.
pub struct PolicySet {
    pub(crate) digest: Digest,
    pub(crate) rules: Vec<Rule>,
    pub(crate) rule_of: HashMap<PolicyId, usize>,
    pub(crate) entries: HashMap<String, Entry>,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) authorizer: Authorizer,
    pub(crate) warnings: Vec<Finding>,
    pub(crate) cases: usize,
}

/// An action, with everything about it that does not depend on the call.
pub(crate) struct Entry {
    pub(crate) action: EntityUid,
    /// Only the policies that the action can match: the others would be asked in vain.
    pub(crate) policies: Arc<cedar_policy::PolicySet>,
    /// The same policies, by their place in `PolicySet::rules`.
    pub(crate) rules: Vec<usize>,
    pub(crate) subject: Subject,
    /// The answer to every call of a core action, where no policy looks at anything but the action:
    /// then Cedar need not be asked, which is most of what a decision costs.
    pub(crate) standing: Option<Answer>,
}

/// What an action is about.
pub(crate) enum Subject {
    /// The sandbox; `action` is the entity of the action, in its group.
    Core { action: Entity },
    /// A tool; everything that Cedar must know of it is known.
    Tool { mode: Mode, resource: EntityUid, entities: Entities, args: BTreeMap<String, Attribute> },
}

impl Subject {
    /// Which calls about it a policy can match whose scope says this of the resource.
    pub(crate) fn reach(&self, constraint: &ResourceConstraint) -> Reach {
        match (self, constraint) {
            (_, ResourceConstraint::Any) => Reach::EveryCall,
            // Its resource is a path, or itself for two actions, and the call says which.
            (
                Self::Core { .. },
                ResourceConstraint::Eq(_)
                | ResourceConstraint::In(_)
                | ResourceConstraint::Is(_)
                | ResourceConstraint::IsIn(_, _),
            ) => Reach::SomeCalls,
            (Self::Tool { resource, .. }, ResourceConstraint::Eq(only)) => {
                Reach::whether(only == resource)
            }
            (Self::Tool { resource, .. }, ResourceConstraint::Is(kind)) => {
                Reach::whether(kind == resource.type_name())
            }
            (Self::Tool { resource, entities, .. }, ResourceConstraint::In(above)) => {
                Reach::whether(is_in(entities, resource, above))
            }
            (Self::Tool { resource, entities, .. }, ResourceConstraint::IsIn(kind, above)) => {
                let is_kind = kind == resource.type_name();
                Reach::whether(is_kind && is_in(entities, resource, above))
            }
        }
    }
}

fn is_in(entities: &Entities, resource: &EntityUid, above: &EntityUid) -> bool {
    resource == above || entities.is_ancestor_of(above, resource)
}

impl PolicySet {
    /// Reads, validates and tries the policies of a directory, for these tools.
    pub fn load(directory: &Path, tools: &[ToolShape]) -> Result<Self, LoadError> {
        let compiled = compile(directory, tools);
        let is_error = |finding: &Finding| finding.severity == Severity::Error;
        compiled
            .set
            .ok_or_else(|| LoadError::new(compiled.findings.into_iter().filter(is_error).collect()))
    }

    /// The digest of the files' names and texts.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The names of the policies, in the order of files and lines.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.name.as_str())
    }

    /// How many cases were tried.
    pub fn cases(&self) -> usize {
        self.cases
    }

    /// What an operator should look at, although the set could be loaded.
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    pub(crate) fn rule(&self, id: &PolicyId) -> Option<&Rule> {
        self.rule_of.get(id).and_then(|index| self.rules.get(*index))
    }

    /// The questions about a call, with the action that they are asked about.
    pub(crate) fn ask(
        &self,
        principal_id: &PrincipalId,
        call: &Call,
    ) -> Result<(&Entry, Vec<Question>), Unaskable> {
        let entry = self.entries.get(call.name()).ok_or(Unaskable::UnknownAction)?;
        let questions = questions(&self.vocabulary, entry, principal_id, call)?;
        Ok((entry, questions))
    }

    /// The answer to one question.
    pub(crate) fn answer(&self, entry: &Entry, question: &Question) -> Answer {
        let Question { request, entities, .. } = question;
        let response = self.authorizer.is_authorized(request, &entry.policies, entities);
        Answer::of(self, &response)
    }

    /// The answer to all questions about a call: each must permit it.
    fn judge(&self, request: PolicyRequest<'_>) -> Answer {
        let entry = self.entries.get(request.call.name());
        if let Some(standing) = entry.and_then(|entry| entry.standing.as_ref()) {
            return standing.clone();
        }
        let Ok((entry, questions)) = self.ask(request.principal_id, request.call) else {
            return Answer::silence();
        };
        let answers = questions.iter().map(|question| self.answer(entry, question));
        answers.reduce(Answer::and).unwrap_or_else(Answer::silence)
    }
}

impl fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicySet").field("digest", &self.digest).finish_non_exhaustive()
    }
}

impl Policy for PolicySet {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        self.judge(request).into_decision(self.digest)
    }

    fn could_permit(&self, principal_id: &PrincipalId, action: &str) -> bool {
        let Some(entry) = self.entries.get(action) else { return false };
        let principal = self.vocabulary.principal(principal_id.as_str());
        let rules = || entry.rules.iter().filter_map(|index| self.rules.get(*index));
        let reaches = |effect| {
            let rules = rules().filter(move |rule| rule.effect == effect);
            rules.map(|rule| rule.reach(&principal, &entry.subject)).max()
        };
        reaches(Effect::Permit) > Some(Reach::None)
            && reaches(Effect::Forbid) < Some(Reach::EveryCall)
    }
}
