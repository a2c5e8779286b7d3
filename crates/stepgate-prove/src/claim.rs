//! "No call like this is done without a person": a claim about all calls, proven or refuted.

use stepgate_core::ids::PrincipalId;
use stepgate_policy::PolicySet;
use stepgate_policy::symbolic::{
    ArgTest, Example, Expr, Reached, Scene, World, in_group, principal_is,
};

use crate::search::{Answer, Prover};
use crate::solver::SolverError;

/// What is claimed of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// None is done unless a person approves.
    NeedsPerson,
    /// None is done at all.
    Never,
}

/// Which calls a claim is about, and what it says of them.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What is claimed.
    pub kind: ClaimKind,
    /// By whom.
    pub who: Who,
    /// The tools and core actions; all where none is named here or by its server.
    pub tools: Vec<String>,
    /// The servers.
    pub servers: Vec<String>,
    /// What holds for the arguments.
    pub args: Vec<ArgTest>,
    /// What holds besides, in Cedar's language.
    pub when: Option<String>,
}

/// The principals of a claim.
#[derive(Clone, Debug, Default)]
pub struct Who {
    /// Only this one, in the groups that the configuration says; any where there is none.
    pub principal: Option<PrincipalId>,
    /// In all of these groups.
    pub groups: Vec<String>,
    /// Whether principals are in the groups that the configuration says, and in no others.
    pub as_configured: bool,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// For each action that the claim is about.
    pub actions: Vec<OfAction>,
    /// Actions that have no argument which the claim names, and why each is not one that it is about.
    pub not_concerned: Vec<(String, String)>,
}

/// What became of a claim for one action.
#[derive(Clone, Debug, PartialEq)]
pub enum OfAction {
    /// It holds for every call.
    Proven {
        /// The action.
        action: String,
    },
    /// It does not hold for this call.
    Refuted {
        /// The call.
        example: Box<Example>,
        /// Whether a person is asked about it.
        asks_a_person: bool,
        /// The policies that decide on it.
        policies: Vec<String>,
    },
    /// Neither is known.
    Undecided {
        /// The action.
        action: String,
        /// Why.
        why: String,
    },
}

impl Proof {
    /// Whether the claim holds for every call of every action.
    pub fn is_proven(&self) -> bool {
        self.actions.iter().all(|of| matches!(of, OfAction::Proven { .. }))
    }

    /// Whether it does not hold for some call.
    pub fn is_refuted(&self) -> bool {
        self.actions.iter().any(|of| matches!(of, OfAction::Refuted { .. }))
    }
}

/// Proves a claim, or finds a call that refutes it; an error where the claim itself is wrong.
pub async fn prove(
    prover: &mut Prover,
    world: &World<'_>,
    set: &PolicySet,
    claim: &Claim,
    mut progress: impl FnMut(&str),
) -> Result<Proof, String> {
    check_names(world, claim)?;
    let mut proof = Proof { actions: Vec::new(), not_concerned: Vec::new() };
    for action in selected(world, claim) {
        match conditions(world, action, set, claim)? {
            Ok(conditions) => {
                progress(action);
                match of_action(prover, world, action, set, claim, &conditions).await? {
                    Some(of) => proof.actions.push(of),
                    None => {
                        let why = "no such call can be made".to_owned();
                        proof.not_concerned.push((action.to_owned(), why));
                    }
                }
            }
            // A tool that is named is meant: a condition that does not fit it is a mistake.
            Err(why) if claim.tools.iter().any(|tool| tool == action) => {
                return Err(format!("`{action}`: {why}"));
            }
            Err(why) => proof.not_concerned.push((action.to_owned(), why)),
        }
    }
    if proof.actions.is_empty() {
        let why: Vec<String> =
            proof.not_concerned.iter().map(|(action, why)| format!("`{action}`: {why}")).collect();
        return Err(format!("the claim is about no call at all ({})", why.join("; ")));
    }
    Ok(proof)
}

fn check_names(world: &World<'_>, claim: &Claim) -> Result<(), String> {
    let actions = world.actions();
    if let Some(tool) = claim.tools.iter().find(|tool| !actions.contains(&tool.as_str())) {
        return Err(format!("there is no tool or action `{tool}` that can be called"));
    }
    let has = |server: &String| actions.iter().any(|action| world.server(action) == server);
    if let Some(server) = claim.servers.iter().find(|server| !has(server)) {
        return Err(format!("there is no server `{server}` with a tool that can be called"));
    }
    let known: Vec<&str> = world.group_names().collect();
    match claim.who.groups.iter().find(|group| !known.contains(&group.as_str())) {
        Some(group) => Err(format!(
            "there is no group `{group}`; the groups are in `[groups]` of stepgate.toml: {}",
            known.join(", ")
        )),
        None => Ok(()),
    }
}

fn selected<'a>(world: &World<'a>, claim: &Claim) -> Vec<&'a str> {
    let is_any = claim.tools.is_empty() && claim.servers.is_empty();
    let is_selected = |action: &&str| {
        is_any
            || claim.tools.iter().any(|tool| tool == action)
            || claim.servers.iter().any(|server| server == world.server(action))
    };
    world.actions().into_iter().filter(is_selected).collect()
}

/// What holds for the calls of an action that the claim is about, without what is about principals; the inner error
/// says why the claim is about none of them.
fn conditions(
    world: &World<'_>,
    action: &str,
    set: &PolicySet,
    claim: &Claim,
) -> Result<Result<Vec<Expr>, String>, String> {
    let scene = Scene::new(world, action, &[set], &[])?;
    let Some(scene) = scene else { return Ok(Err("the policies do not know it".to_owned())) };
    let mut conditions = Vec::new();
    for test in &claim.args {
        match scene.arg_test(test)? {
            Some(test) => conditions.push(test),
            None => return Ok(Err("it has no such argument".to_owned())),
        }
    }
    if let Some(when) = &claim.when {
        match scene.condition(when) {
            Ok(condition) => conditions.push(condition),
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(conditions))
}

/// What becomes of a claim for an action; none where no call of it is like that. A proof about nothing would hide a
/// mistake in the claim.
async fn of_action(
    prover: &mut Prover,
    world: &World<'_>,
    action: &str,
    set: &PolicySet,
    claim: &Claim,
    conditions: &[Expr],
) -> Result<Option<OfAction>, String> {
    let scene = Scene::new(world, action, &[set], conditions)?;
    let scene = scene.ok_or("the policies do not know it")?;
    let condition = Expr::all(conditions.iter().cloned());
    let answered = answer(prover, &scene, set, claim, &who(world, &claim.who), &condition).await;
    let action = action.to_owned();
    match answered {
        Ok(answered) => Ok(answered.map(|answer| match answer {
            Answer::Impossible => OfAction::Proven { action },
            Answer::Example(example) => {
                let asks_a_person = matches!(scene.reached(set, &example), Ok(Reached::Asked(_)));
                let policies = scene.decided_by(set, &example);
                OfAction::Refuted { example, asks_a_person, policies }
            }
            Answer::Unconfirmed(why) => OfAction::Undecided { action, why },
        })),
        Err(error) if error.is_about_one_question() => {
            Ok(Some(OfAction::Undecided { action, why: error.to_string() }))
        }
        Err(error) => Err(error.to_string()),
    }
}

async fn answer(
    prover: &mut Prover,
    scene: &Scene<'_, '_>,
    set: &PolicySet,
    claim: &Claim,
    who: &Expr,
    condition: &Expr,
) -> Result<Option<Answer>, SolverError> {
    let meaning = scene.meaning(set).map_err(SolverError::Unsupported)?;
    let is_about = Expr::all([who.clone(), scene.of_any_resource(condition)]);
    if !prover.never_fails(scene, &is_about).await? {
        return Ok(Some(Answer::Unconfirmed("the condition of the claim can overflow".to_owned())));
    }
    let reached = match claim.kind {
        ClaimKind::NeedsPerson => meaning.done.clone(),
        ClaimKind::Never => meaning.reached(),
    };
    let refutes = |example: &Example| {
        let is_about = scene.holds(set, condition, example)? && scene.holds(set, who, example)?;
        Ok(is_about && is_reached(claim.kind, &scene.reached(set, example)?))
    };
    let wanted = Expr::all([is_about.clone(), reached]);
    let answer = prover.search(scene, &wanted, &refutes).await?;
    if answer == Answer::Impossible && prover.find(scene, &is_about).await?.is_none() {
        return Ok(None);
    }
    Ok(Some(answer))
}

fn is_reached(kind: ClaimKind, reached: &Reached) -> bool {
    match (kind, reached) {
        (_, Reached::Done) | (ClaimKind::Never, Reached::Asked(_)) => true,
        (ClaimKind::NeedsPerson, Reached::Asked(_)) | (_, Reached::Denied | Reached::Lowered) => {
            false
        }
    }
}

/// The principals that a claim is about.
fn who(world: &World<'_>, who: &Who) -> Expr {
    let mut parts: Vec<Expr> = who.principal.iter().map(principal_is).collect();
    if who.as_configured || who.principal.is_some() {
        parts.push(world.is_as_configured());
    }
    parts.extend(who.groups.iter().map(|group| in_group(group)));
    Expr::all(parts)
}
