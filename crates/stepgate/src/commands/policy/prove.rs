//! `stepgate policy prove`: a claim about all calls, proven or refuted; policies that can never match.

use std::path::Path;

use serde_json::{Value, json};
use stepgate_policy::PolicySet;
use stepgate_prove::{Claim, ClaimKind, OfAction, Proof, Prover, RuleFinding, RuleReport, Who};

use super::super::FAULT;
use super::example::{Subject, object};
use crate::cli::{ClaimArgs, ProveCommand, SolverArgs};
use crate::data_dir::DataDir;
use crate::show;

const REFUTED: u8 = 16;

pub(super) async fn prove(data: &DataDir, command: ProveCommand) -> anyhow::Result<u8> {
    match command {
        ProveCommand::Asks(args) => claim(data, ClaimKind::NeedsPerson, args).await,
        ProveCommand::Denies(args) => claim(data, ClaimKind::Never, args).await,
        ProveCommand::Rules(args) => rules(data, args).await,
    }
}

async fn claim(data: &DataDir, kind: ClaimKind, args: ClaimArgs) -> anyhow::Result<u8> {
    let (subject, set) = subject(data, args.solver.policies.as_deref()).await?;
    let shown = claimed(kind, &args);
    let claim = Claim {
        kind,
        who: Who {
            principal: args.principal,
            groups: args.group,
            as_configured: args.configured_groups,
        },
        tools: args.tool,
        servers: args.server,
        args: args.arg,
        when: args.when,
    };
    let world = subject.world(&[&set])?;
    let (proof, asked) = subject.proven(&args.solver.program, async |prover: &mut Prover| {
        let proof = stepgate_prove::prove(prover, &world, &set, &claim, progress).await?;
        Ok((proof, asked(prover)))
    })?;
    Subject::note_left_out(&world);
    match data.global.json {
        true => show::json(&json_of(&subject, &proof, &shown, &world.left_out()))?,
        false => say(&subject, &proof, &shown, &asked)?,
    }
    Ok(exit_code(&proof))
}

/// What the policies of this directory, or else those in force, decide on.
async fn subject(data: &DataDir, named: Option<&Path>) -> anyhow::Result<(Subject, PolicySet)> {
    let in_force = data.policies(&data.load_config()?);
    let directory = named.unwrap_or(&in_force);
    let subject = Subject::of(data, &[directory]).await?;
    let set = subject.load(directory)?;
    Ok((subject, set))
}

fn exit_code(proof: &Proof) -> u8 {
    match (proof.is_proven(), proof.is_refuted()) {
        (true, _) => 0,
        (false, true) => REFUTED,
        (false, false) => FAULT,
    }
}

fn progress(what: &str) {
    tracing::debug!(what, "a proof goes on");
}

fn asked(prover: &Prover) -> String {
    let solver = prover.solver();
    format!("{} questions to {}", solver.asked(), show::printable(solver.version()))
}

fn claimed(kind: ClaimKind, args: &ClaimArgs) -> String {
    let servers = args.server.iter().map(|name| format!("the server {name}"));
    let of: Vec<String> = args.tool.iter().cloned().chain(servers).collect();
    let tests = args.arg.iter().map(ToString::to_string).chain(args.when.clone());
    let tests: Vec<String> = tests.collect();
    let mut words = "no call".to_owned();
    if !of.is_empty() {
        words.push_str(&format!(" of {}", of.join(", ")));
    }
    if let Some(principal) = &args.principal {
        words.push_str(&format!(" by {principal}"));
    }
    if !args.group.is_empty() {
        words.push_str(&format!(" by a principal in {}", args.group.join(", ")));
    }
    if !tests.is_empty() {
        words.push_str(&format!(", where {},", tests.join(" and ")));
    }
    words.push_str(match kind {
        ClaimKind::NeedsPerson => " is done without a person",
        ClaimKind::Never => " is done",
    });
    show::printable(&words)
}

fn say(subject: &Subject, proof: &Proof, claim: &str, asked: &str) -> anyhow::Result<()> {
    for of in &proof.actions {
        match of {
            OfAction::Proven { .. } => {}
            OfAction::Refuted { example, asks_a_person, policies } => {
                let done = if *asks_a_person { "if a person approves" } else { "without a person" };
                show::say(format!("{} would be done {done}:", example.action))?;
                show::say(format!("  {}", subject.explain(example)))?;
                show::say(format!("  decided by {}", show::printable(&policies.join(", "))))?;
            }
            OfAction::Undecided { action, why } => {
                show::say(show::printable(&format!("{action} is not decided: {why}")))?;
            }
        }
    }
    let verdict = match exit_code(proof) {
        0 => "proven",
        REFUTED => "does not hold",
        _ => "neither proven nor refuted",
    };
    show::say(format!("{verdict}: {claim}"))?;
    let not_concerned = match proof.not_concerned.len() {
        0 => String::new(),
        count => format!("; {count} have no such call: {}", names_of(proof)),
    };
    show::note(format!("{} actions, {asked}{not_concerned}", proof.actions.len()));
    Ok(())
}

/// The actions that a claim is not about, up to a limit.
fn names_of(proof: &Proof) -> String {
    const SHOWN_MAX: usize = 8;
    let names = proof.not_concerned.iter().map(|(action, _)| action.as_str());
    let mut names: Vec<&str> = names.take(SHOWN_MAX + 1).collect();
    if names.len() > SHOWN_MAX {
        names.truncate(SHOWN_MAX);
        names.push("…");
    }
    show::printable(&names.join(", "))
}

fn json_of(subject: &Subject, proof: &Proof, claim: &str, left_out: &[&str]) -> Value {
    let actions = proof.actions.iter().map(|of| match of {
        OfAction::Proven { action } => json!({ "action": action, "answer": "proven" }),
        OfAction::Refuted { example, asks_a_person, policies } => json!({
            "action": example.action,
            "answer": "refuted",
            "asks_a_person": asks_a_person,
            "policies": policies,
            "example": object(subject, example),
        }),
        OfAction::Undecided { action, why } => {
            json!({ "action": action, "answer": "undecided", "why": why })
        }
    });
    let not_concerned: Vec<Value> = proof
        .not_concerned
        .iter()
        .map(|(action, why)| json!({ "action": action, "why": why }))
        .collect();
    json!({
        "claim": claim,
        "proven": proof.is_proven(),
        "actions": actions.collect::<Vec<_>>(),
        "not_concerned": not_concerned,
        "left_out": left_out,
    })
}

async fn rules(data: &DataDir, args: SolverArgs) -> anyhow::Result<u8> {
    let (subject, set) = subject(data, args.policies.as_deref()).await?;
    let world = subject.world(&[&set])?;
    let (reports, asked) = subject.proven(&args.program, async |prover: &mut Prover| {
        let reports = stepgate_prove::rules(prover, &world, &set, progress).await?;
        Ok((reports, asked(prover)))
    })?;
    match data.global.json {
        true => show::json(&reports)?,
        false => say_rules(&reports, &asked)?,
    }
    let has = |wanted: fn(&RuleFinding) -> bool| reports.iter().any(|it| wanted(&it.finding));
    Ok(match has(|finding| *finding == RuleFinding::NeverMatches) {
        true => REFUTED,
        false if has(|finding| matches!(finding, RuleFinding::Undecided(_))) => FAULT,
        false => 0,
    })
}

fn say_rules(reports: &[RuleReport], asked: &str) -> anyhow::Result<()> {
    for RuleReport { name, file, line, finding } in reports {
        let words = match finding {
            RuleFinding::Needed => continue,
            RuleFinding::NeverMatches => "can never match".to_owned(),
            RuleFinding::ChangesNothing => {
                "changes nothing: every call is decided like that without it".to_owned()
            }
            RuleFinding::Waits => {
                "matches nothing yet: it is about tools that cannot be called now".to_owned()
            }
            RuleFinding::Undecided(why) => format!("is not decided: {why}"),
        };
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        show::say(show::printable(&format!("{file}{line}: `{name}` {words}")))?;
    }
    let needed = reports.iter().filter(|report| report.finding == RuleFinding::Needed).count();
    show::say(format!("{needed} of {} policies can match and change something", reports.len()))?;
    show::note(asked);
    Ok(())
}
