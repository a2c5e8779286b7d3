//! Arguments that a tool gets and policies cannot see. A call is denied where a policy reads one: a
//! condition that `has` makes false would otherwise let the call pass by how a value is written.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::rule::Rule;
use crate::shape::{Attribute, Record, Shape};

/// The largest number up to which a double tells every integer from its neighbour: 2^53 − 1.
pub(crate) const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

/// Why policies cannot see an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Cedar has no fractions.
    Fraction,
    /// Beyond the integers that a double holds exactly.
    TooLarge,
    /// Cedar has no null.
    Null,
    /// The schema gives several types, or none that Cedar has.
    Untyped,
    /// The value is of another type than its schema says.
    OtherType,
    /// A member that the schema allows without naming it.
    NotInSchema,
    /// The configuration redacts it.
    Redacted,
    /// Nested deeper than `ARGS_DEPTH_MAX`.
    TooDeep,
    /// More arguments than `ATTRIBUTES_MAX`.
    TooMany,
    /// The call omits it, and the schema declares several defaults, or one that cannot be found.
    UnclearDefault,
}

impl Cause {
    /// What the argument is, after "it is".
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fraction => "a fraction",
            Self::TooLarge => "beyond ±9007199254740991",
            Self::Null => "null",
            Self::Untyped => "of several types, or of none, in the tool's schema",
            Self::OtherType => "not of the type in the tool's schema",
            Self::NotInSchema => "not named in the tool's schema",
            Self::Redacted => "redacted",
            Self::TooDeep => "nested too deep",
            Self::TooMany => "beyond the number of arguments that policies see",
            Self::UnclearDefault => "omitted, and its default is unclear in the tool's schema",
        }
    }
}

/// An argument that the tool gets and policies cannot see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// Where it is, from the arguments down.
    pub(crate) path: Vec<String>,
    pub(crate) cause: Cause,
    /// Whether one of its elements is the cause.
    pub(crate) in_element: bool,
    /// Whether the call omits it, and the tool acts on its declared default.
    pub(crate) by_default: bool,
}

impl Unseen {
    /// `volume`, `options.level`.
    pub(crate) fn name(&self) -> String {
        self.path.join(".")
    }

    /// Why it cannot be seen, after its name.
    pub(crate) fn why(&self) -> String {
        let Self { cause, in_element, by_default, .. } = self;
        let subject = match (in_element, by_default) {
            (false, false) => "it is",
            (false, true) => "its default is",
            (true, false) => "an element of it is or has something",
            (true, true) => "an element of its default is or has something",
        };
        match cause {
            Cause::UnclearDefault => format!("it is {}", cause.as_str()),
            Cause::Fraction
            | Cause::TooLarge
            | Cause::Null
            | Cause::Untyped
            | Cause::OtherType
            | Cause::NotInSchema
            | Cause::Redacted
            | Cause::TooDeep
            | Cause::TooMany => format!("{subject} {}", cause.as_str()),
        }
    }
}

/// An unseen argument of a call, as it is explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedUnseen {
    /// `volume`, `options.level`.
    pub argument: String,
    /// Why policies cannot see it.
    pub why: String,
    /// The policies that read it; one is enough to deny the call.
    pub read_by: Vec<String>,
}

/// The unseen arguments of a call, each with those of the policies that read it.
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

/// An argument that a policy reads, and which of its values policies cannot see.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlindSpot {
    pub(crate) argument: String,
    pub(crate) causes: BTreeSet<Cause>,
    is_list: bool,
}

impl BlindSpot {
    /// `where it is a fraction or null`.
    pub(crate) fn when(&self) -> String {
        let causes: Vec<&str> = self.causes.iter().map(|cause| cause.as_str()).collect();
        let subject = if self.is_list { "an element of it is or has something" } else { "it is" };
        format!("where {subject} {}", causes.join(" or "))
    }
}

/// What a policy that reads these paths does not see of a tool's arguments.
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

impl BlindSpot {
    fn of(argument: String, cause: Cause) -> Self {
        Self { argument, causes: BTreeSet::from([cause]), is_list: false }
    }
}
