//! Who may decide on an approval, and how many people must approve.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::PrincipalId;

/// What one policy requires of the people who decide.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Required {
    /// The groups and people that may decide; any operator where it is empty.
    pub approvers: BTreeSet<String>,
    /// How many different people must approve.
    pub quorum: u32,
}

impl Required {
    /// Whether this person may decide.
    fn allows(&self, groups: &Groups, person: &PrincipalId) -> bool {
        self.approvers.is_empty() || self.approvers.iter().any(|name| groups.has(name, person))
    }

    /// Whether enough of these people may decide.
    fn is_met(&self, groups: &Groups, people: &BTreeSet<PrincipalId>) -> bool {
        let allowed = people.iter().filter(|person| self.allows(groups, person)).count();
        u32::try_from(allowed).is_ok_and(|allowed| allowed >= self.quorum)
    }
}

/// Whether this person may decide on what these policies require: one of them allows it. Where no policy
/// requires anything, any operator may.
pub fn may_decide(required: &[Required], groups: &Groups, person: &PrincipalId) -> bool {
    required.is_empty() || required.iter().any(|one| one.allows(groups, person))
}

/// Whether the approvals of these people are enough for every policy.
pub fn are_enough(required: &[Required], groups: &Groups, people: &BTreeSet<PrincipalId>) -> bool {
    !people.is_empty() && required.iter().all(|one| one.is_met(groups, people))
}

/// The operator's groups of people, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(BTreeMap<String, BTreeSet<PrincipalId>>);

impl Groups {
    /// These groups.
    pub fn new(groups: BTreeMap<String, BTreeSet<PrincipalId>>) -> Self {
        Self(groups)
    }

    /// Whether this is the name of a group, or of a member of one.
    pub fn knows(&self, name: &PrincipalId) -> bool {
        self.0.contains_key(name.as_str()) || self.0.values().any(|members| members.contains(name))
    }

    /// The names of the groups.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The members of a group; none where there is no such group.
    pub fn members(&self, name: &str) -> impl Iterator<Item = &PrincipalId> {
        self.0.get(name).into_iter().flatten()
    }

    /// The groups that this principal is in.
    pub fn of(&self, principal_id: &PrincipalId) -> BTreeSet<String> {
        let having = self.0.iter().filter(|(_, members)| members.contains(principal_id));
        having.map(|(name, _)| name.clone()).collect()
    }

    /// Whether a name means this person: the person's group, or the person itself where there is no such group.
    fn has(&self, name: &str, person: &PrincipalId) -> bool {
        match self.0.get(name) {
            Some(members) => members.contains(person),
            None => name == person.as_str(),
        }
    }
}

#[cfg(test)]
mod tests;
