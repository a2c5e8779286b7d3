//! What a solver found, as a call; and what the engine that decides on real calls says about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use cedar_policy::{Entities, Request};
use serde_json::{Map, Value};
use stepgate_core::action::Action;
use stepgate_core::approvers::Required;
use stepgate_core::call::{Call, ServerCall, lowered};
use stepgate_core::decimal::Decimal;
use stepgate_core::facts::Facts;
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::{Flow, Label};
use stepgate_core::origin::{self, Origin};
use stepgate_core::ports::{Policy, PolicyDecision, PolicyRequest, PolicyVerdict};
use stepgate_core::tool::Standing;

use super::Scene;
use super::arguments::{fill_unread, fill_unseen, json};
use super::budgets::KnownBudget;
use super::expr::Expr;
use super::rules::Mentioned;
use super::world::Known;
use crate::evaluate::{Condition, Evaluation, Outcome};
use crate::reads::Reads;
use crate::schema::has_path;
use crate::set::PolicySet;
use crate::vocabulary::{GROUP, PRINCIPAL};
use crate::who::Who;

/// A call, and everything that policies know beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// The principal.
    pub principal: PrincipalId,
    /// What policies know beside the call, but `reads` is only what the file or the memory has beside what the tool is
    /// declared to read. Origins are empty where no policy asks for them.
    pub facts: Facts,
    /// The action.
    pub action: String,
    /// The arguments.
    pub args: Map<String, Value>,
}

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It is not done.
    Denied,
    /// It is done, perhaps with a person, but with other arguments: a cap lowers one.
    Lowered,
    /// It is done if these people approve.
    Asked(BTreeSet<Required>),
    /// It is done.
    Done,
}

impl Scene<'_, '_> {
    /// The calls that a request may stand for, or why there is none. `wanted` is what the request was found for. There is
    /// more than one where budgets cover the call: expressions do not add, so what is used before the call and with it
    /// may not fit together, and only one of them is taken over.
    pub fn examples(
        &self,
        request: &Request,
        entities: &Entities,
        wanted: &Expr,
    ) -> Result<Vec<Example>, String> {
        let context = request.context().ok_or("the solver gave no context")?;
        let context = context.to_json_value().map_err(|error| error.to_string())?;
        let example = self.example(request, entities, &context, wanted)?;
        let mut examples: Vec<Example> = Vec::new();
        for taken in Taken::ALL {
            let mut example = example.clone();
            example.facts.used = self.used(&context, &example.args, taken);
            if !examples.contains(&example) {
                examples.push(example);
            }
        }
        Ok(examples)
    }

    /// How much is used of each budget, by what the solver gave.
    fn used(
        &self,
        context: &Value,
        args: &Map<String, Value>,
        taken: Taken,
    ) -> BTreeMap<String, Decimal> {
        let Known::Tool(tool) = self.known else { return BTreeMap::new() };
        let mut used = BTreeMap::new();
        for KnownBudget { attribute, budget } in self.world.budgets_about(tool) {
            let Some(record) = context.get("used").and_then(|used| used.get(attribute)) else {
                continue;
            };
            let number = |name: &str| {
                let text = record.get(name)?.pointer("/__extn/arg")?.as_str()?;
                Decimal::parse(text).ok()
            };
            let amount = || budget.price(&tool.args, args, Decimal::ZERO).after();
            let found = match taken {
                Taken::After => number("after").zip(amount()).and_then(|(sum, it)| sum.minus(it)),
                Taken::Before => number("before"),
                Taken::Nothing => None,
            };
            used.entry(budget.terms.name.to_string()).or_insert(found.unwrap_or_default());
        }
        used
    }

    fn example(
        &self,
        request: &Request,
        entities: &Entities,
        context: &Value,
        wanted: &Expr,
    ) -> Result<Example, String> {
        let principal = request.principal().ok_or("the solver named no principal")?;
        let mentioned = Mentioned::of([wanted]);
        let is_in = |group: &&String| entities.is_ancestor_of(&GROUP.entity(group), principal);
        let groups = self.world.nameable.facts.groups.iter().filter(is_in).cloned().collect();
        let principal = mentioned
            .ids("Principal")
            .find(|id| PRINCIPAL.entity(id) == *principal)
            .map_or_else(|| unnamed(&mentioned), str::to_owned);
        let labels = |value: Option<&Value>| -> BTreeSet<Label> {
            ids(value).filter_map(|id| Label::parse(id).ok()).collect()
        };
        // Without a policy that asks, any set would do.
        let asks = mentioned.ids("Origin").next().is_some();
        let origins = |of: &str| -> BTreeSet<Origin> {
            let origins = ids(context.get(of)).filter(|_| asks);
            let origins: BTreeSet<Origin> =
                origins.filter_map(|id| Origin::parse(id).ok()).collect();
            match origins.iter().any(|origin| origin.as_str() == Origin::NONE) {
                true => origin::none(),
                false => origins,
            }
        };
        let windows = |value: Option<&Value>| ids(value).map(str::to_owned).collect();
        let steps = context.pointer("/session/steps");
        let declared = self.flow().reads.clone();
        Ok(Example {
            principal: PrincipalId::parse(&principal).map_err(|error| error.to_string())?,
            facts: Facts {
                groups,
                labels: labels(context.pointer("/session/labels")),
                reads: labels(context.get("reads")).difference(&declared).cloned().collect(),
                schedule: windows(context.get("schedule")),
                targets: origins("targets"),
                addresses: origins("addresses"),
                steps: Some(steps.and_then(Value::as_u64).unwrap_or_default()),
                opened: Some(windows(context.pointer("/session/opened"))),
                ..Facts::default()
            },
            action: self.action.to_owned(),
            args: self.args(context, wanted)?,
        })
    }

    pub(crate) fn flow(&self) -> &Flow {
        static NOTHING: LazyLock<Flow> = LazyLock::new(Flow::default);
        match self.known {
            Known::Core(action) if has_path(action) => &self.world.sandbox,
            Known::Core(_) => &NOTHING,
            Known::Tool(tool) => &tool.shape.flow,
        }
    }

    fn args(&self, context: &Value, wanted: &Expr) -> Result<Map<String, Value>, String> {
        let seen = context.get("args").and_then(Value::as_object).cloned().unwrap_or_default();
        let tool = match self.known {
            // Policies see the sandbox itself without its slash.
            Known::Core(Action::ListFiles) if seen.get("path") == Some(&"/sandbox".into()) => {
                return Ok(Map::from_iter([("path".to_owned(), "/sandbox/".into())]));
            }
            Known::Core(_) => return Ok(seen),
            Known::Tool(tool) => tool,
        };
        let mut args = Map::new();
        let reads = Reads::of_json(&wanted.0);
        let budgets = self.world.budgets_about(tool);
        let charged: BTreeSet<&String> =
            budgets.filter_map(|it| it.budget.terms.argument.as_ref()).collect();
        for (name, value) in &seen {
            let shape = tool.args.attributes.get(name).and_then(|it| it.seen.as_ref().ok());
            if reads.touches(std::slice::from_ref(name)) || charged.contains(name) {
                args.insert(name.clone(), json(shape.ok_or("an unknown argument")?, value)?);
            }
        }
        let unseen = texts(context.get("unseen"));
        fill_unseen(tool, &mut args, &unseen)?;
        fill_unread(tool, &mut args);
        Ok(args)
    }

    /// The call that an example is, or why it is not one that can be made.
    fn call(&self, example: &Example) -> Result<Call, String> {
        match self.known {
            Known::Core(action) => {
                let call = action.call(&example.args).map_err(|error| error.to_string())?;
                Ok(Call::Core(call))
            }
            Known::Tool(known) => {
                known.contract.check(&example.args).map_err(|error| error.to_string())?;
                let tool = known.shape.tool(Standing::Accepted, Arc::clone(&known.contract));
                let args = example.args.clone();
                Ok(Call::Server(ServerCall { tool: Arc::new(tool), args }).written().into_owned())
            }
        }
    }

    fn facts(&self, example: &Example) -> Facts {
        let Flow { reads, sends, .. } = self.flow();
        let reads = reads.union(&example.facts.reads).cloned().collect();
        Facts { reads, sends: sends.clone(), ..example.facts.clone() }
    }

    /// The call, and what the engine decides on it.
    fn decided(
        &self,
        set: &PolicySet,
        example: &Example,
    ) -> Result<(Call, PolicyDecision), String> {
        let (call, facts) = (self.call(example)?, self.facts(example));
        let principal_id = &example.principal;
        let decision = set.decide(PolicyRequest { principal_id, call: &call, facts: &facts });
        Ok((call, decision))
    }

    /// What becomes of the call, as the engine decides.
    pub fn reached(&self, set: &PolicySet, example: &Example) -> Result<Reached, String> {
        let (call, decision) = self.decided(set, example)?;
        let unchanged = match &call {
            Call::Core(_) => Ok(true),
            Call::Server(call) => {
                let after = lowered(call.args.clone(), &decision.caps);
                after.map(|after| after == call.args)
            }
        };
        Ok(match (decision.verdict, unchanged) {
            (PolicyVerdict::Deny, _) | (_, Err(_)) => Reached::Denied,
            (_, Ok(false)) => Reached::Lowered,
            (PolicyVerdict::RequireApproval(need), Ok(true)) => {
                Reached::Asked(need.required.into_iter().collect())
            }
            (PolicyVerdict::Permit, Ok(true)) => Reached::Done,
        })
    }

    /// The names of the policies that decide on the call.
    pub fn decided_by(&self, set: &PolicySet, example: &Example) -> Vec<String> {
        self.decided(set, example).map(|(_, decision)| decision.policies).unwrap_or_default()
    }

    /// Whether a condition holds for the call, for one of the things that it is about.
    pub fn holds(
        &self,
        set: &PolicySet,
        condition: &Expr,
        example: &Example,
    ) -> Result<bool, String> {
        let (call, facts) = (self.call(example)?, self.facts(example));
        let condition = Condition::of(&condition.clone().into_policy(self.action)?);
        let who = Who::of(&example.principal, &example.facts.groups);
        let (_, asked) = set.ask(&who, &call, &facts).map_err(|error| error.to_string())?;
        let mut questions = asked.questions.iter();
        Ok(questions
            .any(|question| condition.outcome(&mut Evaluation::of(question)) == Outcome::Matched))
    }

    /// Whether a policy matches the call.
    pub fn matches(&self, set: &PolicySet, rule: &str, example: &Example) -> Result<bool, String> {
        let (call, facts) = (self.call(example)?, self.facts(example));
        let explanation = set.explain(&example.principal, &call, &facts);
        let first = explanation.requests.iter().filter(|request| !request.is_capped);
        let mut policies = first.flat_map(|request| &request.policies);
        Ok(policies.any(|policy| policy.name == rule && policy.outcome == Outcome::Matched))
    }

    /// The same example without what it does not need: as long as `still` says that it is one.
    pub fn smallest(&self, example: Example, still: impl Fn(&Example) -> bool) -> Example {
        let mut found = Shrinking { example, still };
        found.without_each(|facts| &mut facts.labels);
        found.without_each(|facts| facts.opened.get_or_insert_default());
        found.with(|it| it.facts.steps = Some(0));
        found.without_each(|facts| &mut facts.groups);
        found.without_each(|facts| &mut facts.schedule);
        found.without_each(|facts| &mut facts.reads);
        for (budget, _) in found.example.facts.used.clone() {
            found.with(|it| it.facts.used.extend([(budget, Decimal::ZERO)]));
        }
        for (name, _) in found.example.args.clone() {
            found.with(|it| drop(it.args.shift_remove(&name)));
        }
        found.example
    }
}

/// An example that loses what it does not need.
struct Shrinking<F> {
    example: Example,
    /// Whether another one is still an example.
    still: F,
}

impl<F: Fn(&Example) -> bool> Shrinking<F> {
    /// Changes it, unless it then is no example any more.
    fn with(&mut self, change: impl FnOnce(&mut Example)) {
        let mut changed = self.example.clone();
        change(&mut changed);
        if (self.still)(&changed) {
            self.example = changed;
        }
    }

    /// Takes each element out of a set.
    fn without_each<T: Clone + Ord>(&mut self, set: impl Fn(&mut Facts) -> &mut BTreeSet<T>) {
        for element in set(&mut self.example.facts).clone() {
            self.with(|example| set(&mut example.facts).retain(|other| *other != element));
        }
    }
}

/// What of a budget's numbers an example takes over from the solver.
#[derive(Clone, Copy)]
enum Taken {
    /// What is used with the call.
    After,
    /// What is used before it.
    Before,
    Nothing,
}

impl Taken {
    const ALL: [Self; 3] = [Self::After, Self::Before, Self::Nothing];
}

/// The name of a principal that no policy names.
fn unnamed(mentioned: &Mentioned) -> String {
    let is_free = |name: &String| !mentioned.ids("Principal").any(|taken| taken == name);
    let names = ["agent", "someone"].into_iter().map(str::to_owned);
    let mut names = names.chain((2..).map(|number: u64| format!("someone-{number}")));
    names.find(is_free).unwrap_or_default()
}

/// The ids of the entities in a set.
fn ids(set: Option<&Value>) -> impl Iterator<Item = &str> {
    let elements = set.and_then(Value::as_array).into_iter().flatten();
    elements.filter_map(|element| element.pointer("/__entity/id")?.as_str())
}

/// The texts in a set.
fn texts(set: Option<&Value>) -> Vec<&str> {
    set.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}
