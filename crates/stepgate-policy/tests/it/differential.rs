//! What the gate decides, held against a plain evaluator over exact values.
//!
//! Tools, policies and calls are random, and so is the spelling of every call. The call goes the way of
//! a proposal: the strict parser, the tool's contract, the policy set, the caps. The evaluator knows the
//! value that was meant and nothing of Cedar: what it refuses must never be permitted or asked about,
//! what it would ask about must never be permitted, no capped argument is sent above its cap, and a budget is charged
//! exactly what is sent. `cargo xtask policy-differential` runs many.

mod chance;
mod condition;
mod left_out;
mod plain;
mod tool;
mod value;

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value};
use stepgate_core::budget::Due;
use stepgate_core::call::{Call, ServerCall, lowered};
use stepgate_core::digest::Digest;
use stepgate_core::facts::Facts;
use stepgate_core::json::strict::{self, Integers};
use stepgate_core::label::Flow;
use stepgate_core::ports::{Policy, PolicyRequest};
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};
use stepgate_policy::{LoadError, PolicySet, ToolShape, Verdict};

use crate::world::{directory, principal};
use chance::Chance;
use left_out::LeftOut;
use plain::{Budget, Rule};
use tool::RandomTool;
use value::Decimal;

/// Calls of one world.
const CALLS_PER_WORLD: u64 = 50;
/// Cases of the part that runs with every test.
const CASES: u64 = 5_000;
const PRINCIPALS: [&str; 2] = ["agent", "other"];

type Args = Map<String, Value>;

/// Two tools with their policies.
struct World {
    tools: Vec<(RandomTool, Arc<Tool>)>,
    rules: Vec<Rule>,
    budget: Option<Budget>,
    set: PolicySet,
}

/// How often which answer was given.
#[derive(Default)]
struct Tally {
    cases: u64,
    /// The evaluator's answers: permit, approval, deny.
    plain: [u64; 3],
    /// The gate's.
    gate: [u64; 3],
    /// Calls that a cap lowered, and those that a budget was charged for.
    lowered: u64,
    charged: u64,
    /// Where the gate was stricter.
    stricter: u64,
    /// Calls that did not keep the tool's contract, and were not decided on.
    invalid: u64,
    /// Worlds whose policies could not be loaded.
    unloaded: u64,
}

fn contract_of(schema: &Value) -> Arc<dyn Contract> {
    stepgate_exec::servers::contract(schema).unwrap_or_else(|error| panic!("{error}: {schema}"))
}

impl World {
    /// A world of those policies that can be loaded: some are not of the right types for both tools.
    fn draw(chance: &mut Chance) -> Option<Self> {
        let tools: Vec<RandomTool> =
            ["t.one", "t.two"].map(|name| RandomTool::draw(chance, name)).into();
        let shapes: Vec<ToolShape> = tools.iter().map(shape).collect();
        let mut rules = plain::draw_rules(chance, &tools);
        let budget = Budget::draw(chance, &tools);
        let set = match load(&rules, budget.as_ref(), &shapes) {
            Ok(set) => set,
            Err(error) => {
                let told = error.to_string();
                rules.retain(|rule| !told.contains(&rule.quoted_name()));
                load(&rules, budget.as_ref(), &shapes).ok()?
            }
        };
        let known = tools.iter().map(|tool| Arc::new(known(tool))).collect::<Vec<_>>();
        Some(Self { tools: tools.into_iter().zip(known).collect(), rules, budget, set })
    }

    /// One call; what is wrong with the gate's answer to it, if anything is. Policies are not shown the
    /// arguments that are left out.
    fn try_call(
        &self,
        chance: &mut Chance,
        left_out: Option<LeftOut>,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let (tool, known) = chance.one_of(&self.tools);
        let who = *chance.one_of(&PRINCIPALS);
        let args = tool.draw_args(chance);
        let text = args.spelled(chance);
        let Ok(Value::Object(parsed)) = strict::parse(text.as_bytes(), 16, Integers::Exact) else {
            tally.invalid += 1;
            return Ok(());
        };
        if known.contract.check(&parsed).is_err() {
            tally.invalid += 1;
            return Ok(());
        }
        let mut shown = parsed.clone();
        if let Some(left_out) = left_out {
            shown.retain(|name, _| !left_out.is(tool, name, &args));
        }
        let Gate { verdict: gate, sent, due } = self.gate(who, known, shown, &parsed);
        let plain = plain::decide(&self.rules, self.budget.as_ref(), tool, who, &args);
        tally.cases += 1;
        tally.plain[plain.verdict as usize] += 1;
        tally.gate[gate as usize] += 1;
        tally.stricter += u64::from(gate > plain.verdict);
        let mut wrong = Vec::new();
        if gate < plain.verdict {
            let (gate, plain) = (gate.as_str(), plain.verdict.as_str());
            wrong.push(format!("the gate says {gate}, the evaluator {plain}"));
        }
        if gate != Verdict::Deny {
            tally.lowered += u64::from(sent != parsed);
            tally.charged += u64::from(due.is_some());
            for (name, max) in &plain.caps {
                let number = sent.get(*name).and_then(Value::as_number).map(Decimal::of);
                if number.is_some_and(|it| it.compare(Decimal::whole(*max)) == Ordering::Greater) {
                    wrong.push(format!("`{name}` is sent above its cap of {max}: {sent:?}"));
                }
            }
            if due != plain.due {
                wrong.push(format!("{due:?} is taken from the budget, not {:?}", plain.due));
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let mut told = format!("{}\n", wrong.join("; "));
        let _ = writeln!(told, "{who} calls {} with {text}", tool.name);
        for (tool, _) in &self.tools {
            let _ =
                writeln!(told, "{} (redacted {:?}): {}", tool.name, tool.redacted, tool.schema());
        }
        let policies: String = self.rules.iter().map(Rule::to_cedar).collect();
        let budget = self.budget.as_ref().map(Budget::to_toml).unwrap_or_default();
        Err(format!("{told}{policies}{budget}"))
    }

    /// What becomes of a call in the gate, if policies are shown these of its arguments.
    fn gate(&self, who: &str, tool: &Arc<Tool>, shown: Args, args: &Args) -> Gate {
        let shown = Call::Server(ServerCall { tool: Arc::clone(tool), args: shown });
        let written = shown.written();
        let decision = self.set.decide(PolicyRequest {
            principal_id: &principal(who),
            call: &written,
            facts: &Facts::default(),
        });
        let verdict = Verdict::of(&decision);
        let is_redacted = |name: &String| tool.redacted.contains(name) && args.contains_key(name);
        let amount = |due: &Due| Decimal { digits: due.amount.units().into(), exponent: -4 };
        let due = decision.due.first().map(amount);
        // As AUTHORIZE lowers: what cannot be lowered, or breaks the contract then, is denied.
        match lowered(args.clone(), &decision.caps) {
            Ok(sent)
                if !decision.caps.keys().any(is_redacted) && tool.contract.check(&sent).is_ok() =>
            {
                Gate { verdict, sent, due }
            }
            Ok(_) | Err(_) => Gate { verdict: Verdict::Deny, sent: Map::new(), due: None },
        }
    }
}

/// What becomes of a call in the gate.
struct Gate {
    verdict: Verdict,
    /// The arguments as the tool gets them.
    sent: Args,
    /// What is taken from the budget.
    due: Option<Decimal>,
}

fn load(
    rules: &[Rule],
    budget: Option<&Budget>,
    shapes: &[ToolShape],
) -> Result<PolicySet, LoadError> {
    let text: String = rules.iter().map(Rule::to_cedar).collect();
    let budgets = budget.map(Budget::to_toml).unwrap_or_default();
    let files = [("p.cedar", text.as_str()), ("budgets.toml", budgets.as_str())];
    PolicySet::load(directory(&files).path(), shapes)
}

fn shape(tool: &RandomTool) -> ToolShape {
    ToolShape {
        name: ToolName::parse(tool.name).unwrap(),
        mode: Mode::ExecuteGated,
        input_schema: tool.schema(),
        redacted: tool.redacted.clone(),
        flow: Flow::default(),
        definition_digest: Digest::ZERO,
        is_accepted: true,
    }
}

fn known(tool: &RandomTool) -> Tool {
    Tool {
        name: ToolName::parse(tool.name).unwrap(),
        mode: Mode::ExecuteGated,
        delivery: Delivery::Ask,
        definition_digest: Digest::ZERO,
        standing: Standing::Accepted,
        redacted: tool.redacted.clone(),
        erasable: Vec::new(),
        flow: Flow::default(),
        contract: contract_of(&tool.schema()),
    }
}

/// Runs so many cases from a seed on. Each world has a seed of its own, so that a case is found again.
fn run(
    cases: u64,
    seed: u64,
    left_out: Option<LeftOut>,
    tell: impl Fn(&Tally),
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut world_seed = seed;
    while tally.cases < cases {
        let mut chance = Chance::new(world_seed);
        match World::draw(&mut chance) {
            None => tally.unloaded += 1,
            Some(world) => {
                for _ in 0..CALLS_PER_WORLD {
                    let tried = world.try_call(&mut chance, left_out, &mut tally);
                    tried.map_err(|told| {
                        format!("case {}, seed {world_seed}: {told}", tally.cases)
                    })?;
                }
            }
        }
        world_seed += 1;
        if (world_seed - seed).is_multiple_of(500) {
            tell(&tally);
        }
    }
    Ok(tally)
}

impl Tally {
    fn told(&self) -> String {
        let Self { cases, plain, gate, stricter, invalid, unloaded, lowered, charged } = self;
        let share = |count: u64| format!("{count} ({}%)", count * 100 / (*cases).max(1));
        format!(
            "{cases} cases; evaluator: {} permitted, {} asked, {} denied; gate: {} permitted, {} asked, \
             {} denied; stricter {}; lowered {lowered}; charged {charged}; not valid {invalid}; policies not loaded \
             {unloaded}",
            share(plain[0]),
            share(plain[1]),
            share(plain[2]),
            share(gate[0]),
            share(gate[1]),
            share(gate[2]),
            share(*stricter),
        )
    }
}

fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn nothing_that_a_plain_evaluator_refuses_or_asks_about_is_ever_permitted() {
    let cases = number_of("STEPGATE_DIFFERENTIAL_CASES", CASES);
    let seed = number_of("STEPGATE_DIFFERENTIAL_SEED", 1);
    let start = Instant::now();
    let tally = run(cases, seed, None, |tally| {
        if cases > CASES {
            println!("{:.0} s: {}", start.elapsed().as_secs_f32(), tally.told());
        }
    });
    let tally = tally.unwrap_or_else(|told| panic!("{told}"));
    println!("{:.0} s from seed {seed}: {}", start.elapsed().as_secs_f32(), tally.told());
    // A gate that denies everything would pass; this one agrees with most of what may be done.
    let (plain_not_denied, gate_not_denied) =
        (tally.plain[0] + tally.plain[1], tally.gate[0] + tally.gate[1]);
    assert!(gate_not_denied * 100 > tally.cases * 20, "{}", tally.told());
    assert!(gate_not_denied * 100 > plain_not_denied * 60, "{}", tally.told());
    assert!(tally.gate[0] > 0 && tally.gate[1] > 0, "{}", tally.told());
    assert!(tally.lowered > 20 && tally.charged > 20, "{}", tally.told());
}

#[test]
fn a_gate_that_leaves_out_what_policies_cannot_see_is_found_laxer() {
    for left_out in LeftOut::ALL {
        let found = run(CASES, 1, Some(left_out), |_| {}).err();
        let found = found.unwrap_or_else(|| panic!("{left_out:?}: not found in {CASES} cases"));
        println!("{left_out:?}: {found}");
    }
}
