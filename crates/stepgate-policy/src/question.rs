//! The questions to Cedar about a call: one request, or two for RENAME_FILE.

use std::collections::HashSet;

use cedar_policy::{Context, Entities, Entity, EntityUid, Request, RestrictedExpression};
use stepgate_core::action::{CORE_SERVER, CoreCall};
use stepgate_core::call::Call;
use stepgate_core::ids::PrincipalId;
use stepgate_core::json::{Map, Value};
use stepgate_core::path::SandboxPath;

use crate::schema::CORE_GROUP;
use crate::subject::Subject;
use crate::view::{Unseen, View, view};
use crate::vocabulary::{PATH, PRINCIPAL, SERVER, TOOL};

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

pub(crate) fn asked(
    action: &EntityUid,
    subject: &Subject,
    principal_id: &PrincipalId,
    call: &Call,
) -> Result<Asked, Unaskable> {
    let principal = PRINCIPAL.entity(principal_id.as_str());
    match (call, subject) {
        (Call::Core(call), Subject::Core { action: entity }) => {
            let context = core_context(call).ok_or(Unaskable::Values)?;
            let resources = core_resources(call);
            let ask = |resource: Entity| {
                let uid = resource.uid();
                let entities = Entities::from_entities([entity.clone(), resource], None);
                let entities = entities.map_err(|_| Unaskable::Values)?;
                question(action, principal.clone(), uid, context.clone(), entities)
            };
            let questions = resources.into_iter().map(ask).collect::<Result<_, _>>()?;
            Ok(Asked { questions, unseen: Vec::new(), defaults: Map::new() })
        }
        (Call::Server(call), Subject::Tool { mode, definition, resource, entities, args }) => {
            if call.tool.mode != *mode {
                return Err(Unaskable::OtherMode);
            }
            if *definition != Some(call.tool.definition_digest) {
                return Err(Unaskable::OtherDefinition);
            }
            let View { args, unseen, defaults } =
                view(args, &call.args).ok_or(Unaskable::Values)?;
            let (mode, server) = (mode.as_str(), call.tool.name.server());
            let context = context(args, &unseen, mode, server).ok_or(Unaskable::Values)?;
            let question =
                question(action, principal, resource.clone(), context, entities.clone())?;
            Ok(Asked { questions: vec![question], unseen, defaults })
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
    let text = path.as_str();
    text.strip_suffix('/').unwrap_or(text)
}

fn core_context(call: &CoreCall) -> Option<Context> {
    let args: Vec<(&str, &str)> = match call {
        CoreCall::Think => vec![],
        CoreCall::Finish { response } => vec![("response", response)],
        CoreCall::ReadFile { path }
        | CoreCall::ListFiles { path }
        | CoreCall::CreateDirectory { path }
        | CoreCall::DeleteFile { path } => vec![("path", path_id(path))],
        CoreCall::WriteFile { path, content } => {
            vec![("path", path_id(path)), ("content", content)]
        }
        CoreCall::RenameFile { source, destination } => {
            vec![("source", path_id(source)), ("destination", path_id(destination))]
        }
    };
    let args = args.into_iter().map(|(name, text)| (name.to_owned(), string(text)));
    let args = RestrictedExpression::new_record(args).ok()?;
    context(args, &[], CORE_GROUP, CORE_SERVER)
}

fn context(
    args: RestrictedExpression,
    unseen: &[Unseen],
    mode: &str,
    server: &str,
) -> Option<Context> {
    let unseen = unseen.iter().map(|unseen| RestrictedExpression::new_string(unseen.name()));
    Context::from_pairs([
        ("args".to_owned(), args),
        ("unseen".to_owned(), RestrictedExpression::new_set(unseen)),
        ("mode".to_owned(), string(mode)),
        ("server".to_owned(), string(server)),
    ])
    .ok()
}

fn string(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_owned())
}

#[cfg(test)]
mod tests;
