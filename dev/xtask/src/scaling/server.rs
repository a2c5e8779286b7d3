//! What PostgreSQL says of itself: what it has written, and what its connections wait for.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use stepgate_test_postgres::Cluster;

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

const TOTALS: &str = "
    SELECT sum(pg_table_size(relid)), sum(pg_indexes_size(relid)),
           pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
           (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
           (SELECT sum(last_batch) FROM nodes)
    FROM pg_stat_user_tables";
const ROWS: &str = "SELECT relname, n_tup_ins, n_tup_upd FROM pg_stat_user_tables";
const STRANGERS: &str = "
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

/// What was written to a database up to now, or between two moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Written {
    pub(super) table_bytes: f64,
    pub(super) index_bytes: f64,
    pub(super) log_bytes: f64,
    /// Everything that ended in a commit, reads too.
    pub(super) transactions: f64,
    /// Batches of nodes: transactions that wrote, each made durable.
    pub(super) batches: f64,
    /// By table: rows inserted, and rows updated.
    pub(super) rows: BTreeMap<String, (f64, f64)>,
}

impl Written {
    /// Asks. Connections report what they did when they end, so it waits until all others have.
    pub(super) fn so_far(cluster: &Cluster, database: &str) -> anyhow::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        while cluster.sql(database, STRANGERS)? != "0" {
            ensure!(Instant::now() < deadline, "somebody is still connected to `{database}`");
            thread::sleep(LOOK_AGAIN);
        }
        let totals = cluster.sql(database, TOTALS)?;
        let totals: Result<Vec<f64>, _> = totals.split('|').map(str::parse).collect();
        let totals = totals.context("PostgreSQL does not say how large it is")?;
        let [table_bytes, index_bytes, log_bytes, transactions, batches] = totals.as_slice() else {
            anyhow::bail!("PostgreSQL says {totals:?} of its size");
        };
        let mut rows = BTreeMap::new();
        for line in cluster.sql(database, ROWS)?.lines() {
            let cells: Vec<&str> = line.split('|').collect();
            let [table, inserted, updated] = cells.as_slice() else { continue };
            rows.insert((*table).to_owned(), (inserted.parse()?, updated.parse()?));
        }
        Ok(Self {
            table_bytes: *table_bytes,
            index_bytes: *index_bytes,
            log_bytes: *log_bytes,
            transactions: *transactions,
            batches: *batches,
            rows,
        })
    }

    /// What was written since then.
    pub(super) fn since(&self, before: &Self) -> Self {
        self.with(before, |after, before| after - before)
    }

    /// As much of it as one of so many steps has.
    pub(super) fn of_one(&self, steps: f64) -> Self {
        self.with(&Self::default(), |all, _| all / steps)
    }

    fn with(&self, other: &Self, act: impl Fn(f64, f64) -> f64) -> Self {
        let rows = self.rows.iter().map(|(table, (inserted, updated))| {
            let (inserted_there, updated_there) =
                other.rows.get(table).copied().unwrap_or_default();
            (table.clone(), (act(*inserted, inserted_there), act(*updated, updated_there)))
        });
        Self {
            table_bytes: act(self.table_bytes, other.table_bytes),
            index_bytes: act(self.index_bytes, other.index_bytes),
            log_bytes: act(self.log_bytes, other.log_bytes),
            transactions: act(self.transactions, other.transactions),
            batches: act(self.batches, other.batches),
            rows: rows.collect(),
        }
    }
}

const WAITS: &str = "
    SELECT coalesce(wait_event_type || ' ' || wait_event, 'at work'), count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active' GROUP BY 1;";
const BATCHES: &str = "SELECT '#', sum(last_batch) FROM nodes;";

/// Looks at a database again and again, on one connection, and keeps no snapshot open meanwhile: that
/// would keep PostgreSQL from tidying the rows that every batch updates.
pub(super) struct Watcher {
    psql: Child,
    input: ChildStdin,
    looks: u32,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Batches that were committed between the first look and the last.
    pub(super) batches: f64,
    /// How many connections, on average, were at each thing.
    pub(super) at: Vec<(String, f64)>,
}

impl Watcher {
    pub(super) fn start(cluster: &Cluster, database: &str) -> anyhow::Result<Self> {
        let mut psql = Command::new(cluster.programs().path("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
        psql.arg(cluster.url(database)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = psql.spawn().context("cannot run psql")?;
        let input = psql.stdin.take().context("no input")?;
        Ok(Self { psql, input, looks: 0 })
    }

    /// Before the first look, and after the last.
    pub(super) fn count_batches(&mut self) -> anyhow::Result<()> {
        Ok(writeln!(self.input, "{BATCHES}")?)
    }

    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        self.looks += 1;
        Ok(writeln!(self.input, "{WAITS}")?)
    }

    pub(super) fn seen(self) -> anyhow::Result<Seen> {
        let Self { mut psql, input, looks } = self;
        drop(input);
        let mut said = String::new();
        psql.stdout.take().context("no output")?.read_to_string(&mut said)?;
        psql.wait()?;
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        let mut batches = Vec::new();
        for line in said.lines() {
            let Some((what, count)) = line.split_once('|') else { continue };
            let count: f64 = count.parse()?;
            match what {
                "#" => batches.push(count),
                what => *counts.entry(what.to_owned()).or_default() += count,
            }
        }
        let mut at: Vec<_> = counts
            .into_iter()
            .map(|(what, count)| (what, count / f64::from(looks.max(1))))
            .collect();
        at.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let batches = batches.last().unwrap_or(&0.0) - batches.first().unwrap_or(&0.0);
        Ok(Seen { batches, at })
    }
}
