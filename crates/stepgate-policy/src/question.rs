//! The questions to Cedar about a call: one request, or two for RENAME_FILE.

use std::collections::{BTreeSet, HashSet};

use cedar_policy::{Context, Entities, Entity, EntityUid, Request, RestrictedExpression};
use stepgate_core::action::{CORE_SERVER, CoreCall};
use stepgate_core::call::{Call, ServerCall};
use stepgate_core::facts::{FactNeeds, Facts};
use stepgate_core::json::{Map, Value};
use stepgate_core::label::Label;
use stepgate_core::origin::{self, Origin};
use stepgate_core::path::SandboxPath;

use crate::budget::{Budget, Priced};
use crate::schema::CORE_GROUP;
use crate::shape::Record;
use crate::subject::Subject;
use crate::view::{Unseen, View, view};
use crate::vocabulary::{Kind, LABEL, ORIGIN, PATH, SERVER, TOOL, WINDOW, decimal};
use crate::who::Who;

/// One request to Cedar, with its entities.
pub(crate) struct CedarQuestion {
    pub(crate) request: Request,
    pub(crate) entities: Entities,
    pub(crate) resource: EntityUid,
}

/// All questions about a call.
pub(crate) struct Asked {
    /// At least one.
    pub(crate) questions: Vec<CedarQuestion>,
    /// Arguments that the tool gets and policies cannot see.
    pub(crate) unseen: Vec<Unseen>,
    /// The declared defaults that policies see, by JSON Pointer.
    pub(crate) defaults: Map<String, Value>,
    /// What the call would take from each budget that covers it.
    pub(crate) priced: Vec<Priced>,
}

/// Why a call cannot be put to Cedar; then it is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unaskable {
    #[error("the policies were loaded without this tool; reload them")]
    UnknownAction,
    #[error("the tool's mode has changed since the policies were loaded; reload them")]
    OtherMode,
    /// The tool's definition has changed since the policies were loaded: they would decide on arguments and
    /// defaults that the tool does not have.
    #[error(
        "the tool's definition is not the one that the policies in force were loaded for; see why they were \
         not reloaded"
    )]
    OtherDefinition,
    #[error("the arguments cannot be put to the policies")]
    Values,
}

/// What is known beside a call, and what of it the policies about its action read.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    pub(crate) facts: &'a Facts,
    /// The origins of the call's targets.
    pub(crate) targets: &'a BTreeSet<Origin>,
    pub(crate) needs: FactNeeds,
    /// Every origin that policies can name, except that of the agent.
    pub(crate) origins: &'a BTreeSet<Origin>,
    /// The budgets of the set.
    pub(crate) budgets: &'a [Budget],
}

pub(crate) fn asked(
    action: &EntityUid,
    subject: &Subject,
    who: &Who,
    call: &Call,
    beside: Beside<'_>,
) -> Result<Asked, Unaskable> {
    let principal = who.principal.clone();
    match (call, subject) {
        (Call::Core(call), Subject::Core { action: entity }) => {
            let context = core_context(call, beside).ok_or(Unaskable::Values)?;
            let resources = core_resources(call);
            let ask = |resource: Entity| {
                let uid = resource.uid();
                let entities = [entity.clone(), resource].into_iter().chain(who.member());
                let entities = Entities::from_entities(entities, None);
                let entities = entities.map_err(|_| Unaskable::Values)?;
                question(action, principal.clone(), uid, context.clone(), entities)
            };
            let questions = resources.into_iter().map(ask).collect::<Result<_, _>>()?;
            Ok(Asked { questions, unseen: Vec::new(), defaults: Map::new(), priced: Vec::new() })
        }
        (Call::Server(call), Subject::Tool { mode, definition, resource, entities, args }) => {
            if call.tool.mode != *mode {
                return Err(Unaskable::OtherMode);
            }
            if *definition != Some(call.tool.definition_digest) {
                return Err(Unaskable::OtherDefinition);
            }
            let priced = priced(beside.budgets, who, call, args, beside.facts);
            let View { args, unseen, defaults } =
                view(args, &call.args, &call.tool.redacted).ok_or(Unaskable::Values)?;
            let unknown = origin::agents();
            let beside = match call.has_default_target(&defaults) {
                true => Beside { targets: &unknown, ..beside },
                false => beside,
            };
            let whose = (mode.as_str(), call.tool.name.server());
            let context =
                context(args, &unseen, whose, beside, &priced).ok_or(Unaskable::Values)?;
            let entities = match who.member() {
                Some(member) => entities.clone().add_entities([member], None),
                None => Ok(entities.clone()),
            };
            let entities = entities.map_err(|_| Unaskable::Values)?;
            let question = question(action, principal, resource.clone(), context, entities)?;
            Ok(Asked { questions: vec![question], unseen, defaults, priced })
        }
        (Call::Core(_), Subject::Tool { .. }) | (Call::Server(_), Subject::Core { .. }) => {
            Err(Unaskable::UnknownAction)
        }
    }
}

/// The schema is not passed to Cedar again: contexts conform to it by construction, and checking it costs
/// more than deciding. A test checks it for random calls.
fn question(
    action: &EntityUid,
    principal: EntityUid,
    resource: EntityUid,
    context: Context,
    entities: Entities,
) -> Result<CedarQuestion, Unaskable> {
    let request = Request::new(principal, action.clone(), resource.clone(), context, None)
        .map_err(|_| Unaskable::Values)?;
    Ok(CedarQuestion { request, entities, resource })
}

/// The resources of a core action: its paths, or the action itself where it has none.
fn core_resources(call: &CoreCall) -> Vec<Entity> {
    let paths = call.paths();
    if paths.is_empty() {
        let tool = TOOL.entity(call.action().name());
        let parents = HashSet::from([SERVER.entity(CORE_SERVER)]);
        return vec![Entity::new_no_attrs(tool, parents)];
    }
    paths.into_iter().map(path_entity).collect()
}

/// A path has every directory above it as a parent, so that one entity is enough for `in`.
fn path_entity(path: &SandboxPath) -> Entity {
    let id = path_id(path);
    let above = id.match_indices('/').skip(1).filter_map(|(slash, _)| id.get(..slash));
    let parents = above.map(|directory| PATH.entity(directory)).collect();
    Entity::new_no_attrs(PATH.entity(id), parents)
}

/// The only spelling of a path in policies: without a trailing slash, also for the sandbox itself.
pub(crate) fn path_id(path: &SandboxPath) -> &str {
    without_slash(path.as_str())
}

fn without_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

fn core_context(call: &CoreCall, beside: Beside<'_>) -> Option<Context> {
    let args = call.arguments().into_iter().map(|(name, text)| {
        let text = if name == "path" { without_slash(text) } else { text };
        (name.to_owned(), string(text))
    });
    let args = RestrictedExpression::new_record(args).ok()?;
    context(args, &[], (CORE_GROUP, CORE_SERVER), beside, &[])
}

fn context(
    args: RestrictedExpression,
    unseen: &[Unseen],
    (mode, server): (&str, &str),
    beside: Beside<'_>,
    priced: &[Priced],
) -> Option<Context> {
    let Beside { facts, targets, needs, origins, .. } = beside;
    let unseen = unseen.iter().map(|unseen| RestrictedExpression::new_string(unseen.name()));
    let mut pairs = vec![
        ("args".to_owned(), args),
        ("unseen".to_owned(), RestrictedExpression::new_set(unseen)),
        ("mode".to_owned(), string(mode)),
        ("server".to_owned(), string(server)),
        ("reads".to_owned(), labels(&facts.reads)),
        ("sends".to_owned(), labels(&facts.sends)),
        ("schedule".to_owned(), windows(&facts.schedule)),
        ("session".to_owned(), session(facts)?),
        ("used".to_owned(), used(priced)?),
    ];
    // Left out where no policy reads them: they would cost more than the rest.
    if needs.origins {
        // Where there is nothing, there is nothing that comes from elsewhere.
        let every = |of: &BTreeSet<Origin>| match of.iter().any(|it| it.as_str() == Origin::NONE) {
            true => origins_of(origins),
            false => origins_of(of),
        };
        pairs.push(("targets".to_owned(), every(targets)));
        pairs.push(("addresses".to_owned(), every(&facts.addresses)));
    }
    Context::from_pairs(pairs).ok()
}

fn session(facts: &Facts) -> Option<RestrictedExpression> {
    let steps = i64::try_from(facts.steps.unwrap_or(0)).unwrap_or(i64::MAX);
    let none = BTreeSet::new();
    let session = [
        ("labels".to_owned(), labels(&facts.labels)),
        ("opened".to_owned(), windows(facts.opened.as_ref().unwrap_or(&none))),
        ("steps".to_owned(), RestrictedExpression::new_long(steps)),
    ];
    RestrictedExpression::new_record(session).ok()
}

fn windows(names: &BTreeSet<String>) -> RestrictedExpression {
    entities_of(&WINDOW, names.iter().map(String::as_str))
}

fn origins_of(origins: &BTreeSet<Origin>) -> RestrictedExpression {
    entities_of(&ORIGIN, origins.iter().map(Origin::as_str))
}

/// What a call would take from the budgets that cover it.
fn priced(
    budgets: &[Budget],
    who: &Who,
    call: &ServerCall,
    args: &Record,
    facts: &Facts,
) -> Vec<Priced> {
    let covering = budgets.iter().filter(|budget| budget.covers(who, &call.tool.name));
    let price = |budget: &Budget| {
        let used = facts.used.get(budget.terms.name.as_str()).copied().unwrap_or_default();
        budget.price(args, &call.args, used)
    };
    covering.map(price).collect()
}

/// What policies see of budgets. A call without an amount is denied whatever they say.
fn used(priced: &[Priced]) -> Option<RestrictedExpression> {
    let record = |priced: &Priced| {
        let (after, percent) = (priced.after()?, priced.percent()?);
        let record = RestrictedExpression::new_record([
            ("before".to_owned(), decimal(priced.used)),
            ("after".to_owned(), decimal(after)),
            ("limit".to_owned(), decimal(priced.terms.limit)),
            ("percent".to_owned(), RestrictedExpression::new_long(percent)),
        ]);
        Some((priced.terms.name.to_string(), record.ok()?))
    };
    RestrictedExpression::new_record(priced.iter().filter_map(record)).ok()
}

fn labels(labels: &BTreeSet<Label>) -> RestrictedExpression {
    entities_of(&LABEL, labels.iter().map(Label::as_str))
}

/// The set of the entities of a type that have these names.
fn entities_of<'a>(kind: &Kind, names: impl Iterator<Item = &'a str>) -> RestrictedExpression {
    let entities = names.map(|name| RestrictedExpression::new_entity_uid(kind.entity(name)));
    RestrictedExpression::new_set(entities)
}

fn string(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_owned())
}

#[cfg(test)]
mod tests;
