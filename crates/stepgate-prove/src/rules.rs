//! Policies that can never match, and policies that change nothing.

use serde::Serialize;
use stepgate_core::approvers::Required;
use stepgate_policy::PolicySet;
use stepgate_policy::symbolic::{Example, Expr, Meaning, Scene, World};

use crate::search::{Answer, Prover};
use crate::solver::SolverError;

/// What is known about a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "why")]
pub enum RuleFinding {
    /// It matches some call, and without it some call would be decided otherwise, or some argument would not be erasable.
    Needed,
    /// It matches no call at all.
    NeverMatches,
    /// It matches some call, but every call would be decided like that without it.
    ChangesNothing,
    /// It matches no call now, and it is also about tools that cannot be called, or do not exist, yet.
    Waits,
    /// Neither is known.
    Undecided(String),
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleReport {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// The line where it begins.
    pub line: Option<usize>,
    /// What is known about it.
    pub finding: RuleFinding,
}

/// Looks at each policy of a set.
pub async fn rules(
    prover: &mut Prover,
    world: &World<'_>,
    set: &PolicySet,
    mut progress: impl FnMut(&str),
) -> Result<Vec<RuleReport>, String> {
    let mut reports = Vec::new();
    for rule in set.shown() {
        progress(rule.name);
        let finding = match of_rule(prover, world, set, rule.name).await {
            Ok(RuleFinding::ChangesNothing) if !rule.erasable.is_empty() => RuleFinding::Needed,
            Ok(finding) => finding,
            Err(error) if error.is_about_one_question() => {
                RuleFinding::Undecided(error.to_string())
            }
            Err(error) => return Err(error.to_string()),
        };
        let (name, file) = (rule.name.to_owned(), rule.file.to_owned());
        reports.push(RuleReport { name, file, line: rule.line, finding });
    }
    Ok(reports)
}

async fn of_rule(
    prover: &mut Prover,
    world: &World<'_>,
    set: &PolicySet,
    rule: &str,
) -> Result<RuleFinding, SolverError> {
    let mut scenes = Vec::new();
    let actions = world.actions();
    for action in actions.iter().filter(|action| set.policies_for(action).any(|it| it == rule)) {
        let scene = Scene::new(world, action, &[set], &[]).map_err(SolverError::Unsupported)?;
        scenes.extend(scene);
    }
    // What cannot be called now may match later.
    let is_about_others =
        world.left_out().iter().any(|tool| set.policies_for(tool).any(|it| it == rule));
    if scenes.is_empty() {
        return Ok(RuleFinding::Waits);
    }
    let mut undecided = None;
    let mut can_match = false;
    for scene in &scenes {
        match matches(prover, scene, set, rule).await? {
            Answer::Impossible => {}
            Answer::Example(_) => {
                can_match = true;
                break;
            }
            Answer::Unconfirmed(why) => undecided = Some(why),
        }
    }
    match (can_match, undecided) {
        (false, None) if is_about_others => return Ok(RuleFinding::Waits),
        (false, None) => return Ok(RuleFinding::NeverMatches),
        (false, Some(why)) => return Ok(RuleFinding::Undecided(why)),
        (true, _) => {}
    }
    for scene in &scenes {
        if changes_something(prover, scene, set, rule).await? {
            return Ok(RuleFinding::Needed);
        }
    }
    Ok(if is_about_others { RuleFinding::Needed } else { RuleFinding::ChangesNothing })
}

async fn matches(
    prover: &mut Prover,
    scene: &Scene<'_, '_>,
    set: &PolicySet,
    rule: &str,
) -> Result<Answer, SolverError> {
    let meaning = scene.meaning(set).map_err(SolverError::Unsupported)?;
    let Some(wanted) = meaning.rule(rule) else { return Ok(Answer::Impossible) };
    let confirm = |example: &Example| scene.matches(set, rule, example);
    prover.search(scene, wanted, &confirm).await
}

/// Whether some call of the action would be decided otherwise without the policy. A policy that can fail to be
/// evaluated denies calls, so it counts as one that changes something.
async fn changes_something(
    prover: &mut Prover,
    scene: &Scene<'_, '_>,
    set: &PolicySet,
    rule: &str,
) -> Result<bool, SolverError> {
    let with = scene.meaning(set).map_err(SolverError::Unsupported)?;
    if with.can_fail().any(|(name, _)| name == rule) {
        return Ok(true);
    }
    let without = scene.meaning_without(set, Some(rule)).map_err(SolverError::Unsupported)?;
    Ok(prover.find(scene, &differ(&with, &without)).await?.is_some())
}

/// That two sets do not decide alike.
fn differ(one: &Meaning, other: &Meaning) -> Expr {
    let differ = |one: &Expr, other: &Expr| {
        Expr::any([
            Expr::all([one.clone(), other.clone().negated()]),
            Expr::all([other.clone(), one.clone().negated()]),
        ])
    };
    let never = Expr::any([]);
    let people = one.required.iter().map(|(required, asked)| {
        let is_same = |(of, _): &&(Required, Expr)| of == required;
        let of_other = other.required.iter().find(is_same).map_or(&never, |(_, asked)| asked);
        differ(asked, of_other)
    });
    let decisions = [differ(&one.done, &other.done), differ(&one.asked, &other.asked)];
    Expr::any(decisions.into_iter().chain(people))
}
