//! A node's life: it registers, recovers, serves, keeps time, dies and comes back. It follows the service of
//! the real program (`service/recovery.rs`, `service/expiry.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stepgate_core::approval::ApprovalStatus;
use stepgate_core::gate::{Doubts, Extensions, Fault, Gate, Parked};
use stepgate_core::limits::Limits;
use stepgate_core::ports::{ApprovalQuery, StoreError};
use stepgate_core::recover::{self, Scope};
use stepgate_core::step::{self, Person, Refused};

use crate::chance::Chance;
use crate::database::short;
use crate::files::{IN_DOUBT, NodeFiles};
use crate::locked;
use crate::node_store::NodeStore;
use crate::policy::NodePolicy;
use crate::schedule::{Group, Instant};
use crate::servers::NodeServers;
use crate::signal::{Bell, answer};
use crate::weather::{APPROVAL_TTL_MS, MS, SECOND};
use crate::world::{NodeWorld, Sim, number_of};

/// The first pause after a recovery that left something, and the longest.
const PAUSE_MIN: Instant = SECOND;
const PAUSE_MAX: Instant = 60 * SECOND;
/// How often to look whether another node is gone.
const STRAY_LOOK: Instant = SECOND;
/// How often open approvals are looked at.
const EXPIRY_LOOK: Instant = 5 * SECOND;

/// One process of a node, and its clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) node: u64,
    pub(crate) group: Group,
    /// How fast its own clock goes, in millionths.
    rate: u64,
}

impl Seat {
    /// A process whose clock is right.
    pub(crate) fn with_good_clock(node: u64, group: Group) -> Self {
        Self { node, group, rate: 1_000_000 }
    }

    /// The node's own clock when the world's shows this.
    pub(crate) fn own(self, now: Instant) -> Instant {
        now.saturating_mul(self.rate) / 1_000_000
    }

    /// How long a time of its own is in the world's.
    pub(crate) fn real(self, own: Instant) -> Instant {
        own.saturating_mul(1_000_000) / self.rate.max(1)
    }
}

/// The nodes.
pub(crate) struct Nodes {
    clocks: Vec<Clock>,
    places: Mutex<BTreeMap<u64, Place>>,
}

struct Clock {
    rate: u64,
    skew_ms: i64,
}

#[derive(Default)]
struct Place {
    group: Option<Group>,
    process: Option<Arc<Process>>,
    stays_away: bool,
}

/// A node that serves.
pub(crate) struct Process {
    pub(crate) seat: Seat,
    pub(crate) gate: Gate,
    /// Something was left to recovery.
    left: Bell,
}

impl Nodes {
    pub(crate) fn new(count: usize, chance: &mut Chance) -> Self {
        let clocks = (0..count).map(|_| Clock {
            // A tenth slower or faster: worse than any clock that works.
            rate: chance.between(900_000, 1_100_000),
            skew_ms: i64::try_from(chance.below(400)).unwrap_or(0) - 200,
        });
        Self { clocks: clocks.collect(), places: Mutex::default() }
    }

    /// The process of a node, where it serves.
    pub(crate) fn process(&self, node: u64) -> Option<Arc<Process>> {
        locked(&self.places).get(&node)?.process.clone()
    }

    /// How many nodes there are.
    pub(crate) fn count(&self) -> u64 {
        self.clocks.len() as u64
    }

    /// Forgets every process, so that nothing keeps itself alive.
    pub(crate) fn clear(&self) {
        let places = std::mem::take(&mut *locked(&self.places));
        drop(places);
    }
}

impl Process {
    /// What a fault means for the node: it exits, or recovery looks after what was left.
    pub(crate) fn heed(&self, sim: &Arc<Sim>, fault: Option<&Fault>) {
        if let Some(fault) = fault {
            sim.note("fault", self.seat.node, 0, || fault.to_string());
        }
        match fault {
            Some(Fault::Store(StoreError::Broken(_))) => sim.crash(self.seat, "broken store"),
            Some(Fault::Store(_) | Fault::Executor(_)) => self.left.ring(),
            Some(Fault::ForeignSession(_) | Fault::Name(_)) | None => {}
        }
    }

    /// The same for what was refused.
    pub(crate) fn heed_refusal(&self, sim: &Arc<Sim>, refused: Option<&Refused>) {
        match refused {
            Some(Refused::Fault(fault)) => self.heed(sim, Some(fault)),
            Some(
                Refused::NoSuchApproval
                | Refused::AlreadyDecided
                | Refused::NotInDoubt
                | Refused::OwnRequest
                | Refused::OutOfReach,
            )
            | None => {}
        }
    }
}

impl Sim {
    /// Starts a node.
    pub(crate) fn start(self: &Arc<Self>, node: u64) {
        let group = self.schedule.new_group();
        locked(&self.nodes.places).entry(node).or_default().group = Some(group);
        let clock = usize::try_from(node).ok().and_then(|node| self.nodes.clocks.get(node));
        let (rate, skew_ms) = clock.map_or((1_000_000, 0), |clock| (clock.rate, clock.skew_ms));
        let seat = Seat { node, group, rate };
        self.note("start", node, group.0, || "a process starts".into());
        self.spawn(group, live(Arc::clone(self), seat, skew_ms));
    }

    /// A process dies. In bad weather one of the nodes may stay away.
    pub(crate) fn crash(self: &Arc<Self>, seat: Seat, what: &'static str) {
        let stays_away = {
            let mut places = locked(&self.nodes.places);
            let is_first = places.values().all(|place| !place.stays_away);
            let Some(place) = places.get_mut(&seat.node) else { return };
            if place.group != Some(seat.group) {
                return;
            }
            place.group = None;
            let process = place.process.take();
            place.stays_away = self.weather.one_stays_away && is_first;
            let stays_away = place.stays_away;
            drop(places);
            drop(process);
            stays_away
        };
        self.note("CRASH", seat.node, seat.group.0, || what.to_owned());
        self.schedule.kill(seat.group);
        if stays_away {
            return;
        }
        let (sim, after) = (Arc::clone(self), self.between(100 * MS, 12 * SECOND));
        self.spawn(Group::WORLD, async move {
            sim.sleep(after).await;
            sim.start(seat.node);
        });
    }

    /// A process is stopped for a while, and goes on as if nothing had been.
    pub(crate) fn pause(self: &Arc<Self>, seat: Seat, what: &'static str) {
        let time = self.between(200 * MS, self.weather.pause_max);
        self.note("PAUSE", seat.node, time, || format!("{what}, for {} ms", time / MS));
        self.schedule.pause(seat.group);
        let sim = Arc::clone(self);
        self.spawn(Group::WORLD, async move {
            sim.sleep(time).await;
            sim.note("CONTINUE", seat.node, seat.group.0, || "the process goes on".into());
            sim.schedule.go_on(seat.group);
        });
    }

    /// Asks a node for something, and waits so long. None where nobody answers.
    pub(crate) async fn call<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        self: &Arc<Self>,
        node: u64,
        patience: Instant,
        work: impl FnOnce(Arc<Sim>, Arc<Process>) -> W + Send + 'static,
    ) -> Option<T> {
        let way = self.between(1, 5 * MS);
        self.sleep(way).await;
        let process = self.nodes.process(node)?;
        let (answering, awaited) = answer();
        let (group, sim) = (process.seat.group, Arc::clone(self));
        self.spawn(group, async move { answering.send(work(sim, process).await) });
        self.within(patience, awaited.get()).await.flatten()
    }
}

async fn live(sim: Arc<Sim>, seat: Seat, skew_ms: i64) {
    let store = loop {
        match NodeStore::register(Arc::clone(&sim), seat).await {
            Ok(store) => break store,
            Err(_) => sim.sleep(200 * MS).await,
        }
    };
    let renewing = Arc::clone(&store);
    sim.spawn(seat.group, async move { renewing.keep_renewing().await });
    let gate = Gate {
        store,
        executor: Arc::new(NodeFiles { sim: Arc::clone(&sim), seat }),
        tools: Arc::new(NodeServers { sim: Arc::clone(&sim), seat }),
        policy: Arc::new(NodePolicy { sim: Arc::clone(&sim), node: seat.node }),
        world: Arc::new(NodeWorld { sim: Arc::clone(&sim), skew_ms }),
        limits: Limits {
            approval_ttl_ms: APPROVAL_TTL_MS,
            record_retry_pause: Duration::from_millis(200),
            ..Limits::default()
        },
        extensions: Extensions::default(),
        parked: Parked::default(),
        doubts: Doubts::default(),
    };
    let process = Arc::new(Process { seat, gate, left: Bell::default() });
    // What belongs to core actions is recovered before the first request.
    recover_all(&sim, &process, &[Scope::Core]).await;
    if let Some(place) = locked(&sim.nodes.places).get_mut(&seat.node)
        && place.group == Some(seat.group)
    {
        place.process = Some(Arc::clone(&process));
    }
    sim.note("serve", seat.node, seat.group.0, || "the node serves".into());
    sim.spawn(seat.group, keep_time(Arc::clone(&sim), Arc::clone(&process)));
    keep_recovering(sim, process).await;
}

async fn keep_recovering(sim: Arc<Sim>, process: Arc<Process>) {
    let mut scopes: &[Scope] = &[Scope::Servers];
    let mut pause = PAUSE_MIN;
    loop {
        let has_more = recover_all(&sim, &process, scopes).await;
        scopes = &[Scope::Core, Scope::Servers];
        let rest = if has_more { pause } else { PAUSE_MAX };
        let deadline = sim.now() + rest;
        loop {
            let heard = process.left.times();
            let look = deadline.min(sim.now() + STRAY_LOOK);
            if sim.schedule.within(look, process.left.rung_since(heard)).await.is_some() {
                // Whoever left it may still be letting go.
                sim.sleep(PAUSE_MIN).await;
                pause = PAUSE_MIN;
                break;
            }
            if sim.now() >= deadline {
                pause = (pause * 2).min(PAUSE_MAX);
                break;
            }
            if process.gate.store.has_stray_runs().await.unwrap_or(false) {
                pause = PAUSE_MIN;
                break;
            }
        }
    }
}

/// Whether anything is left that the next try may end.
async fn recover_all(sim: &Arc<Sim>, process: &Process, scopes: &[Scope]) -> bool {
    let mut has_more = false;
    for scope in scopes {
        match recover::recover(&process.gate, scope.clone()).await {
            Ok(report) => {
                for (run_id, why) in &report.stuck {
                    sim.note("stuck", process.seat.node, number_of(run_id.as_uuid()), || {
                        format!("run {}: {why}", short(*run_id))
                    });
                }
                has_more |= !report.in_doubt.is_empty() || !report.stuck.is_empty();
                for (run_id, why) in &report.quarantined {
                    sim.violated(format!("run {run_id} is quarantined: {why}"));
                }
                let in_sandbox = report.stuck.iter().filter(|(_, why)| why.contains(IN_DOUBT));
                let in_sandbox: Vec<_> = in_sandbox.map(|(run_id, _)| *run_id).collect();
                let mut ledger = locked(&sim.ledger);
                ledger.doubts(&report.in_doubt);
                ledger.doubts(&in_sandbox);
            }
            Err(fault) => {
                sim.note("recovery", process.seat.node, 0, || format!("stopped: {fault}"));
                has_more = true;
                if matches!(fault, Fault::Store(StoreError::Broken(_))) {
                    process.heed(sim, Some(&fault));
                    std::future::pending::<()>().await;
                }
            }
        }
    }
    has_more
}

/// Lets time decide what nobody decides.
async fn keep_time(sim: Arc<Sim>, process: Arc<Process>) {
    loop {
        let rest = sim.between(EXPIRY_LOOK / 2, EXPIRY_LOOK);
        sim.sleep(rest).await;
        let query = ApprovalQuery {
            status: Some(ApprovalStatus::Pending),
            limit: 64,
            ..ApprovalQuery::default()
        };
        let Ok(open) = process.gate.store.approvals(query).await else { continue };
        for approval in open {
            if approval.has_expired(process.gate.world.now()) {
                let decided =
                    step::resume(&process.gate, approval.approval_id, Person::Nobody).await;
                process.heed_refusal(&sim, decided.as_ref().err());
            }
        }
    }
}
