//! Recorded decisions, asked again under other policies. Nothing is executed or recorded.

use std::sync::Arc;

use stepgate_core::history::{PastDecision, Ruling, past_decision};
use stepgate_core::ports::{Policy, PolicyRequest, Store, StoreError};
use stepgate_core::tool::{Tool, ToolName};

/// Runs that are read at once.
const PAGE: usize = 1000;

/// A recorded decision that would be another one.
#[derive(Debug)]
pub struct Change {
    /// The call, and what was decided.
    pub past: PastDecision,
    /// What would be decided.
    pub ruling: Ruling,
    /// The policies that would decide it.
    pub policies: Vec<String>,
}

/// How many decisions were asked again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Decisions that were asked again.
    pub asked: u32,
    /// Those that would be another one.
    pub changed: u32,
    /// Runs that could not be read: `verify` names them.
    pub unreadable: u32,
}

/// Asks the newest decisions again, at most `limit`. `changed` gets each that would be another one; `progress` is
/// called now and then.
pub async fn replay<E: From<StoreError>>(
    store: &dyn Store,
    tool: impl Fn(&ToolName) -> Option<Arc<Tool>>,
    policy: &dyn Policy,
    limit: u32,
    mut changed: impl FnMut(Change) -> Result<(), E>,
    mut progress: impl FnMut(Replayed),
) -> Result<Replayed, E> {
    let mut done = Replayed::default();
    let mut before = None;
    loop {
        let page = store.run_ids(before, PAGE).await?;
        let Some(oldest) = page.last() else { return Ok(done) };
        before = Some(*oldest);
        for run_id in &page {
            if done.asked >= limit {
                return Ok(done);
            }
            let dossier = match store.dossier(*run_id).await {
                Ok(Some(dossier)) => dossier,
                Ok(None) => continue,
                Err(StoreError::State(_)) => {
                    done.unreadable += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let past = match past_decision(&tool, &dossier) {
                Ok(Some(past)) => past,
                Ok(None) => continue,
                Err(_) => {
                    done.unreadable += 1;
                    continue;
                }
            };
            done.asked += 1;
            if let Some(change) = asked_again(policy, past) {
                done.changed += 1;
                changed(change)?;
            }
        }
        progress(done);
    }
}

/// The change, where policy would decide otherwise now.
fn asked_again(policy: &dyn Policy, past: PastDecision) -> Option<Change> {
    let PastDecision { principal_id, call, facts, .. } = &past;
    let request = PolicyRequest { principal_id, call, facts };
    let decision = policy.decide(request);
    let ruling = past.would_be(&decision);
    (ruling != past.ruling).then_some(Change { past, ruling, policies: decision.policies })
}
