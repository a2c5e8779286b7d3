//! Who asks, as Cedar knows it.

use std::collections::{BTreeSet, HashSet};

use cedar_policy::{Entity, EntityUid};
use stepgate_core::ids::PrincipalId;

use crate::vocabulary::{GROUP, PRINCIPAL};

/// A principal with its groups.
pub(crate) struct Who {
    pub(crate) principal: EntityUid,
    pub(crate) groups: HashSet<EntityUid>,
}

impl Who {
    pub(crate) fn of(principal_id: &PrincipalId, groups: &BTreeSet<String>) -> Self {
        Self {
            principal: PRINCIPAL.entity(principal_id.as_str()),
            groups: groups.iter().map(|group| GROUP.entity(group)).collect(),
        }
    }

    /// Whether the principal is this entity, or a member of it.
    pub(crate) fn is_in(&self, entity: &EntityUid) -> bool {
        self.principal == *entity || self.groups.contains(entity)
    }

    /// The principal with its groups, where it is in any.
    pub(crate) fn member(&self) -> Option<Entity> {
        let is_member = !self.groups.is_empty();
        is_member.then(|| Entity::new_no_attrs(self.principal.clone(), self.groups.clone()))
    }
}
