//! Tasks and time. One thread, one clock that jumps from one timer to the next, and chance decides who
//! of those that are ready goes on.
//!
//! A task belongs to a group: the world, or one process of a node. A group that is killed is dropped
//! whole, as a process that dies; one that is paused is not polled, as a process that is stopped, while
//! time goes on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::chance::Chance;
use crate::locked;

/// Microseconds since the simulation began.
pub(crate) type Instant = u64;

/// What dies and stops together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group(pub(crate) u64);

impl Group {
    /// Whatever is outside all nodes: agents, operators, tool servers, the network.
    pub(crate) const WORLD: Self = Self(0);
}

/// What a task does.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The clock, and what tasks ask of the driver.
#[derive(Default)]
pub(crate) struct Schedule {
    state: Mutex<State>,
    ready: Arc<Mutex<Vec<u64>>>,
}

#[derive(Default)]
struct State {
    now: Instant,
    timers: BTreeMap<(Instant, u64), Waker>,
    timers_made: u64,
    groups_made: u64,
    spawned: Vec<(Group, Job)>,
    killed: Vec<Group>,
    dead: BTreeSet<Group>,
    paused: BTreeSet<Group>,
}

impl Schedule {
    /// The present.
    pub(crate) fn now(&self) -> Instant {
        locked(&self.state).now
    }

    /// A group that nothing belongs to yet.
    pub(crate) fn new_group(&self) -> Group {
        let mut state = locked(&self.state);
        state.groups_made += 1;
        Group(state.groups_made)
    }

    /// Begins a task. In a dead group it never runs.
    pub(crate) fn spawn(&self, group: Group, job: impl Future<Output = ()> + Send + 'static) {
        locked(&self.state).spawned.push((group, Box::pin(job)));
    }

    /// Ends a group. The task that calls this must wait for its own end afterwards.
    pub(crate) fn kill(&self, group: Group) {
        let mut state = locked(&self.state);
        state.killed.push(group);
        state.dead.insert(group);
        state.paused.remove(&group);
    }

    /// Stops a group until it is continued.
    pub(crate) fn pause(&self, group: Group) {
        let mut state = locked(&self.state);
        if !state.dead.contains(&group) {
            state.paused.insert(group);
        }
    }

    /// Lets a stopped group go on.
    pub(crate) fn go_on(&self, group: Group) {
        locked(&self.state).paused.remove(&group);
    }

    /// Waits until then.
    pub(crate) async fn until(&self, then: Instant) {
        let mut is_set = false;
        poll_fn(|context| {
            let mut state = locked(&self.state);
            if state.now >= then {
                return Poll::Ready(());
            }
            if !is_set {
                is_set = true;
                state.timers_made += 1;
                let place = (then, state.timers_made);
                state.timers.insert(place, context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits for something, but not beyond then.
    pub(crate) async fn within<T>(
        &self,
        then: Instant,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        let mut end = pin!(self.until(then));
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => end.as_mut().poll(context).map(|()| None),
        })
        .await
    }
}

struct Task {
    group: Group,
    job: Job,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    task: u64,
    is_queued: AtomicBool,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            locked(&self.ready).push(self.task);
        }
    }
}

/// Polls the tasks of a schedule.
pub(crate) struct Driver<'a> {
    schedule: &'a Schedule,
    tasks: BTreeMap<u64, Task>,
    tasks_made: u64,
    /// Tasks that are ready and whose group is stopped.
    stopped: VecDeque<u64>,
}

/// What one turn of the driver came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A task went on.
    Polled,
    /// The clock went on.
    Waited,
    /// Nothing is left that could happen.
    Idle,
}

impl<'a> Driver<'a> {
    /// A driver with nothing to do yet.
    pub(crate) fn new(schedule: &'a Schedule) -> Self {
        Self { schedule, tasks: BTreeMap::new(), tasks_made: 0, stopped: VecDeque::new() }
    }

    /// Lets one task go on, or the clock.
    pub(crate) fn turn(&mut self, chance: &mut impl FnMut(u64) -> u64) -> Turn {
        self.settle();
        let ready = &self.schedule.ready;
        let count = locked(ready).len() as u64;
        if count > 0 {
            let at = usize::try_from(chance(count)).unwrap_or(0);
            let task = locked(ready).swap_remove(at);
            self.poll(task);
            return Turn::Polled;
        }
        self.wait()
    }

    fn poll(&mut self, id: u64) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if locked(&self.schedule.state).paused.contains(&task.group) {
            self.stopped.push_back(id);
            return;
        }
        task.waker.is_queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&task.waker));
        if task.job.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            drop(self.tasks.remove(&id));
        }
    }

    /// Does what tasks asked for since the last turn.
    fn settle(&mut self) {
        loop {
            let (spawned, killed) = {
                let mut state = locked(&self.schedule.state);
                (std::mem::take(&mut state.spawned), std::mem::take(&mut state.killed))
            };
            if spawned.is_empty() && killed.is_empty() {
                break;
            }
            for (group, job) in spawned {
                if locked(&self.schedule.state).dead.contains(&group) {
                    continue;
                }
                self.tasks_made += 1;
                let waker = Arc::new(TaskWaker {
                    task: self.tasks_made,
                    is_queued: AtomicBool::new(true),
                    ready: Arc::clone(&self.schedule.ready),
                });
                self.tasks.insert(self.tasks_made, Task { group, job, waker });
                locked(&self.schedule.ready).push(self.tasks_made);
            }
            for group in killed {
                // What a dropped task lets go of may wake others, so no lock is held here.
                self.tasks.retain(|_, task| task.group != group);
            }
        }
        let state = locked(&self.schedule.state);
        let is_paused =
            |task: Option<&Task>| task.is_some_and(|task| state.paused.contains(&task.group));
        let (stopped, freed): (VecDeque<u64>, VecDeque<u64>) =
            self.stopped.iter().partition(|id| is_paused(self.tasks.get(id)));
        drop(state);
        self.stopped = stopped;
        locked(&self.schedule.ready).extend(freed);
    }

    /// Lets the clock jump to the next timer.
    fn wait(&mut self) -> Turn {
        let mut due = Vec::new();
        {
            let mut state = locked(&self.schedule.state);
            let Some((&(then, _), _)) = state.timers.first_key_value() else { return Turn::Idle };
            state.now = then;
            while let Some(first) = state.timers.first_entry() {
                if first.key().0 > then {
                    break;
                }
                due.push(first.remove());
            }
        }
        due.into_iter().for_each(Waker::wake);
        Turn::Waited
    }

    /// Drops everything, so that nothing keeps itself alive.
    pub(crate) fn clear(mut self) {
        self.tasks.clear();
        let mut state = locked(&self.schedule.state);
        let left = (std::mem::take(&mut state.spawned), std::mem::take(&mut state.timers));
        drop(state);
        drop(left);
    }
}

/// Chance for a driver.
pub(crate) fn by_chance(chance: &Mutex<Chance>) -> impl FnMut(u64) -> u64 + '_ {
    |count| locked(chance).below(count)
}
