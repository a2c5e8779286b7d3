//! What a step costs the store: rows, bytes, commits and round trips.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::Scene;
use super::client::Work;
use super::load::{Crowd, Sessions};
use super::node::{Node, Policy};
use super::proxy::{Passed, Proxy};
use super::server::Written;
use super::sqlite_log::Log;

const WORKS: [Work; 3] = [Work::Read, Work::Write, Work::GrantedRead];
/// On PostgreSQL also without a session's name: a named one is looked up.
const TASKS: [(Work, Sessions); 4] = [
    (Work::Read, Sessions::OfClients),
    (Work::Read, Sessions::Unnamed),
    (Work::Write, Sessions::OfClients),
    (Work::GrantedRead, Sessions::OfClients),
];
const CLIENTS: [usize; 2] = [1, 64];
/// SQLite takes a part of the steps, so that its log is not full before the end.
const PART_FOR_SQLITE: usize = 3;
/// Less than this of a row in a step is what opened sessions and started nodes left.
const TRACE_OF_A_ROW: f64 = 0.05;

pub(super) fn tables(scene: &Scene) -> anyhow::Result<()> {
    println!("\n### A step on PostgreSQL\n");
    println!(
        "| step | session | clients | rows inserted | rows updated | bytes of tables | of indexes | of log \
         | transactions | commits that write | round trips | bytes sent, both ways |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut of_one_client = Vec::new();
    for (work, sessions) in TASKS {
        for clients in CLIENTS {
            let cost = on_postgres(scene, work, sessions, clients).with_context(|| work.name())?;
            cost.print(work, sessions, clients);
            if clients == 1 && sessions == Sessions::OfClients {
                of_one_client.push((work, cost.written.rows));
            }
        }
    }
    println!("\nRows by table, with one client (inserted + updated):\n");
    for (work, rows) in of_one_client {
        println!("- {}: {}", work.name(), by_table(&rows));
    }
    println!("\n### A step on SQLite\n");
    println!("| step | clients | rows inserted | bytes of the file | bytes of log | commits |");
    println!("|---|---|---|---|---|---|");
    for work in WORKS {
        for clients in CLIENTS {
            on_sqlite(scene, work, clients).with_context(|| work.name())?;
        }
    }
    Ok(())
}

fn policy(work: Work) -> Policy {
    match work {
        Work::Read | Work::Write => Policy::Nobody,
        Work::GrantedRead => Policy::Person,
    }
}

fn steps(scene: &Scene, clients: usize) -> usize {
    if clients == 1 { scene.extent.steps } else { scene.extent.steps_of_many }
}

/// The cost of one step.
struct Cost {
    written: Written,
    trips: f64,
    wire_bytes: f64,
}

impl Cost {
    fn print(&self, work: Work, sessions: Sessions, clients: usize) {
        let Self { written, trips, wire_bytes } = self;
        let inserted: f64 = written.rows.values().map(|(inserted, _)| inserted).sum();
        let updated: f64 = written.rows.values().map(|(_, updated)| updated).sum();
        println!(
            "| {} | {} | {clients} | {inserted:.1} | {updated:.1} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} \
             | {trips:.2} | {wire_bytes:.0} |",
            work.name(),
            sessions.name(),
            written.table_bytes,
            written.index_bytes,
            written.log_bytes,
            written.transactions,
            written.batches,
        );
    }
}

/// A node takes steps and stops; then it does nothing for as long and stops. The difference is the cost
/// of the steps.
fn on_postgres(
    scene: &Scene,
    work: Work,
    sessions: Sessions,
    clients: usize,
) -> anyhow::Result<Cost> {
    let Scene { cluster, .. } = scene;
    let database = cluster.database()?;
    let proxy = Proxy::start(cluster.port(), Duration::ZERO)?;
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", proxy.port);
    let data = data(scene, &database);
    let start = || Node::start(&scene.stepgate, &data, Some(&url), policy(work));
    // The first start makes the tables.
    start()?.stop()?;
    let steps = steps(scene, clients);

    let first = Moment::now(scene, &database, &proxy)?;
    let nodes = [start()?];
    let begin = Instant::now();
    let mut crowd = Crowd::gather(&nodes, clients, sessions, work)?;
    crowd.take(steps)?;
    let took = begin.elapsed();
    let [node] = nodes;
    node.stop()?;
    let second = Moment::now(scene, &database, &proxy)?;
    let node = start()?;
    thread::sleep(took);
    node.stop()?;
    let third = Moment::now(scene, &database, &proxy)?;

    let (busy, idle) = (second.since(&first), third.since(&second));
    let count = steps as f64;
    let cost = Cost {
        written: busy.written.since(&idle.written).of_one(count),
        trips: (busy.trips - idle.trips) / count,
        wire_bytes: (busy.wire_bytes - idle.wire_bytes) / count,
    };
    cluster.sql("postgres", &format!("DROP DATABASE {database}"))?;
    Ok(cost)
}

/// All that is counted, at a moment in which no node runs; or between two of them.
struct Moment {
    written: Written,
    trips: f64,
    wire_bytes: f64,
}

impl Moment {
    fn now(scene: &Scene, database: &str, proxy: &Proxy) -> anyhow::Result<Self> {
        let written = Written::so_far(&scene.cluster, database)?;
        let Passed { trips, bytes } = proxy.passed();
        Ok(Self { written, trips: trips as f64, wire_bytes: bytes as f64 })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            written: self.written.since(&before.written),
            trips: self.trips - before.trips,
            wire_bytes: self.wire_bytes - before.wire_bytes,
        }
    }
}

fn by_table(rows: &BTreeMap<String, (f64, f64)>) -> String {
    let is_row = |count: &f64| *count >= TRACE_OF_A_ROW;
    let table = |(table, (inserted, updated)): (&String, &(f64, f64))| {
        let counts = match (is_row(inserted), is_row(updated)) {
            (true, true) => format!("{inserted:.1} + {updated:.1}"),
            (true, false) => format!("{inserted:.1}"),
            (false, true) => format!("0 + {updated:.1}"),
            (false, false) => return None,
        };
        Some(format!("`{table}` {counts}"))
    };
    rows.iter().filter_map(table).collect::<Vec<_>>().join(", ")
}

fn on_sqlite(scene: &Scene, work: Work, clients: usize) -> anyhow::Result<()> {
    let data = data(scene, &format!("sqlite-{clients}-{work:?}"));
    let start = || Node::start(&scene.stepgate, &data, None, policy(work));
    // The first start makes the tables; the end of a node moves its log into the file.
    start()?.stop()?;
    let file = data.join("stepgate.db");
    let (size_before, rows_before) = (fs::metadata(&file)?.len(), sqlite_rows(&file));
    let nodes = [start()?];
    let mut crowd = Crowd::gather(&nodes, clients, Sessions::OfClients, work)?;
    // A log that is not empty can be told from the next one, which begins when this one is full.
    crowd.take(clients)?;
    let log_before = Log::of(&data)?;
    let steps = steps(scene, clients) / PART_FOR_SQLITE;
    crowd.take(steps)?;
    let log = Log::of(&data)?.since(log_before)?;
    let [node] = nodes;
    node.stop()?;
    let all = (clients + steps) as f64;
    let size = (fs::metadata(&file)?.len() as f64 - size_before as f64) / all;
    let rows = match (rows_before, sqlite_rows(&file)) {
        (Some(before), Some(after)) => format!("{:.1}", (after - before) / all),
        (None, _) | (_, None) => "no `sqlite3` to count".into(),
    };
    println!(
        "| {} | {clients} | {rows} | {size:.0} | {:.0} | {:.2} |",
        work.name(),
        log.bytes as f64 / steps as f64,
        log.commits as f64 / steps as f64
    );
    Ok(())
}

/// All rows of all tables, where the machine has SQLite's own program.
fn sqlite_rows(file: &Path) -> Option<f64> {
    let ask = |sql: &str| {
        let output = Command::new("sqlite3").arg("-readonly").arg(file).arg(sql).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let tables = ask("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    let count =
        |table: &str| ask(&format!("SELECT count(*) FROM \"{table}\""))?.trim().parse::<f64>().ok();
    tables.lines().map(count).sum::<Option<f64>>()
}

fn data(scene: &Scene, name: &str) -> PathBuf {
    scene.directory.join(format!("cost-{name}"))
}
