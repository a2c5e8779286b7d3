//! Requests and logins without a valid token, as events: the first of an address at once, further ones as a sum
//! each minute. Nobody needs a token for this, so the number of events has a limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stepgate_core::event::EventType;
use stepgate_core::event::payload::LoginRefused;
use stepgate_core::lock;
use stepgate_gateway::request;
use stepgate_gateway::service::{Service, sleep_unless_set};
use tracing::warn;

use super::network::Network;

/// How long failures are summed up.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that have events of their own in a window; others are counted together.
const NETWORKS_MAX: usize = 16;

/// The failures of the current window; none where it was quiet.
#[derive(Clone, Default)]
pub(crate) struct FailedLogins(Arc<Mutex<Option<Window>>>);

/// Failures that no event tells of yet.
#[derive(Default)]
struct Window {
    by_network: HashMap<Network, u64>,
    others: u64,
}

impl Window {
    /// Counts a failure, and says whether it is told at once.
    fn count(&mut self, network: Network) -> bool {
        if let Some(count) = self.by_network.get_mut(&network) {
            *count += 1;
            return false;
        }
        let has_room = self.by_network.len() < NETWORKS_MAX;
        match has_room {
            true => drop(self.by_network.insert(network, 0)),
            false => self.others += 1,
        }
        has_room
    }

    /// What is still to be told.
    fn sums(self) -> impl Iterator<Item = LoginRefused> {
        let known = self.by_network.into_iter().map(|(network, count)| (Some(network), count));
        let sums = known.chain([(None, self.others)]).filter(|(_, count)| *count > 0);
        sums.map(|(network, count)| LoginRefused {
            address: network.map(|network| network.to_string()),
            count,
        })
    }
}

impl FailedLogins {
    pub(crate) fn note(&self, service: &Arc<Service>, network: Network) {
        let mut window = lock::locked(&self.0);
        let is_first = window.is_none();
        if window.get_or_insert_default().count(network) {
            let refused = LoginRefused { address: Some(network.to_string()), count: 1 };
            let (service, request) = (Arc::clone(service), request::current());
            tokio::spawn(request::within(request, async move { tell(&service, refused).await }));
        }
        if is_first {
            tokio::spawn(self.clone().sum_up(Arc::clone(service)));
        }
    }

    /// Ends the window after its time, or when the process ends.
    async fn sum_up(self, service: Arc<Service>) {
        sleep_unless_set(WINDOW, &mut service.leaving()).await;
        let window = lock::locked(&self.0).take();
        for refused in window.into_iter().flat_map(Window::sums) {
            tell(&service, refused).await;
        }
    }
}

async fn tell(service: &Service, refused: LoginRefused) {
    if let Err(fault) = service.gate.note(EventType::LoginRefused, refused).await {
        warn!("requests without a valid token are not in the record: {fault}");
    }
}

#[cfg(test)]
mod tests;
