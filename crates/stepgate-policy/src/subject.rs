//! The subject of an action, and how many of its calls a policy's scope can match.

use cedar_policy::{Entities, Entity, EntityUid, ResourceConstraint};
use stepgate_core::digest::Digest;
use stepgate_core::tool::Mode;

use crate::shape::Record;

/// How many calls a policy can match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    None,
    SomeCalls,
    EveryCall,
}

impl Reach {
    pub(crate) fn whether(matches: bool) -> Self {
        if matches { Self::EveryCall } else { Self::None }
    }
}

/// The subject of an action.
pub(crate) enum Subject {
    /// The sandbox; `action` is the entity of the action, in its group.
    Core { action: Entity },
    /// A tool; everything that Cedar needs about it is known in advance.
    Tool {
        mode: Mode,
        /// The definition that `args` comes from; none where no operator has accepted it.
        definition: Option<Digest>,
        resource: EntityUid,
        entities: Entities,
        args: Record,
    },
}

impl Subject {
    /// Which calls about it a policy with this resource constraint can match.
    pub(crate) fn reach(&self, constraint: &ResourceConstraint) -> Reach {
        let (resource, entities) = match self {
            Self::Tool { resource, entities, .. } => (resource, entities),
            Self::Core { .. } if *constraint == ResourceConstraint::Any => return Reach::EveryCall,
            // The resource is a path, or for two actions the action itself; only the call says which.
            Self::Core { .. } => return Reach::SomeCalls,
        };
        let is_in =
            |above: &EntityUid| resource == above || entities.is_ancestor_of(above, resource);
        Reach::whether(allows(constraint, resource, is_in))
    }
}

/// Whether a constraint allows a resource; `is_in` tells whether the resource is another entity or in it.
pub(crate) fn allows(
    constraint: &ResourceConstraint,
    resource: &EntityUid,
    is_in: impl Fn(&EntityUid) -> bool,
) -> bool {
    match constraint {
        ResourceConstraint::Any => true,
        ResourceConstraint::Eq(only) => only == resource,
        ResourceConstraint::Is(kind) => kind == resource.type_name(),
        ResourceConstraint::In(above) => is_in(above),
        ResourceConstraint::IsIn(kind, above) => kind == resource.type_name() && is_in(above),
    }
}
