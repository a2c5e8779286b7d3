//! Recovery beside the requests: runs of tool servers at the start, and later whatever a fault left.

use std::sync::Arc;
use std::time::Duration;

use stepgate_core::recover::{self, Report, Scope};

use super::{Service, is_set};
use crate::show;

/// The first pause after a recovery that left something, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How often to look whether another node is gone.
const STRAY_LOOK: Duration = Duration::from_secs(1);

pub(super) async fn keep_recovering(service: Arc<Service>) {
    let mut leaving = service.leaving();
    // What belongs to core actions was recovered before the first request.
    let mut scopes: &[Scope] = &[Scope::Servers];
    let mut pause = PAUSE_MIN;
    loop {
        let has_more = recover_all(&service, scopes).await;
        scopes = &[Scope::Core, Scope::Servers];
        tokio::select! {
            () = tokio::time::sleep(pause), if has_more => pause = (pause * 2).min(PAUSE_MAX),
            // A node that let go of a run and died before its own recovery left nothing that looks stray.
            () = tokio::time::sleep(PAUSE_MAX), if !has_more => {}
            () = stray_runs(&service) => pause = PAUSE_MIN,
            () = service.left.notified() => {
                // Whoever left it may still be letting go.
                tokio::time::sleep(PAUSE_MIN).await;
                pause = PAUSE_MIN;
            }
            () = is_set(&mut leaving) => return,
        }
    }
}

/// Until a node is gone that left runs behind.
async fn stray_runs(service: &Service) {
    loop {
        tokio::time::sleep(STRAY_LOOK).await;
        // A store that cannot be asked has nothing to recover from now.
        if service.gate.store.has_stray_runs().await.unwrap_or(false) {
            return;
        }
    }
}

/// Whether anything is left that the next try may end.
async fn recover_all(service: &Service, scopes: &[Scope]) -> bool {
    let mut has_more = false;
    for scope in scopes {
        match recover::recover(&service.gate, *scope).await {
            Ok(Report { in_doubt, stuck, .. }) => {
                has_more |= !in_doubt.is_empty() || !stuck.is_empty();
            }
            Err(fault) => {
                show::note(format!("recovery goes on later: {fault}"));
                has_more = true;
            }
        }
    }
    has_more
}
