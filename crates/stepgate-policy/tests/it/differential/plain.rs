//! The plain evaluator: policies over exact values, with declared defaults filled in.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use stepgate_policy::Verdict;

use super::PRINCIPALS;
use super::chance::Chance;
use super::condition::Condition;
use super::tool::{Kind, Members, RandomTool};
use super::value::{Decimal, Exact};

pub(super) struct Rule {
    effect: Effect,
    principal: Option<&'static str>,
    action: Option<&'static str>,
    condition: Option<Condition>,
    cap: Option<(&'static str, i64)>,
    number: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Effect {
    Permit,
    Approval,
    Forbid,
}

pub(super) fn draw_rules(chance: &mut Chance, tools: &[RandomTool]) -> Vec<Rule> {
    let count = 2 + chance.below(4);
    let mut rules: Vec<Rule> = (0..count).map(|number| draw_rule(chance, tools, number)).collect();
    if chance.percent(60) {
        let plain = Rule {
            effect: Effect::Permit,
            principal: None,
            action: None,
            condition: None,
            cap: None,
            number: count,
        };
        rules.push(plain);
    }
    rules
}

fn draw_rule(chance: &mut Chance, tools: &[RandomTool], number: usize) -> Rule {
    let tool = chance.one_of(tools);
    let effect = *chance.one_of(&[Effect::Permit, Effect::Approval, Effect::Forbid]);
    let numbers = numbers_of(tool);
    let is_capped = effect != Effect::Forbid && !numbers.is_empty() && chance.percent(25);
    let cap = is_capped.then(|| (*chance.one_of(&numbers), *chance.one_of(&[5, 30, 100])));
    let is_narrow = cap.is_some() || chance.percent(60);
    let depth = chance.below(3);
    Rule {
        effect,
        principal: chance.percent(20).then(|| *chance.one_of(&PRINCIPALS)),
        action: is_narrow.then_some(tool.name),
        condition: chance.percent(90).then(|| Condition::draw(chance, tool, depth)),
        cap,
        number,
    }
}

/// The arguments of a tool that are numbers.
fn numbers_of(tool: &RandomTool) -> Vec<&'static str> {
    let is_number = |name: &&&'static str| {
        let kind = &tool.members.named[**name].kind;
        matches!(kind, Kind::Number | Kind::Integer { .. })
    };
    tool.members.named.keys().filter(is_number).copied().collect()
}

impl Rule {
    /// As messages name it.
    pub(super) fn quoted_name(&self) -> String {
        format!("`r{}`", self.number)
    }

    pub(super) fn to_cedar(&self) -> String {
        let effect = match self.effect {
            Effect::Permit => "permit",
            Effect::Approval => "@approval(\"a person\") permit",
            Effect::Forbid => "forbid",
        };
        let cap = self.cap.map(|(name, max)| format!("@cap(\"{name} <= {max}\") "));
        let principal = self.principal.map(|name| format!(" == Principal::\"{name}\""));
        // Without its own tool it is about both, and about no core action: those have other arguments.
        let action = match self.action {
            Some(name) => format!(" == Action::\"{name}\""),
            None => " in Action::\"execute_gated\"".to_owned(),
        };
        let condition = self.condition.as_ref();
        let condition = condition.map(|condition| format!(" when {{ {} }}", condition.to_cedar()));
        format!(
            "@id(\"r{}\") {}{effect} (principal{}, action{action}, resource){};\n",
            self.number,
            cap.unwrap_or_default(),
            principal.unwrap_or_default(),
            condition.unwrap_or_default(),
        )
    }

    fn is_about(&self, tool: &RandomTool, who: &str) -> bool {
        self.principal.is_none_or(|name| name == who)
            && self.action.is_none_or(|name| name == tool.name)
    }
}

/// What should become of a call.
pub(super) struct Plain {
    pub(super) verdict: Verdict,
    /// The most that the tool may get of each argument.
    pub(super) caps: BTreeMap<&'static str, i64>,
    /// What the call takes from the budget, where it has one.
    pub(super) due: Option<Decimal>,
}

/// A limit on what all calls of one tool take of an argument together. Nothing is used before.
pub(super) struct Budget {
    tool: &'static str,
    argument: &'static str,
    limit: Decimal,
}

impl Budget {
    pub(super) fn draw(chance: &mut Chance, tools: &[RandomTool]) -> Option<Self> {
        let tool = chance.one_of(tools);
        let numbers = numbers_of(tool);
        if numbers.is_empty() || chance.percent(60) {
            return None;
        }
        let limit = *chance.one_of(&[(5, 0), (995, -1), (1_000_001, -4), (900_719_925_474_100, 0)]);
        let limit = Decimal { digits: limit.0, exponent: limit.1 };
        Some(Self { tool: tool.name, argument: *chance.one_of(&numbers), limit })
    }

    pub(super) fn to_toml(&self) -> String {
        let Self { tool, argument, limit } = self;
        format!(
            "[budget.b]\nargument = '{argument}'\nlimit = '{}'\nper = 'all'\nwindow = 'ever'\ntools = ['{tool}']",
            limit.to_plain()
        )
    }

    /// What a call takes; none where it is denied.
    fn due(&self, args: &BTreeMap<String, Exact>) -> Option<Decimal> {
        let Some(Exact::Number(amount)) = args.get(self.argument) else { return None };
        let is_allowed = amount.compare(Decimal::whole(0)) != Ordering::Less
            && amount.compare(self.limit) != Ordering::Greater;
        is_allowed.then_some(*amount)
    }
}

/// What should become of a call: what is asked for must be allowed, and what its caps make of it, too.
pub(super) fn decide(
    rules: &[Rule],
    budget: Option<&Budget>,
    tool: &RandomTool,
    who: &str,
    args: &Exact,
) -> Plain {
    let mut caps = BTreeMap::new();
    let mut acted_on = BTreeMap::new();
    let mut verdict = verdict(rules, tool, who, args, &mut caps, &mut acted_on);
    let budget = budget.filter(|budget| budget.tool == tool.name);
    let due = budget.and_then(|budget| budget.due(&acted_on));
    if budget.is_some() && due.is_none() {
        verdict = Verdict::Deny;
    }
    Plain { verdict, caps, due }
}

/// What policies say; `acted_on` is what the tool gets.
fn verdict(
    rules: &[Rule],
    tool: &RandomTool,
    who: &str,
    args: &Exact,
    caps: &mut BTreeMap<&'static str, i64>,
    acted_on: &mut BTreeMap<String, Exact>,
) -> Verdict {
    let Exact::Object(given) = args else { return Verdict::Deny };
    *acted_on = filled(&tool.members, given);
    let mut verdict = Verdict::Permit;
    loop {
        verdict = verdict.max(judge(rules, tool, who, acted_on, caps));
        let mut is_lowered = false;
        for (name, max) in &*caps {
            let max = Decimal::whole(*max);
            match acted_on.get_mut(*name) {
                None => {}
                Some(Exact::Number(value)) if value.compare(max) == Ordering::Greater => {
                    // What is omitted cannot be lowered.
                    if !given.contains_key(*name) {
                        return Verdict::Deny;
                    }
                    (*value, is_lowered) = (max, true);
                }
                Some(Exact::Number(_)) => {}
                Some(_) => return Verdict::Deny,
            }
        }
        if !is_lowered || verdict == Verdict::Deny {
            return verdict;
        }
    }
}

fn judge(
    rules: &[Rule],
    tool: &RandomTool,
    who: &str,
    args: &BTreeMap<String, Exact>,
    caps: &mut BTreeMap<&'static str, i64>,
) -> Verdict {
    let args = Exact::Object(args.clone());
    let mut verdict = None;
    for rule in rules.iter().filter(|rule| rule.is_about(tool, who)) {
        match rule.condition.as_ref().map_or(Ok(true), |condition| condition.holds(&args)) {
            Err(_) => return Verdict::Deny,
            Ok(false) => continue,
            Ok(true) => {}
        }
        let answer = match rule.effect {
            Effect::Permit => Verdict::Permit,
            Effect::Approval => Verdict::Approval,
            Effect::Forbid => return Verdict::Deny,
        };
        verdict = verdict.max(Some(answer));
        if let Some((name, max)) = rule.cap {
            let cap = caps.entry(name).or_insert(max);
            *cap = max.min(*cap);
        }
    }
    verdict.unwrap_or(Verdict::Deny)
}

/// The members as the tool acts on them. Where the default is null, null is nothing.
fn filled(members: &Members, given: &BTreeMap<String, Exact>) -> BTreeMap<String, Exact> {
    let mut acted_on = given.clone();
    for (name, member) in &members.named {
        if let Some(default) = &member.default {
            acted_on.entry((*name).to_owned()).or_insert_with(|| default.clone());
            if *default == Exact::Null && acted_on[*name] == Exact::Null {
                acted_on.remove(*name);
            }
        }
        if let Some(value) = acted_on.get_mut(*name) {
            fill(&member.kind, value);
        }
    }
    acted_on
}

fn fill(kind: &Kind, value: &mut Exact) {
    match (kind, value) {
        (Kind::Object(members), Exact::Object(given)) => *given = filled(members, given),
        (Kind::List(inner), Exact::List(items)) => {
            items.iter_mut().for_each(|item| fill(inner, item));
        }
        (Kind::Nullable(inner) | Kind::Aside(inner, _), value) => fill(inner, value),
        _ => {}
    }
}
