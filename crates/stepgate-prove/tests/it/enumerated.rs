//! Proofs held against exhaustive enumeration: on a schema so small that every call can be tried, the solver and the
//! engine say the same, about random policies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use stepgate_core::approvers::{Groups, Required};
use stepgate_core::call::{Call, ServerCall, lowered};
use stepgate_core::facts::{FactNames, Facts};
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::Flow;
use stepgate_core::ports::{Policy, PolicyRequest, PolicyVerdict};
use stepgate_core::tool::{Delivery, Mode, Standing, Tool};
use stepgate_policy::{PolicySet, ToolShape};
use stepgate_prove::{ChangeKind, ClaimKind, OfAction, RuleFinding, diff, prove, rules};

use crate::random::{Random, random};
use crate::scenery::{Scenery, claim, labels, shape, with_prover};

/// How many random sets each test tries.
const SETS: u64 = 16;
const TOOL: &str = "tiny.act";

/// One call, with everything that policies know beside it.
#[derive(Clone, Debug)]
struct Point {
    principal: &'static str,
    groups: BTreeSet<&'static str>,
    labels: BTreeSet<&'static str>,
    windows: BTreeSet<&'static str>,
    flag: bool,
    kind: Option<&'static str>,
    n: i64,
    /// 0 for 0.5, and 1 for 1.
    amount: i64,
    tags: BTreeSet<&'static str>,
}

fn tiny() -> Scenery {
    let schema = json!({
        "type": "object",
        "properties": {
            "flag": { "type": "boolean" },
            "kind": { "type": "string", "enum": ["a", "b"] },
            "n": { "type": "integer", "minimum": 0, "maximum": 2 },
            "amount": { "type": "number", "enum": [0.5, 1] },
            "tags": { "type": "array", "items": { "type": "string", "enum": ["x"] } },
        },
        "required": ["flag", "n", "amount", "tags"],
        "additionalProperties": false,
    });
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let tool = shape(TOOL, Mode::ExecuteGated, schema);
    Scenery {
        tools: vec![tool],
        names: FactNames {
            directories: BTreeSet::new(),
            groups: texts(&["g", "h"]),
            labels: labels(&["secret"]),
            windows: texts(&["w"]),
        },
        groups: Groups::new(BTreeMap::new()),
    }
}

fn subsets(names: &[&'static str]) -> Vec<BTreeSet<&'static str>> {
    names.iter().fold(vec![BTreeSet::new()], |subsets, name| {
        let with = subsets.iter().map(|subset| {
            let mut subset = subset.clone();
            subset.insert(*name);
            subset
        });
        subsets.iter().cloned().chain(with).collect()
    })
}

/// Every call that can be made: a principal that no policy names stands for all of them.
fn every_point() -> Vec<Point> {
    let mut points = Vec::new();
    for principal in ["p", "other"] {
        for groups in subsets(&["g", "h"]) {
            for labels in subsets(&["secret"]) {
                for windows in subsets(&["w"]) {
                    for tags in subsets(&["x"]) {
                        for (flag, kind) in [true, false]
                            .into_iter()
                            .flat_map(|it| [(it, None), (it, Some("a")), (it, Some("b"))])
                        {
                            for (n, amount) in (0..3).flat_map(|n| (0..2).map(move |it| (n, it))) {
                                let (groups, labels) = (groups.clone(), labels.clone());
                                let (windows, tags) = (windows.clone(), tags.clone());
                                points.push(Point {
                                    principal,
                                    groups,
                                    labels,
                                    windows,
                                    flag,
                                    kind,
                                    n,
                                    amount,
                                    tags,
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    points
}

impl Point {
    fn args(&self) -> Map<String, Value> {
        let amount = if self.amount == 0 { json!(0.5) } else { json!(1) };
        let args = json!({ "flag": self.flag, "n": self.n, "amount": amount, "tags": self.tags });
        let Value::Object(mut args) = args else { panic!("not an object") };
        args.extend(self.kind.map(|kind| ("kind".to_owned(), json!(kind))));
        args
    }

    fn facts(&self) -> Facts {
        let names: Vec<&str> = self.labels.iter().copied().collect();
        Facts {
            groups: self.groups.iter().map(|name| (*name).to_owned()).collect(),
            labels: labels(&names),
            schedule: self.windows.iter().map(|name| (*name).to_owned()).collect(),
            ..Facts::default()
        }
    }
}

/// What becomes of a call, as the tool gets it.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    NotAsItIs,
    Asked(BTreeSet<Required>),
    Done,
}

fn call(tool: &Arc<Tool>, point: &Point) -> Call {
    Call::Server(ServerCall { tool: Arc::clone(tool), args: point.args() })
}

fn tool(shape: &ToolShape) -> Arc<Tool> {
    Arc::new(Tool {
        name: shape.name.clone(),
        mode: shape.mode,
        delivery: Delivery::Ask,
        definition_digest: shape.definition_digest,
        standing: Standing::Accepted,
        redacted: vec![],
        erasable: Vec::new(),
        flow: Flow::default(),
        contract: stepgate_exec::servers::contract(&shape.input_schema).unwrap(),
    })
}

fn fate(set: &PolicySet, tool: &Arc<Tool>, point: &Point) -> Fate {
    let call = call(tool, point);
    let principal_id = PrincipalId::parse(point.principal).unwrap();
    let facts = point.facts();
    let decision =
        set.decide(PolicyRequest { principal_id: &principal_id, call: &call, facts: &facts });
    let is_lowered = lowered(point.args(), &decision.caps) != Ok(point.args());
    match decision.verdict {
        PolicyVerdict::Permit if !is_lowered => Fate::Done,
        PolicyVerdict::RequireApproval(need) if !is_lowered => {
            Fate::Asked(need.required.into_iter().collect())
        }
        PolicyVerdict::Permit | PolicyVerdict::RequireApproval(_) | PolicyVerdict::Deny => {
            Fate::NotAsItIs
        }
    }
}

/// A condition, in Cedar's language and in Rust.
type Condition = (&'static str, fn(&Point) -> bool);

const CONDITIONS: [Condition; 14] = [
    ("context.args.flag", |it| it.flag),
    ("context.args.n > 1", |it| it.n > 1),
    ("context.args.n == 0", |it| it.n == 0),
    ("context.args has kind", |it| it.kind.is_some()),
    (r#"context.args has kind && context.args.kind == "a""#, |it| it.kind == Some("a")),
    (r#"context.args has kind && context.args.kind like "b*""#, |it| it.kind == Some("b")),
    (r#"context.args.amount.greaterThan(decimal("0.5"))"#, |it| it.amount == 1),
    (r#"context.args.amount == decimal("0.5")"#, |it| it.amount == 0),
    (r#"context.args.tags.contains("x")"#, |it| it.tags.contains("x")),
    ("context.args.tags.isEmpty()", |it| it.tags.is_empty()),
    (r#"context.session.labels.contains(Label::"secret")"#, |it| it.labels.contains("secret")),
    (r#"context.schedule.contains(Window::"w")"#, |it| it.windows.contains("w")),
    (r#"principal in Group::"g""#, |it| it.groups.contains("g")),
    (r#"principal == Principal::"p""#, |it| it.principal == "p"),
];

/// Expressions that only policies have: they can overflow, and then the call is denied.
const CALCULATIONS: [&str; 3] = [
    "context.args.n * 5000000000000000000 > 0",
    "context.args.n + 9223372036854775805 > 0",
    "context.args.n * context.args.n == 4",
];

impl Random {
    fn condition(&mut self, depth: usize) -> String {
        match self.below(if depth == 0 { 2 } else { 6 }) {
            2 => format!("!({})", self.condition(depth - 1)),
            3 => format!("({}) && ({})", self.condition(depth - 1), self.condition(depth - 1)),
            4 => format!("({}) || ({})", self.condition(depth - 1), self.condition(depth - 1)),
            5 => self.of(&CALCULATIONS).to_owned(),
            _ => self.of(&CONDITIONS).0.to_owned(),
        }
    }

    fn policy(&mut self, number: usize) -> String {
        let (annotations, effect) = match self.below(8) {
            0..3 => (String::new(), "permit"),
            3 => (format!("@cap(\"n <= {}\")", self.below(3)), "permit"),
            4 | 5 => ("@approval(\"why\")".to_owned(), "permit"),
            6 => (format!("@approval(\"why\") @quorum(\"{}\")", 1 + self.below(3)), "permit"),
            _ => (String::new(), "forbid"),
        };
        let principal = self.of(&[
            "principal",
            "principal",
            r#"principal == Principal::"p""#,
            r#"principal in Group::"h""#,
        ]);
        let action =
            self.of(&[r#"action == Action::"tiny.act""#, r#"action in Action::"execute_gated""#]);
        let resource = self.of(&[
            "resource",
            "resource",
            r#"resource in Server::"tiny""#,
            r#"resource in Server::"core""#,
        ]);
        let when = match self.below(3) {
            0 => String::new(),
            1 => format!(" when {{ {} }}", self.condition(2)),
            _ => format!(" unless {{ {} }}", self.condition(2)),
        };
        format!(
            "@id(\"r{number}\") {annotations} {effect} ({principal}, {action}, {resource}){when};"
        )
    }

    fn policies(&mut self) -> Vec<String> {
        let count = 1 + self.below(5);
        (0..count).map(|number| self.policy(number)).collect()
    }
}

#[test]
fn a_claim_is_proven_where_no_call_breaks_it_and_refuted_where_one_does() {
    let tiny = tiny();
    let (world, tool, points) = (tiny.world(&[]), tool(&tiny.tools[0]), every_point());
    let (mut proven, mut refuted) = (0, 0);
    with_prover(async |prover| {
        for seed in 0..SETS {
            let mut random = random(seed);
            let text = random.policies().join("\n");
            let set = tiny.set(&text);
            let fates: Vec<Fate> = points.iter().map(|point| fate(&set, &tool, point)).collect();
            for _ in 0..4 {
                let kind = random.of(&[ClaimKind::NeedsPerson, ClaimKind::Never]);
                let conditions = [random.of(&CONDITIONS), random.of(&CONDITIONS)];
                let mut claim = claim(kind, &[TOOL]);
                claim.when = Some(format!("({}) && ({})", conditions[0].0, conditions[1].0));
                let breaks = |fate: &Fate| match kind {
                    ClaimKind::NeedsPerson => *fate == Fate::Done,
                    ClaimKind::Never => *fate != Fate::NotAsItIs,
                };
                let expected = points.iter().zip(&fates).any(|(point, fate)| {
                    conditions.iter().all(|(_, holds)| holds(point)) && breaks(fate)
                });
                let is_about_some =
                    points.iter().any(|it| conditions.iter().all(|(_, holds)| holds(it)));
                let proof = prove(prover, &world, &set, &claim, |_| {}).await;
                let what = format!("seed {seed}: {kind:?} {:?}\n{text}\n{proof:?}", claim.when);
                match (proof.as_ref().map(|proof| &proof.actions[..]), expected) {
                    (Ok([OfAction::Proven { .. }]), false) if is_about_some => proven += 1,
                    (Ok([OfAction::Refuted { .. }]), true) => refuted += 1,
                    (Err(error), false) if !is_about_some => {
                        assert!(error.contains("about no call at all"), "{what}");
                    }
                    _ => panic!("expected {expected}: {what}"),
                }
            }
        }
    });
    // Both happen often enough for the test to mean something.
    assert!(proven > 10 && refuted > 10, "{proven} proven, {refuted} refuted");
}

fn covers(by: &Required, one: &Required) -> bool {
    (one.approvers.is_empty() || by.approvers == one.approvers) && by.quorum >= one.quorum
}

fn kinds(old: &Fate, new: &Fate) -> Vec<ChangeKind> {
    let lacks = |all: &BTreeSet<Required>, one: &Required| !all.iter().any(|by| covers(by, one));
    match (old, new) {
        (Fate::Done, Fate::Done) | (Fate::NotAsItIs, Fate::NotAsItIs) => vec![],
        (_, Fate::Done) => vec![ChangeKind::DoneWithoutPerson],
        (Fate::NotAsItIs, Fate::Asked(_)) => vec![ChangeKind::DoneWithPerson],
        (_, Fate::NotAsItIs) => vec![ChangeKind::Refused],
        (Fate::Done, Fate::Asked(_)) => vec![ChangeKind::AsksPerson],
        (Fate::Asked(old), Fate::Asked(new)) => {
            let fewer = old.iter().any(|one| lacks(new, one)).then_some(ChangeKind::FewerPeople);
            let more = new.iter().any(|one| lacks(old, one)).then_some(ChangeKind::MorePeople);
            fewer.into_iter().chain(more).collect()
        }
    }
}

#[test]
fn a_change_of_policies_has_exactly_the_differences_that_calls_have() {
    let tiny = tiny();
    let (world, tool, points) = (tiny.world(&[]), tool(&tiny.tools[0]), every_point());
    let (mut compared, mut found_kinds) = (0, BTreeSet::new());
    with_prover(async |prover| {
        for seed in 0..SETS {
            let mut random = random(1000 + seed);
            let old = random.policies();
            // Mostly the same policies: one is replaced.
            let mut new = old.clone();
            let index = random.below(new.len());
            new[index] = random.policy(index);
            let (old, new) = (old.join("\n"), new.join("\n"));
            let (old_set, new_set) = (tiny.set(&old), tiny.set(&new));
            let expected: BTreeSet<String> = points
                .iter()
                .flat_map(|it| kinds(&fate(&old_set, &tool, it), &fate(&new_set, &tool, it)))
                .map(|kind| format!("{kind:?}"))
                .collect();
            let difference = diff(prover, &world, &old_set, &new_set, |_| {}).await.unwrap();
            let of_tool = difference.actions.iter().find(|it| it.action == TOOL).unwrap();
            let found: BTreeSet<String> =
                of_tool.changes.iter().map(|change| format!("{:?}", change.kind)).collect();
            let what = format!("seed {seed}\n{old}\n---\n{new}\n{of_tool:?}");
            assert!(found.is_subset(&expected), "expected {expected:?}, found {found:?}: {what}");
            if of_tool.undecided.is_empty() {
                assert_eq!(found, expected, "{what}");
                compared += 1;
            } else {
                // Only an overflow is allowed to be undecided.
                assert!(of_tool.undecided.iter().all(|why| why.contains("overflow")), "{what}");
            }
            found_kinds.extend(found);
        }
    });
    assert!(compared > 10 && found_kinds.len() >= 4, "{compared}, {found_kinds:?}");
}

#[test]
fn a_policy_never_matches_or_changes_nothing_exactly_where_no_call_shows_otherwise() {
    let tiny = tiny();
    let (world, tool, points) = (tiny.world(&[]), tool(&tiny.tools[0]), every_point());
    let mut seen = BTreeMap::new();
    with_prover(async |prover| {
        for seed in 0..SETS {
            let mut random = random(2000 + seed);
            let policies = random.policies();
            let set = tiny.set(&policies.join("\n"));
            let reports = rules(prover, &world, &set, |_| {}).await.unwrap();
            for (index, report) in reports.iter().enumerate() {
                let without: Vec<String> = policies
                    .iter()
                    .enumerate()
                    .filter(|(it, _)| *it != index)
                    .map(|(_, it)| it.clone())
                    .collect();
                let without = tiny.set(&without.join("\n"));
                let can_match = points.iter().any(|point| {
                    let call = call(&tool, point);
                    let principal = PrincipalId::parse(point.principal).unwrap();
                    let explanation = set.explain(&principal, &call, &point.facts());
                    let policies = &explanation.requests[0].policies;
                    policies.iter().any(|it| {
                        it.name == report.name && it.outcome == stepgate_policy::Outcome::Matched
                    })
                });
                let changes =
                    || points.iter().any(|it| fate(&set, &tool, it) != fate(&without, &tool, it));
                let calculates = CALCULATIONS.iter().any(|it| policies[index].contains(it));
                let expected = match (can_match, calculates || changes()) {
                    (false, _) => RuleFinding::NeverMatches,
                    (true, true) => RuleFinding::Needed,
                    (true, false) => RuleFinding::ChangesNothing,
                };
                let what = format!("seed {seed}: {}\n{}", report.name, policies.join("\n"));
                assert_eq!(report.finding, expected, "{what}");
                *seen.entry(format!("{expected:?}")).or_insert(0) += 1;
            }
        }
    });
    assert_eq!(seen.len(), 3, "{seen:?}");
}
