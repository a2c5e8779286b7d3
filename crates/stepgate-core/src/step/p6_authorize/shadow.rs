//! What shadow policies would have decided, for the record alone.

use super::super::p8_record::Trail;
use crate::event::EventType;
use crate::gate::Gate;
use crate::ports::{PolicyDecision, PolicyRequest};
use crate::shadow;

/// Notes how the shadow policies differ from the decision. The event is part of a commit that is made anyway.
pub(super) fn note(
    gate: &Gate,
    trail: &mut Trail,
    request: PolicyRequest<'_>,
    in_force: &PolicyDecision,
) {
    if let Some(shadow) = gate.policy.shadow(request, in_force) {
        let difference = shadow::difference(request, in_force, &shadow);
        trail.note(gate, EventType::PolicyDiffers, difference);
    }
}
