//! The simulated nodes in the hands of a test: one act after the other, in calm weather, so that their
//! answers can be laid beside those of the real ones.
//!
//! No lease ends by itself here, and no node doubts its own: a test says when one lapses.

use std::sync::Arc;

use stepgate_core::ids::RunId;
use stepgate_core::lease::{Incarnation, Ownership};
use stepgate_core::ports::{Store, StoreError};

use crate::node_store::NodeStore;
use crate::processes::Seat;
use crate::sabotage::Sabotage;
use crate::schedule::{Driver, Group, Instant, by_chance};
use crate::signal;
use crate::world::Sim;

/// More turns than any act takes.
const TURNS_MAX: u64 = 100_000;

/// Simulated nodes that do what they are told.
pub struct Rehearsal {
    sim: Arc<Sim>,
    nodes: Vec<Arc<NodeStore>>,
}

impl Rehearsal {
    /// So many nodes, registered in their order on an empty store, perhaps without one of their guards.
    pub fn of(nodes: u64, sabotage: Option<Sabotage>) -> Result<Self, StoreError> {
        let mut rehearsal = Self { sim: Sim::calm(sabotage), nodes: Vec::new() };
        for node in 0..nodes {
            let store = rehearsal.registered(node)?;
            rehearsal.nodes.push(store);
        }
        Ok(rehearsal)
    }

    /// Does something at the store of a node, and answers when it is done.
    pub fn act<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        node: usize,
        work: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> Option<T> {
        let store = Arc::clone(self.nodes.get(node)?);
        self.drive(work(store))
    }

    /// The number of a node's present incarnation.
    pub fn incarnation(&self, node: usize) -> Option<Incarnation> {
        Some(self.nodes.get(node)?.incarnation())
    }

    /// Lets a node's lease lapse by the store's clock. The node does not know it yet.
    pub fn lapse(&self, node: usize) {
        if let Some(store) = self.nodes.get(node) {
            self.sim.shared.database.tables().end_lease(store.incarnation(), self.sim.env.now());
        }
    }

    /// A node renews its lease, or comes back as another incarnation.
    pub fn renew(&self, node: usize) -> Option<Result<(), StoreError>> {
        let store = Arc::clone(self.nodes.get(node)?);
        let renewing = Arc::clone(&store);
        let renewed = self.drive(async move { renewing.renew().await });
        self.lasting(&store);
        renewed
    }

    /// A node stops in an orderly way, and another process takes its place.
    pub fn restart(&mut self, node: usize) -> Result<(), StoreError> {
        self.lapse(node);
        let number = u64::try_from(node).unwrap_or(u64::MAX);
        let fresh = self.registered(number)?;
        if let Some(store) = self.nodes.get_mut(node) {
            *store = fresh;
        }
        Ok(())
    }

    /// Who works on a run, and how often that changed.
    pub fn ownership(&self, run_id: RunId) -> Option<Ownership> {
        self.sim.shared.database.tables().ownership(run_id)
    }

    fn registered(&self, node: u64) -> Result<Arc<NodeStore>, StoreError> {
        let seat = Seat::with_good_clock(node, Group::WORLD);
        let registered = self.drive(NodeStore::register(
            Arc::clone(&self.sim.env),
            Arc::clone(&self.sim.shared.database),
            Arc::clone(&self.sim.processes),
            seat,
        ));
        let unanswered = || StoreError::Unavailable("the node was never registered".into());
        let store = registered.ok_or_else(unanswered)??;
        self.lasting(&store);
        Ok(store)
    }

    fn lasting(&self, store: &NodeStore) {
        self.sim.shared.database.tables().end_lease(store.incarnation(), Instant::MAX);
        store.believe_in_lease();
    }

    /// Lets simulated time pass until the work is done; none where it never is.
    fn drive<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (answering, awaited) = signal::answer();
        self.sim.env.spawn(Group::WORLD, async move { answering.send(work.await) });
        let mut driver = Driver::new(&self.sim.env.schedule);
        let mut chance = by_chance(&self.sim.env.chance);
        for _ in 0..TURNS_MAX {
            if let Some(answer) = awaited.taken() {
                return Some(answer);
            }
            driver.turn(&mut chance);
        }
        None
    }
}
