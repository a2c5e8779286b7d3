//! Arguments that a tool gets and policies cannot see. A call is denied if a policy reads one: otherwise the
//! spelling of a value could make a `has` condition false and let the call pass.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cause::Cause;
use crate::rule::Rule;
use crate::shape::{Attribute, Record, Shape};
use crate::view::Unseen;

/// An unseen argument of a call, for an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedUnseen {
    /// `volume`, `options.level`.
    pub argument: String,
    /// Why policies cannot see it.
    pub why: String,
    /// The policies that read it; one is enough to deny the call.
    pub read_by: Vec<String>,
}

/// The unseen arguments of a call, each with the policies that read it.
pub(crate) fn read_by<'a>(
    unseen: &[Unseen],
    candidates: impl Iterator<Item = &'a Rule> + Clone,
) -> Vec<ExplainedUnseen> {
    let explained = unseen.iter().map(|unseen| {
        let readers = candidates.clone().filter(|rule| rule.reads.touches(&unseen.path));
        ExplainedUnseen {
            argument: unseen.name(),
            why: unseen.why(),
            read_by: readers.map(|rule| rule.name.clone()).collect(),
        }
    });
    explained.collect()
}

/// Why a call is denied, for the record: the first unseen argument that a policy reads.
pub(crate) fn refusal(explained: &[ExplainedUnseen]) -> Option<String> {
    let ExplainedUnseen { argument, why, read_by } =
        explained.iter().find(|unseen| !unseen.read_by.is_empty())?;
    let readers: Vec<String> = read_by.iter().map(|name| format!("`{name}`")).collect();
    Some(format!(
        "policies cannot see `{argument}`, because {why}, and {} reads it",
        readers.join(", ")
    ))
}

/// An argument that a policy reads, and the kinds of its values that policies cannot see.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlindSpot {
    argument: String,
    pub(crate) causes: BTreeSet<Cause>,
    is_list: bool,
}

impl BlindSpot {
    fn of(argument: String, cause: Cause) -> Self {
        Self { argument, causes: BTreeSet::from([cause]), is_list: false }
    }

    /// What the policy reads and when it cannot see it: `where it is a fraction or null`.
    pub(crate) fn told(&self, rule: &Rule) -> String {
        let causes: Vec<&str> = self.causes.iter().map(|cause| cause.as_str()).collect();
        let subject = if self.is_list { "an element of it is or has something" } else { "it is" };
        let (policy, argument, causes) = (&rule.name, &self.argument, causes.join(" or "));
        format!("`{policy}` reads `{argument}`, and cannot see it where {subject} {causes}")
    }
}

/// The values of a tool's arguments that a policy reads and cannot see.
pub(crate) fn blind_spots(rule: &Rule, args: &Record) -> BTreeSet<BlindSpot> {
    let mut spots = BTreeSet::new();
    for path in rule.reads.paths() {
        spots_in(args, path, "", &mut spots);
    }
    spots
}

fn spots_in(record: &Record, path: &[String], prefix: &str, spots: &mut BTreeSet<BlindSpot>) {
    let Some((name, rest)) = path.split_first() else {
        for (name, attribute) in &record.attributes {
            spots_of(attribute, &[], format!("{prefix}{name}"), spots);
        }
        if record.is_open {
            spots.insert(BlindSpot::of(format!("{prefix}*"), Cause::NotInSchema));
        }
        return;
    };
    let argument = format!("{prefix}{name}");
    match record.attributes.get(name) {
        Some(attribute) => spots_of(attribute, rest, argument, spots),
        None if record.is_open => {
            spots.insert(BlindSpot::of(argument, Cause::NotInSchema));
        }
        None => {}
    }
}

fn spots_of(
    attribute: &Attribute,
    rest: &[String],
    argument: String,
    spots: &mut BTreeSet<BlindSpot>,
) {
    let shape = match &attribute.seen {
        Ok(shape) => shape,
        Err(cause) => {
            spots.insert(BlindSpot::of(argument, *cause));
            return;
        }
    };
    if let Shape::Record(inner) = shape {
        spots_in(inner, rest, &format!("{argument}."), spots);
    }
    if !attribute.blind.is_empty() {
        let is_list = matches!(shape, Shape::Set(_));
        spots.insert(BlindSpot { argument, causes: attribute.blind.clone(), is_list });
    }
}
