//! Emergency stops, as operators make and lift them.

use stepgate_core::action::CORE_SERVER;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{ArtifactId, PrincipalId};
use stepgate_core::ports::{SessionQuery, StoreError};
use stepgate_core::stop::{StopOrder, StopTarget};
use stepgate_core::stops::{self, Covered, Made, StopStanding};
use stepgate_core::text::printable;
use tracing::warn;

use super::Service;

/// A stop that was asked for.
#[derive(Debug)]
pub struct Stopped {
    /// The stop.
    pub stop: StopStanding,
    /// Whether this request made it; otherwise it was in force before.
    pub is_new: bool,
    /// The runs that were under way.
    pub covered: Covered,
    /// That nothing of this name is known: the name may be misspelled. The stop is in force all the same.
    pub warning: Option<String>,
}

impl Service {
    /// Makes a stop. It is in force on every node before this looks at what is under way.
    pub async fn stop(&self, order: StopOrder) -> Result<Stopped, Fault> {
        let (stop, is_new) = match stops::make(&self.gate, order).await? {
            Made::Now(stop) => {
                warn!("stopped: {}", described(&stop));
                (stop, true)
            }
            Made::Before(stop) => (stop, false),
        };
        let covered = stops::covered(&self.gate, &stop.order.target).await?;
        let warning = self.unknown(&stop.order.target).await?;
        Ok(Stopped { stop, is_new, covered, warning })
    }

    /// Lifts a stop, and returns it. None where no stop of this id is in force.
    pub async fn lift(
        &self,
        stop_id: ArtifactId,
        lifted_by: PrincipalId,
    ) -> Result<Option<StopStanding>, Fault> {
        let lifted = stops::lift(&self.gate, stop_id, lifted_by.clone()).await?;
        if let Some(stop) = &lifted {
            warn!("lifted by {lifted_by}: {}", described(stop));
            // Recovery goes on with calls that it did not send again.
            self.left.notify_one();
        }
        Ok(lifted)
    }

    /// That nothing of this name is known.
    async fn unknown(&self, target: &StopTarget) -> Result<Option<String>, StoreError> {
        let is_known = match target {
            StopTarget::All => true,
            StopTarget::Principal(principal_id) => self.is_known_principal(principal_id).await?,
            StopTarget::Session(session_id) => {
                self.gate.store.session(*session_id).await?.is_some()
            }
            StopTarget::Server(server) => self.is_known_server(server),
        };
        let warning = || format!("no {target} is known here: is the name right?");
        Ok((!is_known).then(warning))
    }

    async fn is_known_principal(&self, principal_id: &PrincipalId) -> Result<bool, StoreError> {
        if self.tokens.list().iter().any(|token| token.principal_id == *principal_id) {
            return Ok(true);
        }
        let principal_id = Some(principal_id.clone());
        let query = SessionQuery { principal_id, limit: 1, ..SessionQuery::default() };
        Ok(!self.gate.store.session_page(query).await?.is_empty())
    }

    /// Where this process did not start the servers, it cannot tell.
    fn is_known_server(&self, server: &str) -> bool {
        let Some(control) = &self.control else { return true };
        let servers = control.servers.servers();
        server == CORE_SERVER
            || servers.iter().any(|known| known.name == server)
            || control.turned_off.iter().any(|known| known == server)
    }
}

fn described(stop: &StopStanding) -> String {
    let StopOrder { note, stopped_by, target } = &stop.order;
    let note = note.as_ref().map(|note| format!(": {}", printable(note))).unwrap_or_default();
    format!("{target}, by {stopped_by}{note} (stop {})", stop.stop_id)
}
