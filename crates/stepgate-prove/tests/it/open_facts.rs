//! Facts that proofs leave open, held against exhaustive enumeration: what is used of budgets, how many steps a session
//! had, and when it was opened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use stepgate_core::approvers::Groups;
use stepgate_core::call::{Call, ServerCall};
use stepgate_core::decimal::Decimal;
use stepgate_core::facts::{FactNames, Facts};
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::Flow;
use stepgate_core::ports::{Policy, PolicyRequest, PolicyVerdict};
use stepgate_core::tool::{Delivery, Mode, Standing, Tool};
use stepgate_policy::PolicySet;
use stepgate_prove::{ClaimKind, OfAction, prove};

use crate::random::{Random, random};
use crate::scenery::{Scenery, claim, labels, shape, with_prover};

/// How many random sets are tried.
const SETS: u64 = 12;
const TOOL: &str = "tiny.pay";

/// One budget counts everyone's calls, the other one adds up what one group pays.
const BUDGETS: &str = "[budget.calls]\nlimit = 4\nper = 'all'\nwindow = 'day'\n\
    [budget.spent]\nargument = 'amount'\nlimit = '2.00'\nper = 'principal'\nwindow = 'ever'\ngroups = ['g']";

/// One call, with the facts that are open.
#[derive(Clone, Debug)]
struct Point {
    is_in_group: bool,
    /// In quarters, as the numbers below.
    amount: i64,
    calls: i64,
    spent: i64,
    steps: u64,
    was_open: bool,
}

fn quarters(number: i64) -> Decimal {
    Decimal::from_units(number * 2_500)
}

fn tiny() -> Scenery {
    let schema = json!({
        "type": "object",
        "properties": { "amount": { "type": "number", "enum": [0.5, 1] } },
        "required": ["amount"],
        "additionalProperties": false,
    });
    Scenery {
        tools: vec![shape(TOOL, Mode::ExecuteGated, schema)],
        names: FactNames {
            directories: BTreeSet::new(),
            groups: ["g".to_owned()].into(),
            labels: labels(&["secret"]),
            windows: ["w".to_owned()].into(),
        },
        groups: Groups::new(BTreeMap::new()),
    }
}

/// A call for each way in which it stands to the numbers that the conditions below name.
fn every_point() -> Vec<Point> {
    let mut points = Vec::new();
    for (is_in_group, was_open) in [(false, false), (false, true), (true, false), (true, true)] {
        for (amount, steps) in [(2, 0), (2, 3), (4, 0), (4, 3)] {
            for (calls, spent) in (0..8).flat_map(|calls| (0..8).map(move |it| (calls * 2, it))) {
                points.push(Point { is_in_group, amount, calls, spent, steps, was_open });
            }
        }
    }
    points
}

impl Point {
    fn facts(&self) -> Facts {
        let mut used = BTreeMap::from([("calls".to_owned(), quarters(self.calls))]);
        used.extend(self.is_in_group.then(|| ("spent".to_owned(), quarters(self.spent))));
        Facts {
            groups: self.is_in_group.then(|| "g".to_owned()).into_iter().collect(),
            opened: Some(self.was_open.then(|| "w".to_owned()).into_iter().collect()),
            steps: Some(self.steps),
            used,
            ..Facts::default()
        }
    }

    fn spent_after(&self) -> Option<i64> {
        self.is_in_group.then_some(self.spent + self.amount)
    }
}

/// A condition, in Cedar's language and in Rust.
type Condition = (&'static str, fn(&Point) -> bool);

const CONDITIONS: [Condition; 11] = [
    (r#"context.args.amount.greaterThan(decimal("0.5"))"#, |it| it.amount == 4),
    (r#"context.used has calls && context.used.calls.before == decimal("0.0")"#, |it| {
        it.calls == 0
    }),
    (r#"context.used has calls && context.used.calls.before.greaterThan(decimal("1.0"))"#, |it| {
        it.calls > 4
    }),
    (
        r#"context.used has calls && context.used.calls.after.lessThanOrEqual(decimal("2.0"))"#,
        |it| it.calls + 4 <= 8,
    ),
    ("context.used has calls && context.used.calls.percent > 75", |it| it.calls + 4 > 12),
    ("context.used has spent", |it| it.is_in_group),
    (r#"context.used has spent && context.used.spent.after.greaterThan(decimal("1.0"))"#, |it| {
        it.spent_after() > Some(4)
    }),
    ("context.used has spent && context.used.spent.percent > 75", |it| it.spent_after() > Some(6)),
    ("context.session.steps >= 3", |it| it.steps >= 3),
    (r#"context.session.opened.contains(Window::"w")"#, |it| it.was_open),
    (r#"principal in Group::"g""#, |it| it.is_in_group),
];

fn condition(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 1 } else { 4 }) {
        1 => format!("!({})", condition(random, depth - 1)),
        2 => format!("({}) && ({})", condition(random, depth - 1), condition(random, depth - 1)),
        3 => format!("({}) || ({})", condition(random, depth - 1), condition(random, depth - 1)),
        _ => random.of(&CONDITIONS).0.to_owned(),
    }
}

fn policies(random: &mut Random) -> String {
    let count = 1 + random.below(4);
    let policy = |_| {
        let head = random.of(&["permit", "permit", "@approval(\"why\") permit", "forbid"]);
        let kind = random.of(&["when", "unless"]);
        let condition = condition(random, 2);
        format!(
            "{head} (principal, action == Action::\"{TOOL}\", resource) {kind} {{ {condition} }};\n"
        )
    };
    (0..count).map(policy).collect()
}

fn verdict(set: &PolicySet, tool: &Arc<Tool>, point: &Point) -> PolicyVerdict {
    let amount = if point.amount == 2 { json!(0.5) } else { json!(1) };
    let Value::Object(args) = json!({ "amount": amount }) else { panic!("not an object") };
    let call = Call::Server(ServerCall { tool: Arc::clone(tool), args });
    let principal_id = PrincipalId::parse("agent").unwrap();
    let facts = point.facts();
    set.decide(PolicyRequest { principal_id: &principal_id, call: &call, facts: &facts }).verdict
}

#[test]
fn a_claim_about_open_facts_is_proven_where_no_call_breaks_it_and_refuted_where_one_does() {
    let tiny = tiny();
    let tool = Arc::new(Tool {
        name: tiny.tools[0].name.clone(),
        mode: tiny.tools[0].mode,
        delivery: Delivery::Ask,
        definition_digest: tiny.tools[0].definition_digest,
        standing: Standing::Accepted,
        redacted: vec![],
        erasable: Vec::new(),
        flow: Flow::default(),
        contract: stepgate_exec::servers::contract(&tiny.tools[0].input_schema).unwrap(),
    });
    let points = every_point();
    let (mut proven, mut refuted) = (0, 0);
    with_prover(async |prover| {
        for seed in 0..SETS {
            let mut random = random(3000 + seed);
            let text = policies(&mut random);
            let set = tiny.set_with(&text, BUDGETS);
            let world = tiny.world(&[&set]);
            let verdicts: Vec<_> = points.iter().map(|it| verdict(&set, &tool, it)).collect();
            for _ in 0..4 {
                let kind = random.of(&[ClaimKind::NeedsPerson, ClaimKind::Never]);
                let conditions = [random.of(&CONDITIONS), random.of(&CONDITIONS)];
                let mut claim = claim(kind, &[TOOL]);
                claim.when = Some(format!("({}) && ({})", conditions[0].0, conditions[1].0));
                let is_about = |it: &Point| conditions.iter().all(|(_, holds)| holds(it));
                let breaks = |verdict: &PolicyVerdict| match verdict {
                    PolicyVerdict::Permit => true,
                    PolicyVerdict::RequireApproval(_) => kind == ClaimKind::Never,
                    PolicyVerdict::Deny => false,
                };
                let mut decided = points.iter().zip(&verdicts);
                let expected = decided.any(|(it, verdict)| is_about(it) && breaks(verdict));
                let is_about_some = points.iter().any(is_about);
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
    assert!(proven > 10 && refuted > 10, "{proven} proven, {refuted} refuted");
}
