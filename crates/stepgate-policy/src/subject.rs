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
        match matches {
            true => Self::EveryCall,
            false => Self::None,
        }
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
        match (self, constraint) {
            (_, ResourceConstraint::Any) => Reach::EveryCall,
            // The resource is a path, or for two actions the action itself; only the call says which.
            (
                Self::Core { .. },
                ResourceConstraint::Eq(_)
                | ResourceConstraint::In(_)
                | ResourceConstraint::Is(_)
                | ResourceConstraint::IsIn(_, _),
            ) => Reach::SomeCalls,
            (Self::Tool { resource, .. }, ResourceConstraint::Eq(only)) => {
                Reach::whether(only == resource)
            }
            (Self::Tool { resource, .. }, ResourceConstraint::Is(kind)) => {
                Reach::whether(kind == resource.type_name())
            }
            (Self::Tool { resource, entities, .. }, ResourceConstraint::In(above)) => {
                Reach::whether(is_in(entities, resource, above))
            }
            (Self::Tool { resource, entities, .. }, ResourceConstraint::IsIn(kind, above)) => {
                let is_kind = kind == resource.type_name();
                Reach::whether(is_kind && is_in(entities, resource, above))
            }
        }
    }
}

fn is_in(entities: &Entities, resource: &EntityUid, above: &EntityUid) -> bool {
    resource == above || entities.is_ancestor_of(above, resource)
}
