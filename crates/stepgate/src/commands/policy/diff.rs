//! `stepgate policy diff`: what a change of policies permits and refuses.

use serde_json::{Value, json};
use stepgate_prove::{ActionDiff, ChangeKind, Difference, Prover};

use super::super::FAULT;
use super::example::{Subject, object};
use super::replay::CHANGED;
use crate::cli::DiffArgs;
use crate::data_dir::DataDir;
use crate::show;

pub(super) async fn diff(data: &DataDir, args: DiffArgs) -> anyhow::Result<u8> {
    let subject = Subject::of(data, &[&args.new, &args.old]).await?;
    let (old, new) = (subject.load(&args.old)?, subject.load(&args.new)?);
    let world = subject.world(&[&old, &new])?;
    let difference = subject.proven(&args.program, async |prover: &mut Prover| {
        let progress = |what: &str| tracing::debug!(what, "a comparison goes on");
        stepgate_prove::diff(prover, &world, &old, &new, progress).await
    })?;
    Subject::note_left_out(&world);
    match data.global.json {
        true => show::json(&json_of(&subject, &difference, &world.left_out()))?,
        false => say(&subject, &difference)?,
    }
    Ok(exit_code(&difference, &args))
}

fn exit_code(difference: &Difference, args: &DiffArgs) -> u8 {
    let has_new = difference.changes().any(|change| change.kind.permits_more());
    let has_change = difference.changes().next().is_some();
    match (args.fail_on_new && has_new) || (args.fail_on_change && has_change) {
        true => CHANGED,
        // What is not known may be something new.
        false if difference.is_undecided() => FAULT,
        false => 0,
    }
}

/// A change in words, to follow "calls that".
fn words(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::DoneWithoutPerson => "are newly done without a person",
        ChangeKind::DoneWithPerson => "are newly done if a person approves",
        ChangeKind::FewerPeople => "need fewer or other people to approve",
        ChangeKind::Refused => "are newly refused, or lowered",
        ChangeKind::AsksPerson => "newly need a person",
        ChangeKind::MorePeople => "need more or other people to approve",
    }
}

/// An action in a word.
fn verdict(action: &ActionDiff) -> &'static str {
    let has = |more: bool| action.changes.iter().any(|change| change.kind.permits_more() == more);
    match (has(true), has(false), action.undecided.is_empty()) {
        (true, true, _) => "permits more, and less",
        (true, false, _) => "permits more",
        (false, _, false) => "not decided",
        (false, true, true) => "stricter",
        (false, false, true) => "equal",
    }
}

fn say(subject: &Subject, difference: &Difference) -> anyhow::Result<()> {
    let is_equal = |action: &&ActionDiff| verdict(action) == "equal";
    for action in difference.actions.iter().filter(|action| !is_equal(action)) {
        show::say(show::printable(&format!("{}: {}", action.action, verdict(action))))?;
        for change in &action.changes {
            show::say(format!("  calls {}:", words(change.kind)))?;
            show::say(format!("    {}", subject.explain(&change.example)))?;
            let by = |policies: &[String]| match policies {
                [] => "no policy".to_owned(),
                policies => policies.join(", "),
            };
            let (old, new) = (by(&change.old_policies), by(&change.new_policies));
            show::say(show::printable(&format!("    before by {old}, now by {new}")))?;
        }
        for why in &action.undecided {
            show::say(show::printable(&format!("  not decided: {why}")))?;
        }
    }
    let equal = difference.actions.iter().filter(is_equal).count();
    let more = difference.changes().any(|change| change.kind.permits_more());
    let total = match (more, difference.is_undecided()) {
        (true, _) => "the change permits something new",
        (false, true) => "whether the change permits something new is not decided",
        (false, false) => "the change permits nothing new",
    };
    show::say(format!("{total}; {equal} of {} actions are decided alike", difference.actions.len()))
}

fn json_of(subject: &Subject, difference: &Difference, left_out: &[&str]) -> Value {
    let actions = difference.actions.iter().map(|action| {
        let changes = action.changes.iter().map(|change| {
            json!({
                "kind": change.kind,
                "permits_more": change.kind.permits_more(),
                "old_policies": change.old_policies,
                "new_policies": change.new_policies,
                "example": object(subject, &change.example),
            })
        });
        json!({
            "action": action.action,
            "changes": changes.collect::<Vec<_>>(),
            "undecided": action.undecided,
        })
    });
    let more = difference.changes().any(|change| change.kind.permits_more());
    json!({
        "permits_more": more,
        "undecided": difference.is_undecided(),
        "actions": actions.collect::<Vec<_>>(),
        "left_out": left_out,
    })
}
