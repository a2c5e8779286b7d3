//! What a change of policies permits, and what it refuses: for all calls.

use serde::Serialize;
use stepgate_core::approvers::Required;
use stepgate_policy::PolicySet;
use stepgate_policy::symbolic::{Example, Expr, Meaning, Reached, Scene, World};

use crate::search::{Answer, Prover};

/// How decisions on some calls change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// They are done, and no person is asked; before they were refused, or a person was asked.
    DoneWithoutPerson,
    /// They are done if a person approves; before they were refused.
    DoneWithPerson,
    /// Fewer or other people must approve.
    FewerPeople,
    /// They are refused; before they were done, perhaps with a person.
    Refused,
    /// A person is asked; before none was.
    AsksPerson,
    /// More or other people must approve.
    MorePeople,
}

impl ChangeKind {
    /// All of them, those that permit more first.
    pub const ALL: [Self; 6] = [
        Self::DoneWithoutPerson,
        Self::DoneWithPerson,
        Self::FewerPeople,
        Self::Refused,
        Self::AsksPerson,
        Self::MorePeople,
    ];

    /// Whether such a change permits something new.
    pub fn permits_more(self) -> bool {
        match self {
            Self::DoneWithoutPerson | Self::DoneWithPerson | Self::FewerPeople => true,
            Self::Refused | Self::AsksPerson | Self::MorePeople => false,
        }
    }
}

/// A change, with a call that shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// How decisions change.
    pub kind: ChangeKind,
    /// A call.
    pub example: Box<Example>,
    /// The policies that decided on it.
    pub old_policies: Vec<String>,
    /// The policies that would.
    pub new_policies: Vec<String>,
}

/// What changes for one action.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionDiff {
    /// The action.
    pub action: String,
    /// The changes; none where all calls are decided alike.
    pub changes: Vec<Change>,
    /// What is not known, and why.
    pub undecided: Vec<String>,
}

/// What changes for all actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// For each action.
    pub actions: Vec<ActionDiff>,
}

impl Difference {
    /// All changes.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.actions.iter().flat_map(|action| &action.changes)
    }

    /// Whether something is not known.
    pub fn is_undecided(&self) -> bool {
        self.actions.iter().any(|action| !action.undecided.is_empty())
    }
}

/// Compares two sets.
pub async fn diff(
    prover: &mut Prover,
    world: &World<'_>,
    old: &PolicySet,
    new: &PolicySet,
    mut progress: impl FnMut(&str),
) -> Result<Difference, String> {
    let mut actions = Vec::new();
    for action in world.actions() {
        let Some(scene) = Scene::new(world, action, &[old, new], &[])? else { continue };
        progress(action);
        actions.push(of_action(prover, &scene, action, old, new).await?);
    }
    Ok(Difference { actions })
}

async fn of_action(
    prover: &mut Prover,
    scene: &Scene<'_, '_>,
    action: &str,
    old: &PolicySet,
    new: &PolicySet,
) -> Result<ActionDiff, String> {
    let mut diff =
        ActionDiff { action: action.to_owned(), changes: Vec::new(), undecided: Vec::new() };
    if let Some(why) = scene.incomparable(old, new)? {
        diff.undecided.push(why);
        return Ok(diff);
    }
    // The same policies decide alike: no solver is needed to know that.
    if old.decides_like(new, action) {
        return Ok(diff);
    }
    let (before, after) = (scene.meaning(old)?, scene.meaning(new)?);
    for meaning in [&before, &after] {
        diff.undecided.extend(failing(prover, scene, meaning).await?);
    }
    for kind in ChangeKind::ALL {
        let wanted = wanted(kind, &before, &after);
        let confirm = |example: &Example| {
            let reached = (scene.reached(old, example)?, scene.reached(new, example)?);
            Ok(kind_of(&reached.0, &reached.1).contains(&kind))
        };
        match prover.search(scene, &wanted, &confirm).await {
            Ok(Answer::Impossible) => {}
            Ok(Answer::Example(example)) => diff.changes.push(Change {
                kind,
                old_policies: scene.decided_by(old, &example),
                new_policies: scene.decided_by(new, &example),
                example,
            }),
            Ok(Answer::Unconfirmed(why)) => diff.undecided.push(why),
            Err(error) if error.is_about_one_question() => diff.undecided.push(error.to_string()),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(diff)
}

/// Policies that can fail to be evaluated. The call is then denied, and whether the other set decides like that
/// cannot be said in Cedar's language.
async fn failing(
    prover: &mut Prover,
    scene: &Scene<'_, '_>,
    meaning: &Meaning,
) -> Result<Vec<String>, String> {
    let mut failing = Vec::new();
    for (name, expr) in meaning.can_fail() {
        match prover.never_fails(scene, expr).await {
            Ok(true) => {}
            Ok(false) => failing.push(format!(
                "`{name}` can overflow; calls for which it does are denied, and not compared"
            )),
            Err(error) if error.is_about_one_question() => failing.push(error.to_string()),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(failing)
}

fn wanted(kind: ChangeKind, before: &Meaning, after: &Meaning) -> Expr {
    let not = |expr: &Expr| expr.clone().negated();
    match kind {
        ChangeKind::DoneWithoutPerson => Expr::all([after.done.clone(), not(&before.done)]),
        ChangeKind::DoneWithPerson => Expr::all([after.asked.clone(), before.reached().negated()]),
        ChangeKind::Refused => Expr::all([before.reached(), after.reached().negated()]),
        ChangeKind::AsksPerson => Expr::all([before.done.clone(), after.asked.clone()]),
        ChangeKind::FewerPeople => uncovered(before, after),
        ChangeKind::MorePeople => uncovered(after, before),
    }
}

/// That both ask, and one requires what the other does not.
fn uncovered(one: &Meaning, other: &Meaning) -> Expr {
    let of = |(required, asked): &(Required, Expr)| {
        let covering = other.required.iter().filter(|(by, _)| covers(by, required));
        let covered = Expr::any(covering.map(|(_, asked)| asked.clone()));
        Expr::all([asked.clone(), other.asked.clone(), covered.negated()])
    };
    Expr::any(one.required.iter().map(of))
}

/// Whether people who are enough for one requirement are enough for another.
fn covers(by: &Required, required: &Required) -> bool {
    let are_allowed = required.approvers.is_empty() || by.approvers == required.approvers;
    are_allowed && by.quorum >= required.quorum
}

/// How a decision changes.
fn kind_of(old: &Reached, new: &Reached) -> Vec<ChangeKind> {
    match (old, new) {
        (Reached::Denied | Reached::Lowered | Reached::Asked(_), Reached::Done) => {
            vec![ChangeKind::DoneWithoutPerson]
        }
        (Reached::Denied | Reached::Lowered, Reached::Asked(_)) => vec![ChangeKind::DoneWithPerson],
        (Reached::Done | Reached::Asked(_), Reached::Denied | Reached::Lowered) => {
            vec![ChangeKind::Refused]
        }
        (Reached::Done, Reached::Asked(_)) => vec![ChangeKind::AsksPerson],
        (Reached::Asked(old), Reached::Asked(new)) => {
            let lacks = |all: &std::collections::BTreeSet<Required>, one: &Required| {
                !all.iter().any(|by| covers(by, one))
            };
            let fewer = old.iter().any(|one| lacks(new, one)).then_some(ChangeKind::FewerPeople);
            let more = new.iter().any(|one| lacks(old, one)).then_some(ChangeKind::MorePeople);
            fewer.into_iter().chain(more).collect()
        }
        (Reached::Done, Reached::Done)
        | (Reached::Denied | Reached::Lowered, Reached::Denied | Reached::Lowered) => vec![],
    }
}
