//! Cache of what operators have decided in advance and together: grants, the votes on approvals that need
//! more than one person, and stops.
//!
//! All are events of the system session. A process reads what was added since its last look, each time before it
//! relies on the cache. So a grant that another node revoked is not used here, and a stop that another node made is
//! in force here.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use schemars::JsonSchema;
use serde::Serialize;

use crate::approvers::{self, Groups, Required};
use crate::archived::RunsArchived;
use crate::event::payload::{self, ApprovalVoted, GrantRevoked, StopLifted};
use crate::event::{Event, EventType};
use crate::grant::{BoundCall, Grant, use_event_id};
use crate::ids::{ApprovalId, ArtifactId, PrincipalId};
use crate::journal::StateError;
use crate::limits::Limits;
use crate::lock;
use crate::ports::{Store, StoreError};
use crate::stop::{CallParties, StopOrder, StopTarget};
use crate::system;
use crate::time::Timestamp;

/// The events that hold grants, votes and stops.
const TYPES: [EventType; 6] = [
    EventType::GrantCreated,
    EventType::GrantRevoked,
    EventType::RunsArchived,
    EventType::ApprovalVoted,
    EventType::StopMade,
    EventType::StopLifted,
];

/// Cache of the grants, votes and stops of a store.
#[derive(Clone, Debug, Default)]
pub struct Consents(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// The position up to which events were read.
    position: u64,
    consents: Recorded,
    /// Uses that steps of this process are writing now.
    writing: HashSet<(ArtifactId, u64)>,
}

/// The grants, votes and stops that events record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// Every grant, also those that were revoked or have expired.
    pub(crate) grants: BTreeMap<ArtifactId, RecordedGrant>,
    /// Those of which uses are archived. They had ended by the clock of then; one that is set back does not revive them.
    archived: BTreeSet<ArtifactId>,
    /// Who voted for which approval.
    pub(crate) votes: BTreeMap<ApprovalId, BTreeSet<PrincipalId>>,
    /// Every stop, also those that were lifted.
    pub(crate) stops: BTreeMap<ArtifactId, StopStanding>,
}

/// A grant, with the time of its event.
#[derive(Clone, Debug)]
pub(crate) struct RecordedGrant {
    pub(crate) grant: Grant,
    pub(crate) ts: Timestamp,
    /// Who revoked it, where an operator has.
    pub(crate) revocation: Option<Revocation>,
}

/// Who revoked a grant, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Revocation {
    /// Who.
    pub revoked_by: PrincipalId,
    /// When.
    pub ts: Timestamp,
}

/// A stop, and whether it is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopStanding {
    /// Its id.
    pub stop_id: ArtifactId,
    /// The order.
    pub order: StopOrder,
    /// When it was made.
    pub made_at: Timestamp,
    /// Who lifted it. None while it is in force.
    pub lift: Option<Lift>,
}

/// Who lifted a stop, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Lift {
    /// Who.
    pub lifted_by: PrincipalId,
    /// When.
    pub ts: Timestamp,
}

impl Recorded {
    /// Reads all of them.
    pub(crate) async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        let mut recorded = Self::default();
        for placed in system::events_since(store, &TYPES, 0).await? {
            recorded.add(&placed.event)?;
        }
        Ok(recorded)
    }

    fn add(&mut self, event: &Event) -> Result<(), StateError> {
        let unreadable = |error: serde_json::Error| {
            StateError::checksum(format!("event {}: {error}", event.event_id))
        };
        let payload = &event.payload;
        if event.event_type == EventType::GrantCreated {
            // A grant that a newer version wrote in another form permits nothing here.
            if let Ok(grant) = payload::read(payload) {
                let made = RecordedGrant { grant, ts: event.ts, revocation: None };
                self.grants.insert(event.event_id, made);
            }
        } else if event.event_type == EventType::GrantRevoked {
            let GrantRevoked { grant_id, revoked_by } =
                payload::read(payload).map_err(unreadable)?;
            if let Some(made) = self.grants.get_mut(&grant_id) {
                made.revocation = Some(Revocation { revoked_by, ts: event.ts });
            }
        } else if event.event_type == EventType::RunsArchived {
            // One that a newer version wrote in another form names no grant here.
            if let Ok(RunsArchived { grants, .. }) = payload::read(payload) {
                self.archived.extend(grants);
            }
        } else if event.event_type == EventType::ApprovalVoted {
            let vote: ApprovalVoted = payload::read(payload).map_err(unreadable)?;
            self.votes.entry(vote.approval_id).or_default().insert(vote.approver_id);
        } else if event.event_type == EventType::StopMade {
            let order = payload::read(payload).unwrap_or_else(|_| unreadable_order());
            let (stop_id, made_at) = (event.event_id, event.ts);
            let made = || StopStanding { stop_id, order, made_at, lift: None };
            self.stops.entry(stop_id).or_insert_with(made);
        } else if event.event_type == EventType::StopLifted {
            let StopLifted { stop_id, lifted_by } = payload::read(payload).map_err(unreadable)?;
            if let Some(stop) = self.stops.get_mut(&stop_id) {
                stop.lift.get_or_insert(Lift { lifted_by, ts: event.ts });
            }
        }
        Ok(())
    }

    /// The stops that are not lifted, oldest first.
    pub(crate) fn stops_in_force(&self) -> impl DoubleEndedIterator<Item = &StopStanding> {
        self.stops.values().filter(|stop| stop.lift.is_none())
    }

    /// Whether a grant was revoked, or has ended. How often it was used is not looked at.
    pub(crate) fn has_ended(
        &self,
        grant_id: &ArtifactId,
        made: &RecordedGrant,
        now: Timestamp,
    ) -> bool {
        made.grant.expires_at <= now
            || made.revocation.is_some()
            || self.archived.contains(grant_id)
    }

    /// The grants of a principal that were neither revoked nor have ended.
    fn usable(
        &self,
        principal_id: &PrincipalId,
        now: Timestamp,
    ) -> impl Iterator<Item = (ArtifactId, &Grant)> {
        let usable = self.grants.iter().filter(move |(grant_id, made)| {
            made.grant.principal_id == *principal_id && !self.has_ended(grant_id, made, now)
        });
        usable.map(|(grant_id, made)| (*grant_id, &made.grant))
    }

    /// Those that cover a call now.
    fn covering(
        &self,
        asked: &AskedCall<'_>,
        now: Timestamp,
    ) -> impl Iterator<Item = (ArtifactId, &Grant)> {
        self.usable(asked.call.principal_id, now).filter(|(_, grant)| is_good(grant, asked))
    }
}

impl Consents {
    fn known(&self) -> MutexGuard<'_, Known> {
        lock::locked(&self.0)
    }

    /// Reads what this and other processes have added since the last read.
    pub(crate) async fn read_on(&self, store: &dyn Store) -> Result<(), StoreError> {
        // Read first: no event is added later at a smaller position, so events up to it need not be read
        // again.
        let newest = store.last_loose_position().await?;
        self.read_up_to(store, newest).await
    }

    /// Reads what was added before the last commit of this process. With a shared store this asks nothing, where nothing
    /// was added.
    pub(crate) async fn read_before_commit(&self, store: &dyn Store) -> Result<(), StoreError> {
        match store.committed_loose_position().await? {
            Some(newest) => self.read_up_to(store, newest).await,
            None => self.read_on(store).await,
        }
    }

    async fn read_up_to(&self, store: &dyn Store, newest: u64) -> Result<(), StoreError> {
        let position = self.known().position;
        if newest <= position {
            return Ok(());
        }
        let added = system::events_since(store, &TYPES, position).await?;
        let mut known = self.known();
        for placed in &added {
            known.consents.add(&placed.event)?;
        }
        let read = added.last().map_or(newest, |last| newest.max(last.position));
        known.position = known.position.max(read);
        Ok(())
    }

    /// Why a call is stopped, where it was when the events were last read.
    pub(crate) fn stopped(&self, call: CallParties<'_>) -> Option<String> {
        let known = self.known();
        let mut stops = known.consents.stops_in_force();
        let covering = stops.find(|stop| stop.order.target.covers(call));
        covering.map(|stop| stop.order.reason())
    }

    /// Everyone who had voted for an approval when the events were last read.
    pub fn known_votes(&self, approval_id: ApprovalId) -> BTreeSet<PrincipalId> {
        self.known().consents.votes.get(&approval_id).cloned().unwrap_or_default()
    }

    /// What the events recorded when they were last read.
    pub(crate) fn recorded(&self) -> Recorded {
        self.known().consents.clone()
    }

    /// A use of a grant that covers a call; none where a person must be asked.
    pub(crate) async fn take_use(
        &self,
        store: &dyn Store,
        asked: &AskedCall<'_>,
        now: Timestamp,
    ) -> Result<Option<GrantUse>, StoreError> {
        self.read_on(store).await?;
        for (grant_id, grant) in self.covering(asked, now) {
            let used = used(store, grant_id, grant.uses_max).await?;
            if let Some(taken) = self.reserve(grant_id, &grant, &used) {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// The grants that cover a call now, the one that ends first in front.
    fn covering(&self, asked: &AskedCall<'_>, now: Timestamp) -> Vec<(ArtifactId, Grant)> {
        let known = self.known();
        let covering = known.consents.covering(asked, now);
        let mut grants: Vec<_> = covering.map(|(id, grant)| (id, grant.clone())).collect();
        grants.sort_by_key(|(grant_id, grant)| (grant.expires_at, *grant_id));
        grants
    }

    /// Whether this grant covers a call now, however often it was used.
    pub(crate) fn covers(
        &self,
        grant_id: ArtifactId,
        asked: &AskedCall<'_>,
        now: Timestamp,
    ) -> bool {
        self.known().consents.covering(asked, now).any(|(covering_id, _)| covering_id == grant_id)
    }

    /// Whether a grant may cover a call of this tool, as far as is known here. Its arguments are not looked at.
    pub fn may_cover(&self, principal_id: &PrincipalId, action: &str, now: Timestamp) -> bool {
        let known = self.known();
        known.consents.usable(principal_id, now).any(|(_, grant)| grant.action() == action)
    }

    /// Everyone who made a grant for this principal that can still be used, as far as is known here.
    pub(crate) fn granters(
        &self,
        principal_id: &PrincipalId,
        now: Timestamp,
    ) -> BTreeSet<PrincipalId> {
        let known = self.known();
        let grants = known.consents.usable(principal_id, now);
        grants.map(|(_, grant)| grant.granted_by.clone()).collect()
    }

    /// Takes the first use of a grant that no step of this process is writing.
    fn reserve(
        &self,
        grant_id: ArtifactId,
        grant: &Grant,
        used: &BTreeSet<u64>,
    ) -> Option<GrantUse> {
        let mut known = self.known();
        let mut free = (1..=grant.uses_max).filter(|number| !used.contains(number));
        let number = free.find(|number| known.writing.insert((grant_id, *number)))?;
        Some(GrantUse { consents: self.clone(), grant_id, number, expires_at: grant.expires_at })
    }
}

/// The order of a stop that a newer version wrote in another form. What it covers is not known here, so it covers
/// everything.
fn unreadable_order() -> StopOrder {
    let note = Some("a newer version made this stop, so everything counts as stopped".to_owned());
    StopOrder { note, stopped_by: PrincipalId::system(), target: StopTarget::All }
}

/// Whether a grant that can be used covers a call. Policy's present requirement of people counts.
fn is_good(grant: &Grant, asked: &AskedCall<'_>) -> bool {
    let people = || BTreeSet::from([grant.granted_by.clone()]);
    grant.covers(asked.call) && approvers::are_enough(asked.required, asked.groups, &people())
}

/// A call that policy asks a person about.
pub(crate) struct AskedCall<'a> {
    pub(crate) call: BoundCall<'a>,
    /// What policies require of the people who decide.
    pub(crate) required: &'a [Required],
    pub(crate) groups: &'a Groups,
}

/// A use of a grant that a step is about to write. Dropping it makes it free for other steps of this
/// process, unless it was written.
#[derive(Debug)]
pub(crate) struct GrantUse {
    consents: Consents,
    pub(crate) grant_id: ArtifactId,
    /// Which use it is, from 1.
    pub(crate) number: u64,
    /// Until when the grant can be used.
    pub(crate) expires_at: Timestamp,
}

impl GrantUse {
    /// The id of its event.
    pub(crate) fn event_id(&self) -> ArtifactId {
        use_event_id(self.grant_id, self.number)
    }
}

impl Drop for GrantUse {
    fn drop(&mut self) {
        self.consents.known().writing.remove(&(self.grant_id, self.number));
    }
}

/// The numbers of the uses that are recorded.
pub(crate) async fn used(
    store: &dyn Store,
    grant_id: ArtifactId,
    uses_max: u64,
) -> Result<BTreeSet<u64>, StoreError> {
    let uses_max = uses_max.min(Limits::GRANT_USES_MAX);
    let numbers: BTreeMap<ArtifactId, u64> =
        (1..=uses_max).map(|number| (use_event_id(grant_id, number), number)).collect();
    let event_ids: Vec<ArtifactId> = numbers.keys().copied().collect();
    let events = store.events_by_id(&event_ids).await?;
    Ok(events.iter().filter_map(|event| numbers.get(&event.event_id).copied()).collect())
}
