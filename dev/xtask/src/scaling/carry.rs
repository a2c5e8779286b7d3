//! What one PostgreSQL carries: one, two and three nodes, near and far, and what limits them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::client::Work;
use super::load::{Crowd, Sessions, Taken};
use super::node::{Node, Policy};
use super::proxy::{self, Proxy};
use super::server::{Seen, Watcher};
use super::{Scene, median, processor};

const NODES: [usize; 3] = [1, 2, 3];
/// How far away PostgreSQL is, one way: on this machine, as in another zone, and farther.
const NEAR: Duration = Duration::ZERO;
const FAR: Duration = Duration::from_millis(2);
const FARTHER: Duration = Duration::from_millis(5);
const LOOK: Duration = Duration::from_millis(50);

/// Where nodes, clients and PostgreSQL are.
#[derive(Clone, Copy, Debug)]
struct Place {
    one_way: Duration,
    sessions: Sessions,
    clients: Clients,
}

/// How many clients there are.
#[derive(Clone, Copy, Debug)]
enum Clients {
    /// More with every node.
    AtEach(usize),
    /// The same for any number of nodes, which share them.
    InAll(usize),
}

impl Clients {
    fn at_each_of(self, nodes: usize) -> usize {
        match self {
            Self::AtEach(clients) => clients,
            Self::InAll(clients) => clients / nodes,
        }
    }
}

/// On this machine a few clients keep it busy. Far away few clients leave the processors idle, and many
/// show how much one node can have under way.
const PLACES: [Place; 8] = [
    Place { one_way: NEAR, sessions: Sessions::OfClients, clients: Clients::AtEach(64) },
    Place { one_way: NEAR, sessions: Sessions::OfNodes, clients: Clients::AtEach(64) },
    Place { one_way: NEAR, sessions: Sessions::Shared, clients: Clients::AtEach(64) },
    Place { one_way: NEAR, sessions: Sessions::OfClients, clients: Clients::InAll(192) },
    Place { one_way: FAR, sessions: Sessions::OfClients, clients: Clients::InAll(192) },
    Place { one_way: FARTHER, sessions: Sessions::OfClients, clients: Clients::InAll(192) },
    Place { one_way: FARTHER, sessions: Sessions::OfClients, clients: Clients::AtEach(16) },
    Place { one_way: FARTHER, sessions: Sessions::Shared, clients: Clients::AtEach(16) },
];

/// Prints the table, and answers how many steps a second one PostgreSQL carried at best.
pub(super) fn tables(scene: &Scene) -> anyhow::Result<f64> {
    println!("\n### Nodes on one PostgreSQL\n");
    println!("READ_FILE; median of {} rounds in turns.\n", scene.extent.rounds);
    println!(
        "| way, one way | sessions | clients at each node | nodes | steps/s | p50 ms | p99 ms | commits/s \
         | node ms/step | PostgreSQL ms/step | clients ms/step | proxy ms/step | cores busy \
         | with others | connections on average |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut best: f64 = 0.0;
    for place in PLACES {
        let mut rounds: Vec<Vec<Round>> = NODES.iter().map(|_| Vec::new()).collect();
        for _ in 0..scene.extent.rounds {
            for (nodes, rounds) in NODES.into_iter().zip(&mut rounds) {
                rounds.push(round(scene, place, nodes)?);
            }
        }
        for (nodes, rounds) in NODES.into_iter().zip(rounds) {
            best = best.max(print(place, nodes, rounds));
        }
    }
    Ok(best)
}

/// What one round gave. Times in milliseconds.
struct Round {
    per_second: f64,
    p50: f64,
    p99: f64,
    seen: Seen,
    steps: f64,
    /// Seconds of the processors, while the window was open.
    spent: Spent,
    seconds: f64,
}

/// One row; answers its steps a second.
fn print(place: Place, nodes: usize, mut rounds: Vec<Round>) -> f64 {
    let Place { one_way, sessions, clients } = place;
    let clients_per_node = clients.at_each_of(nodes);
    let middle = |value: fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    let per_second = middle(|round| round.per_second);
    let (p50, p99) = (middle(|round| round.p50), middle(|round| round.p99));
    let commits = middle(|round| round.seen.batches / round.seconds);
    let each = |value: fn(&Round) -> f64| middle(value) * 1000.0;
    let of_nodes = each(|round| round.spent.nodes / round.steps);
    let of_server = each(|round| round.spent.server / round.steps);
    let of_clients = each(|round| round.spent.clients / round.steps);
    let of_proxy = each(|round| round.spent.proxy / round.steps);
    let cores = middle(|round| round.spent.sum() / round.seconds);
    let others = middle(|round| (round.spent.machine - round.spent.sum()) / round.seconds);
    rounds.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    let at = rounds.get(rounds.len() / 2).map(|round| round.seen.at.as_slice()).unwrap_or_default();
    let at: Vec<_> = at.iter().take(4).map(|(what, count)| format!("{what} {count:.1}")).collect();
    println!(
        "| {} ms | {} | {clients_per_node} | {nodes} | {per_second:.0} | {p50:.1} | {p99:.1} | {commits:.0} \
         | {of_nodes:.3} | {of_server:.3} | {of_clients:.3} | {of_proxy:.3} | {cores:.1} \
         | {others:.1} | {} |",
        one_way.as_millis(),
        sessions.name(),
        at.join(", ")
    );
    per_second
}

fn round(scene: &Scene, place: Place, count: usize) -> anyhow::Result<Round> {
    let Place { one_way, sessions, clients } = place;
    let Scene { cluster, .. } = scene;
    let database = cluster.database()?;
    let url = match one_way {
        NEAR => cluster.url(&database),
        _ => {
            let proxy = Proxy::start(cluster.port(), one_way)?;
            format!("postgres://postgres@127.0.0.1:{}/{database}", proxy.port)
        }
    };
    let mut nodes = Vec::new();
    for number in 0..count {
        let data = scene.directory.join(format!("{database}-node-{number}"));
        nodes.push(Node::start(&scene.stepgate, &data, Some(&url), Policy::Nobody)?);
    }
    let mut crowd = Crowd::gather(&nodes, clients.at_each_of(count), sessions, Work::Read)?;
    let watcher = Watcher::start(cluster, &database)?;
    let (taken, window) = crowd.work(|| look_on(scene, &nodes, watcher))?;
    for node in nodes {
        let data = node.data.clone();
        node.stop()?;
        fs::remove_dir_all(data)?;
    }
    cluster.sql("postgres", &format!("DROP DATABASE {database} WITH (FORCE)"))?;
    Ok(window.judge(&taken))
}

/// Waits until it runs, then looks for a while.
fn look_on(scene: &Scene, nodes: &[Node], mut watcher: Watcher) -> anyhow::Result<Window> {
    thread::sleep(scene.extent.warm_up);
    watcher.count_batches()?;
    let before = Spent::so_far(scene, nodes)?;
    let begin = Instant::now();
    let end = begin + scene.extent.window;
    while Instant::now() + LOOK < end {
        thread::sleep(LOOK);
        watcher.look()?;
    }
    thread::sleep(end.saturating_duration_since(Instant::now()));
    let end = Instant::now();
    let spent = Spent::so_far(scene, nodes)?.since(before);
    watcher.count_batches()?;
    Ok(Window { begin, end, spent, seen: watcher.seen()? })
}

/// A while that was looked at.
struct Window {
    begin: Instant,
    end: Instant,
    spent: Spent,
    seen: Seen,
}

impl Window {
    fn judge(self, taken: &[Taken]) -> Round {
        let Self { begin, end, spent, seen } = self;
        let ended = |taken: &&Taken| begin <= taken.end && taken.end < end;
        let mut times: Vec<f64> = taken
            .iter()
            .filter(ended)
            .map(|taken| (taken.end - taken.begin).as_secs_f64() * 1000.0)
            .collect();
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
        let (steps, seconds) = (times.len() as f64, (end - begin).as_secs_f64());
        Round { per_second: steps / seconds, p50: at(50), p99: at(99), seen, steps, spent, seconds }
    }
}

/// Seconds of the processors, by whom.
#[derive(Clone, Copy, Debug)]
struct Spent {
    nodes: f64,
    server: f64,
    clients: f64,
    proxy: f64,
    /// By anybody, also by others than those.
    machine: f64,
}

impl Spent {
    fn so_far(scene: &Scene, nodes: &[Node]) -> anyhow::Result<Self> {
        Ok(Self {
            nodes: nodes
                .iter()
                .map(|node| processor::of_process(node.pid()))
                .sum::<Result<_, _>>()?,
            server: processor::of_server(&scene.cluster)?,
            clients: processor::of_threads("client")?,
            proxy: processor::of_threads(proxy::THREAD_NAME)?,
            machine: processor::of_machine()?,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            nodes: self.nodes - before.nodes,
            server: self.server - before.server,
            clients: self.clients - before.clients,
            proxy: self.proxy - before.proxy,
            machine: self.machine - before.machine,
        }
    }

    fn sum(self) -> f64 {
        self.nodes + self.server + self.clients + self.proxy
    }
}
