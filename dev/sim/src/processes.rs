//! The processes of the nodes: which of them run, how they die and are stopped, and when another one starts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use stepgate_core::gate::{Fault, Gate};
use stepgate_core::ports::StoreError;
use stepgate_core::step::Refused;

use crate::environment::Environment;
use crate::locked;
use crate::schedule::{Group, Instant, Job};
use crate::signal::{Bell, answer};
use crate::weather::{MS, SECOND};

/// One process of a node, and its clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) node: u64,
    pub(crate) group: Group,
    /// How far its time of day is from the others'.
    pub(crate) skew_ms: i64,
    /// How fast its own clock goes, in millionths.
    rate: u64,
}

impl Seat {
    /// A process whose clocks are right.
    pub(crate) fn with_good_clock(node: u64, group: Group) -> Self {
        Self { node, group, skew_ms: 0, rate: 1_000_000 }
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

/// What a process does from its start on.
type Life = dyn Fn(Arc<Processes>, Seat) -> Job + Send + Sync;

/// The processes of all nodes.
pub(crate) struct Processes {
    env: Arc<Environment>,
    clocks: Vec<Clock>,
    running: Mutex<BTreeMap<u64, Running>>,
    life: Box<Life>,
}

/// The clocks of one node, which outlive its processes.
pub(crate) struct Clock {
    rate: u64,
    skew_ms: i64,
}

impl Clock {
    pub(crate) fn of_all_nodes(env: &Environment) -> Vec<Self> {
        let clock = |_| Self {
            // A tenth slower or faster: worse than any clock that works.
            rate: env.between(900_000, 1_100_000),
            skew_ms: i64::try_from(env.below(400)).unwrap_or(0) - 200,
        };
        (0..env.weather.nodes).map(clock).collect()
    }
}

/// The process of one node.
#[derive(Default)]
struct Running {
    group: Option<Group>,
    /// The process, once it serves.
    serving: Option<Arc<Process>>,
    stays_away: bool,
}

/// A process with its gate.
pub(crate) struct Process {
    pub(crate) seat: Seat,
    pub(crate) gate: Gate,
    /// Something was left to recovery.
    pub(crate) left: Bell,
    processes: Arc<Processes>,
}

impl Process {
    pub(crate) fn new(processes: Arc<Processes>, seat: Seat, gate: Gate) -> Arc<Self> {
        Arc::new(Self { seat, gate, left: Bell::default(), processes })
    }

    /// What a fault means for the node: it exits, or recovery looks after what was left.
    pub(crate) fn heed(&self, fault: Option<&Fault>) {
        if let Some(fault) = fault {
            self.processes.env.note("fault", self.seat.node, 0, || fault.to_string());
        }
        match fault {
            Some(Fault::Store(StoreError::Broken(_))) => {
                self.processes.crash(self.seat, "broken store");
            }
            Some(Fault::Store(_) | Fault::Executor(_)) => self.left.ring(),
            Some(Fault::ForeignSession(_)) | None => {}
        }
    }

    /// The same for what was refused.
    pub(crate) fn heed_refusal(&self, refused: Option<&Refused>) {
        match refused {
            Some(Refused::Fault(fault)) => self.heed(Some(fault)),
            Some(
                Refused::NoSuchApproval
                | Refused::AlreadyDecided
                | Refused::NotInDoubt
                | Refused::OwnRequest
                | Refused::NotAnApprover
                | Refused::MorePeople
                | Refused::LinkedApprover(_)
                | Refused::OutOfReach
                | Refused::Stopped(_),
            )
            | None => {}
        }
    }
}

impl Processes {
    pub(crate) fn new(
        env: Arc<Environment>,
        clocks: Vec<Clock>,
        life: impl Fn(Arc<Self>, Seat) -> Job + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { env, clocks, running: Mutex::default(), life: Box::new(life) })
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> u64 {
        self.clocks.len() as u64
    }

    /// The process of a node, where it serves.
    pub(crate) fn serving(&self, node: u64) -> Option<Arc<Process>> {
        locked(&self.running).get(&node)?.serving.clone()
    }

    /// From now on a process serves, unless it is dead.
    pub(crate) fn serve(&self, process: &Arc<Process>) {
        let seat = process.seat;
        if let Some(running) = locked(&self.running).get_mut(&seat.node)
            && running.group == Some(seat.group)
        {
            running.serving = Some(Arc::clone(process));
        }
        self.env.note("serve", seat.node, seat.group.0, || "the node serves".into());
    }

    /// Forgets every process, so that nothing keeps itself alive.
    pub(crate) fn clear(&self) {
        let running = std::mem::take(&mut *locked(&self.running));
        drop(running);
    }

    /// Starts a node.
    pub(crate) fn start(self: &Arc<Self>, node: u64) {
        let group = self.env.schedule.new_group();
        locked(&self.running).entry(node).or_default().group = Some(group);
        let clock = usize::try_from(node).ok().and_then(|node| self.clocks.get(node));
        let (rate, skew_ms) = clock.map_or((1_000_000, 0), |clock| (clock.rate, clock.skew_ms));
        let seat = Seat { node, group, skew_ms, rate };
        self.env.note("start", node, group.0, || "a process starts".into());
        self.env.spawn(group, (self.life)(Arc::clone(self), seat));
    }

    /// A process dies. In bad weather one of the nodes may stay away.
    pub(crate) fn crash(self: &Arc<Self>, seat: Seat, what: &'static str) {
        let stays_away = {
            let mut all = locked(&self.running);
            let is_first = all.values().all(|running| !running.stays_away);
            let Some(running) = all.get_mut(&seat.node) else { return };
            if running.group != Some(seat.group) {
                return;
            }
            running.group = None;
            let serving = running.serving.take();
            running.stays_away = self.env.weather.one_stays_away && is_first;
            let stays_away = running.stays_away;
            drop(all);
            drop(serving);
            stays_away
        };
        self.env.note("CRASH", seat.node, seat.group.0, || what.to_owned());
        self.env.schedule.kill(seat.group);
        if stays_away {
            return;
        }
        let (processes, after) = (Arc::clone(self), self.env.between(100 * MS, 12 * SECOND));
        self.env.spawn(Group::WORLD, async move {
            processes.env.sleep(after).await;
            processes.start(seat.node);
        });
    }

    /// A process is stopped for a while, and goes on as if nothing had been.
    pub(crate) fn pause(&self, seat: Seat, what: &'static str) {
        let time = self.env.between(200 * MS, self.env.weather.pause_max);
        self.env.note("PAUSE", seat.node, time, || format!("{what}, for {} ms", time / MS));
        self.env.schedule.pause(seat.group);
        let env = Arc::clone(&self.env);
        self.env.spawn(Group::WORLD, async move {
            env.sleep(time).await;
            env.note("CONTINUE", seat.node, seat.group.0, || "the process goes on".into());
            env.schedule.go_on(seat.group);
        });
    }

    /// Asks a node for something, with a timeout. None where no answer comes.
    pub(crate) async fn call<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        &self,
        node: u64,
        timeout: Instant,
        work: impl FnOnce(Arc<Process>) -> W + Send + 'static,
    ) -> Option<T> {
        let way = self.env.between(1, 5 * MS);
        self.env.sleep(way).await;
        let process = self.serving(node)?;
        let (answering, awaited) = answer();
        let group = process.seat.group;
        self.env.spawn(group, async move { answering.send(work(process).await) });
        self.env.within(timeout, awaited.get()).await.flatten()
    }
}
