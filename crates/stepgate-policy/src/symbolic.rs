//! Policies as logic: the questions that a solver answers for all calls at once.
//!
//! A question is one Cedar policy, put together from the policies of a set: it matches exactly the calls that are
//! asked for. A solver finds a request that it matches, or proves that there is none. Whether a policy would
//! permit, ask or deny is taken from the same rules as in `answer.rs`: a `forbid` wins, an `@approval` wins over a
//! plain `permit`, an error denies, and so does a policy that reads what it cannot see.
//!
//! What a solver finds is not believed: it becomes a call (`example.rs`), and the engine that decides on real
//! calls must decide on it as the solver says.

mod expr;
mod budgets;
mod rules;
mod limits_of_schema;
mod hidden;
mod world;
mod meaning;
mod sample;
mod arguments;
mod example;
mod readable;
mod test_of_args;

use std::sync::Arc;

use cedar_policy::{Policy, RequestEnv, Schema, ValidationMode, Validator};

pub use example::{Example, Reached};
pub use expr::Expr;
pub use meaning::Meaning;
pub use test_of_args::ArgTest;
pub use world::{World, in_group, principal_is};

use crate::finding::message_of;
use crate::literal;
use crate::set::PolicySet;
use hidden::Hidden;
use rules::Mentioned;
use world::Known;

/// A question to a solver: is there a request that this policy matches?
pub struct Question {
    /// The types of requests.
    pub schema: Arc<Schema>,
    /// The action.
    pub env: RequestEnv,
    /// The policy.
    pub policy: Policy,
}

/// One action, with the policies of one set or two.
pub struct Scene<'w, 'a> {
    world: &'w World<'a>,
    action: &'w str,
    known: Known<'w, 'a>,
    hidden: Hidden,
}

impl<'w, 'a> Scene<'w, 'a> {
    /// An action, and everything that expressions about it come from; none where no call of it can be made.
    pub fn new(
        world: &'w World<'a>,
        action: &'w str,
        sets: &[&PolicySet],
        conditions: &[Expr],
    ) -> Result<Option<Self>, String> {
        let Some(known) = world.subject(action) else { return Ok(None) };
        let conditions = Mentioned::of(conditions);
        if let Some(what) = conditions.beyond {
            return Err(format!("the condition reads {what}, and proofs are not about that"));
        }
        let mut is_asked_for = conditions.unseen;
        for set in sets {
            let Some(entry) = set.entries.get(action) else { return Ok(None) };
            for rule in set.rules_of(entry) {
                let mentioned = Mentioned::of([&rules::condition(rule)?]);
                if let Some(what) = mentioned.beyond {
                    let name = &rule.name;
                    return Err(format!("`{name}` reads {what}, and proofs are not about that"));
                }
                is_asked_for |= mentioned.unseen;
            }
        }
        let hidden = match known {
            Known::Core(_) => Hidden::default(),
            Known::Tool(tool) => Hidden::of(&tool.shape, &tool.args, is_asked_for),
        };
        Ok(Some(Self { world, action, known, hidden }))
    }

    /// What a set decides on the calls of the action.
    pub fn meaning(&self, set: &PolicySet) -> Result<Meaning, String> {
        self.meaning_without(set, None)
    }

    /// The same without one policy.
    pub fn meaning_without(
        &self,
        set: &PolicySet,
        without: Option<&str>,
    ) -> Result<Meaning, String> {
        let entry = set.entries.get(self.action).ok_or("the set does not know the action")?;
        meaning::meaning(self.world, set, entry, self.known, &self.hidden, without)
    }

    /// Why what two sets decide on the action cannot be compared: an argument that only one of them makes erasable is seen by
    /// the policies of the other one.
    pub fn incomparable(
        &self,
        one: &PolicySet,
        other: &PolicySet,
    ) -> Result<Option<String>, String> {
        let entries = (one.entries.get(self.action), other.entries.get(self.action));
        let (Some(of_one), Some(of_other)) = entries else { return Ok(None) };
        let names: Vec<&String> =
            of_one.erasable.symmetric_difference(&of_other.erasable).collect();
        if names.is_empty() {
            return Ok(None);
        }
        for rule in one.rules_of(of_one).chain(other.rules_of(of_other)) {
            let asks = Mentioned::of([&rules::condition(rule)?]).unseen;
            let reads = |name: &&&String| asks || rule.reads.touches(std::slice::from_ref(**name));
            if let Some(name) = names.iter().find(reads) {
                return Ok(Some(format!(
                    "only one of the sets makes `{name}` erasable, and `{}` asks for it: what it sees is another thing in each",
                    rule.name
                )));
            }
        }
        Ok(None)
    }

    /// The question for a call of which this is true.
    pub fn question(&self, wanted: &Expr) -> Result<Question, String> {
        let every_call = self.every_call(&Mentioned::of([wanted]));
        let unseen = match self.known {
            Known::Core(_) => Expr::truth(true),
            Known::Tool(_) => self.hidden.every_call(),
        };
        let policy = Expr::all([every_call, unseen, wanted.clone()]).into_policy(self.action)?;
        let env = self.known.request_env(self.action);
        Ok(Question { schema: Arc::clone(&self.world.schema), env, policy })
    }

    /// The condition that a person wrote in Cedar's language, or why it cannot be one for calls of the action.
    pub fn condition(&self, text: &str) -> Result<Expr, String> {
        let expr = Expr::parse(text)?;
        let names = literal::Known::new(self.world.nameable.tools, self.world.nameable.facts);
        let policy = expr.clone().into_policy(self.action)?;
        if let Some(wrong) = policy.entity_literals().iter().find_map(|name| names.refusal(name)) {
            return Err(wrong);
        }
        let set = cedar_policy::PolicySet::from_policies([policy]);
        let set = set.map_err(|error| error.to_string())?;
        let validator = Validator::new((*self.world.schema).clone());
        let result = validator.validate(&set, ValidationMode::Strict);
        let errors: Vec<String> =
            result.validation_errors().map(|error| message_of(error)).collect();
        match errors.is_empty() {
            true => Ok(expr),
            // The policy around the condition is ours, and has no name that a person knows.
            false => Err(errors.join("; ").replace("for policy `question`, ", "")),
        }
    }

    /// That a condition holds for one of the things that the action is about.
    pub fn of_any_resource(&self, condition: &Expr) -> Expr {
        let resources = self.known.resources();
        Expr::any(resources.iter().map(|(resource, _)| condition.clone().about(resource)))
    }
}
