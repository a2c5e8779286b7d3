//! The labels that decisions saw, against the events that add and remove labels.

use std::collections::{BTreeMap, HashMap};

use crate::event::payload::{self, LabelAdded, LabelRemoved};
use crate::event::{Event, EventType};
use crate::facts::Facts;
use crate::ids::SessionId;
use crate::journal::artifact::EffectStatus;
use crate::journal::{Kind, Replayed, replay};
use crate::label::{Carrier, Label, is_in_force};
use crate::ports::{Dossier, EventQuery, Store, StoreError};

use super::{PAGE_EVENTS, Problem, place_of};

/// The positions of the events that changed each label, oldest first: the first added it, the second removed
/// it, and so on.
#[derive(Default)]
pub(super) struct Changes {
    sessions: HashMap<SessionId, BTreeMap<Label, Vec<u64>>>,
    /// The same for files and memories: only how many there are.
    others: HashMap<(Carrier, Label), u64>,
    pub(super) problems: Vec<Problem>,
}

impl Changes {
    /// Reads all of them.
    pub(super) async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        let mut query = EventQuery {
            event_types: vec![EventType::LabelAdded, EventType::LabelRemoved],
            loose_only: true,
            limit: PAGE_EVENTS,
            ..EventQuery::default()
        };
        let mut changes = Self::default();
        loop {
            let page = store.events(query.clone()).await?;
            let Some(last) = page.last() else { return Ok(changes) };
            query.after = last.position;
            for placed in page {
                changes.add(placed.position, &placed.event);
            }
        }
    }

    fn add(&mut self, position: u64, event: &Event) {
        let follows = read(event).is_some_and(|(carrier, label, adds)| {
            let number = self.next(position, event, &carrier, &label);
            is_in_force(number) == adds && event.event_id == carrier.change_id(&label, number)
        });
        if !follows {
            let place = format!("event {}", event.event_id);
            self.problems.push(Problem::new(place, "is not the next change of its label"));
        }
    }

    /// Counts a change, and returns its number.
    fn next(&mut self, position: u64, event: &Event, carrier: &Carrier, label: &Label) -> u64 {
        match carrier {
            Carrier::Session(session_id) if *session_id == event.session_id => {
                let labels = self.sessions.entry(*session_id).or_default();
                let positions = labels.entry(label.clone()).or_default();
                positions.push(position);
                positions.len() as u64
            }
            // An event in another session's chain changes nothing.
            Carrier::Session(_) => 0,
            Carrier::Path(_) | Carrier::Memory(_) => {
                let number = self.others.entry((carrier.clone(), label.clone())).or_default();
                *number += 1;
                *number
            }
        }
    }
}

/// What an event changes: the carrier, the label, and whether it adds it.
fn read(event: &Event) -> Option<(Carrier, Label, bool)> {
    let payload = &event.payload;
    if event.event_type == EventType::LabelAdded {
        let LabelAdded { carrier, label, .. } = payload::read(payload).ok()?;
        return Some((carrier, label, true));
    }
    let LabelRemoved { carrier, label, .. } = payload::read(payload).ok()?;
    Some((carrier, label, false))
}

/// What does not follow from the changes. A journal that does not replay is reported elsewhere.
pub(super) fn check(dossier: &Dossier, changes: &Changes) -> Vec<Problem> {
    // Almost every run: its journal is not replayed a second time.
    let names_facts = dossier.entries.iter().any(|appended| {
        appended.artifact.kind == Kind::SupervisorDecision
            && appended.artifact.text.contains("\"facts\":{")
    });
    if !names_facts {
        return Vec::new();
    }
    let Ok(Replayed { decision: Some(decision), effect, .. }) = replay(&dossier.entries) else {
        return Vec::new();
    };
    let Some(facts) = decision.meta.facts else { return Vec::new() };
    let arrival = &dossier.run.arrival;
    let none = BTreeMap::new();
    let labels = changes.sessions.get(&arrival.session_id).unwrap_or(&none);
    let was_sent = effect.is_some_and(|effect| effect.outcome.status == EffectStatus::Success);
    let problems = [
        (!saw_its_labels(&facts, labels))
            .then_some("the decision did not see the session's labels"),
        (was_sent && !took_in(&facts, labels)).then_some("the session did not take in a label"),
    ];
    let place = place_of("journal", arrival.run_id);
    problems.into_iter().flatten().map(|what| Problem::new(place.clone(), what)).collect()
}

/// Whether the labels of a decision are those of its session: every one that was there when they were read, unless it
/// was removed meanwhile, and none that never was.
fn saw_its_labels(facts: &Facts, labels: &BTreeMap<Label, Vec<u64>>) -> bool {
    let Some(as_of) = facts.as_of else { return facts.labels.is_empty() };
    let missed = labels.iter().any(|(label, positions)| {
        let before = positions.iter().take_while(|position| **position <= as_of).count() as u64;
        let was_removed = positions.len() as u64 > before;
        is_in_force(before) && !was_removed && !facts.labels.contains(label)
    });
    !missed && facts.labels.iter().all(|label| labels.contains_key(label))
}

/// Whether the session took in what the call brought, where labels were in use.
fn took_in(facts: &Facts, labels: &BTreeMap<Label, Vec<u64>>) -> bool {
    facts.as_of.is_none() || facts.reads.iter().all(|label| labels.contains_key(label))
}

#[cfg(test)]
mod tests;
