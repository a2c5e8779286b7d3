//! The shadow policies: a candidate set that is asked beside the set in force and changes nothing. A candidate that
//! cannot be loaded, or that panics, is not asked, and the operator is told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};

use stepgate_core::budget::Covering;
use stepgate_core::call::Call;
use stepgate_core::facts::{FactNames, FactNeeds};
use stepgate_core::ids::PrincipalId;
use stepgate_core::lock;
use stepgate_core::ports::{
    Payer, Policy, PolicyAnswer, PolicyDecision, PolicyErasable, PolicyRequest, Prospect,
};
use stepgate_core::shadow;
use stepgate_core::time::Timestamp;
use stepgate_core::tool::Tool;
use stepgate_exec::servers::Servers;
use stepgate_policy::{LivePolicy, Nameable, PolicySet};
use tracing::{error, info};

use super::{Look, refuse_writable_policies, warn_of};
use crate::panics;

/// The policies of a gateway: the set in force decides, and the shadow set is only asked.
pub(crate) struct Policies {
    pub(crate) in_force: Arc<LivePolicy>,
    pub(crate) shadow: Option<Arc<Shadow>>,
}

impl Policy for Policies {
    fn decide(&self, request: PolicyRequest<'_>) -> PolicyDecision {
        self.in_force.current().decide(request)
    }

    fn needs(&self, action: &str) -> FactNeeds {
        let shadow = self.shadow.as_ref().and_then(|shadow| shadow.candidate().ok());
        let shadow = shadow.map(|candidate| candidate.set.needs(action)).unwrap_or_default();
        self.in_force.current().needs(action).or(shadow)
    }

    fn budgets(&self, payer: Payer<'_>, call: &Call) -> Vec<Covering> {
        self.in_force.current().budgets(payer, call)
    }

    fn erasable(&self, tool: &Tool) -> PolicyErasable {
        self.in_force.current().erasable(tool)
    }

    fn has_erasable(&self) -> bool {
        self.in_force.current().has_erasable()
    }

    fn shadow(
        &self,
        request: PolicyRequest<'_>,
        in_force: &PolicyDecision,
    ) -> Option<PolicyDecision> {
        self.shadow.as_ref()?.differs(request, in_force)
    }

    fn prospect(&self, who: &PrincipalId, groups: &BTreeSet<String>, action: &str) -> Prospect {
        self.in_force.current().prospect(who, groups, action)
    }
}

/// How a decision differs: the answer in force, and the shadow's. The same answer twice means other caps, or other
/// people who must approve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DifferenceKind {
    /// The answer of the set in force.
    pub from: PolicyAnswer,
    /// The answer of the shadow set.
    pub to: PolicyAnswer,
}

/// What was asked of a candidate since this process asks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShadowCounts {
    /// Decisions.
    pub asked: u64,
    /// Those that differ.
    pub differing: BTreeMap<DifferenceKind, u64>,
}

/// A candidate that is asked.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The policies.
    pub set: Arc<PolicySet>,
    /// Since when this process asks it.
    pub since: Timestamp,
    counts: Arc<Mutex<ShadowCounts>>,
}

impl Candidate {
    /// What was asked of it.
    pub fn counts(&self) -> ShadowCounts {
        lock::locked(&self.counts).clone()
    }

    fn count(&self, kind: Option<DifferenceKind>) {
        let mut counts = lock::locked(&self.counts);
        counts.asked += 1;
        if let Some(kind) = kind {
            *counts.differing.entry(kind).or_default() += 1;
        }
    }
}

/// The directory of the shadow policies, and what it held when it was last looked at.
pub struct Shadow {
    /// Where the candidate is.
    pub directory: PathBuf,
    /// The names of facts that policies can use.
    facts: FactNames,
    seen: RwLock<Seen>,
}

struct Seen {
    /// None before the first look.
    look: Option<Look>,
    /// Or why none is asked.
    candidate: Result<Candidate, String>,
}

impl Shadow {
    pub(crate) fn new(directory: PathBuf, facts: FactNames) -> Self {
        let candidate = Err("not loaded yet".to_owned());
        Self { directory, facts, seen: RwLock::new(Seen { look: None, candidate }) }
    }

    /// The candidate that is asked, or why none is.
    pub fn candidate(&self) -> Result<Candidate, String> {
        lock::read(&self.seen).candidate.clone()
    }

    /// Loads the candidate, if its files or the tools have changed. Returns whether another set is asked now, or none.
    pub(crate) async fn look_again(
        &self,
        servers: &Servers,
        turned_off: &[String],
        now: Timestamp,
    ) -> bool {
        let look = Look::at(&self.directory, servers, turned_off);
        if lock::read(&self.seen).look.as_ref() == Some(&look) {
            return false;
        }
        let (directory, facts) = (self.directory.clone(), self.facts.clone());
        let tools = look.tools.clone();
        let load = move || load(&directory, Nameable { tools: &tools, facts: &facts });
        let loaded = panics::contained_blocking(load).await;
        self.take(look, loaded.unwrap_or_else(|error| Err(error.to_string())), now)
    }

    fn take(&self, look: Look, loaded: Result<PolicySet, String>, now: Timestamp) -> bool {
        let mut seen = lock::write(&self.seen);
        let before = seen.candidate.as_ref().ok();
        let candidate = loaded.map(|set| match before {
            // The same files for other tools: it is counted on.
            Some(before) if before.set.digest() == set.digest() => {
                Candidate { set: Arc::new(set), ..before.clone() }
            }
            Some(_) | None => Candidate { set: Arc::new(set), since: now, counts: Arc::default() },
        });
        let digest = |candidate: &Candidate| candidate.set.digest();
        let is_another = candidate.as_ref().map(digest) != seen.candidate.as_ref().map(digest);
        *seen = Seen { look: Some(look), candidate };
        is_another
    }

    /// Logs for the operator which candidate is asked, or why none is.
    pub fn tell(&self) {
        let directory = self.directory.display();
        match self.candidate() {
            Ok(Candidate { set, .. }) => {
                let (policies, cases) = (set.policies().count(), set.cases());
                info!(
                    policy_hash = %set.digest(),
                    "shadow policies in `{directory}`: {policies} are asked beside those in force and \
                     change nothing, {cases} cases hold"
                );
                warn_of(set.warnings());
            }
            Err(why) => error!("shadow policies are not asked: {why}\nthose in force go on"),
        }
    }

    /// What the candidate would have decided, where that differs.
    fn differs(
        &self,
        request: PolicyRequest<'_>,
        in_force: &PolicyDecision,
    ) -> Option<PolicyDecision> {
        let candidate = self.candidate().ok()?;
        self.ask(&candidate, &*candidate.set, request, in_force)
    }

    /// A panic ends the question, and nothing else: no decision depends on the answer. The candidate is not asked
    /// again until its files change.
    fn ask(
        &self,
        candidate: &Candidate,
        policy: &dyn Policy,
        request: PolicyRequest<'_>,
        in_force: &PolicyDecision,
    ) -> Option<PolicyDecision> {
        let Ok(decision) = panics::contained_now(|| policy.decide(request)) else {
            let why =
                "to ask them panicked; please report it. They are asked again when they change";
            lock::write(&self.seen).candidate = Err(why.to_owned());
            self.tell();
            return None;
        };
        let differs = shadow::differs(request.call, in_force, &decision);
        let (from, to) = (PolicyAnswer::of(in_force), PolicyAnswer::of(&decision));
        candidate.count(differs.then_some(DifferenceKind { from, to }));
        differs.then_some(decision)
    }
}

fn load(directory: &Path, nameable: Nameable<'_>) -> Result<PolicySet, String> {
    refuse_writable_policies(directory).map_err(|why| format!("{why:#}"))?;
    PolicySet::load(directory, nameable).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
