//! What processes have cost the processors, from `/proc`.

use std::fs;

use anyhow::Context;
use stepgate_test_postgres::Cluster;

/// How Linux counts a processor's time for programs, on every machine of today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of the processors that a process has used, all its threads together.
pub(super) fn of_process(pid: u32) -> anyhow::Result<f64> {
    let stat = Stat::read(&format!("/proc/{pid}/stat"))?;
    Ok(stat.own / TICKS_PER_SECOND)
}

/// Those of a PostgreSQL: its first process, the others that live, and those that have ended.
pub(super) fn of_server(cluster: &Cluster) -> anyhow::Result<f64> {
    let file = cluster.directory().join("data/postmaster.pid");
    let text = fs::read_to_string(&file).context("PostgreSQL does not run")?;
    let first: u32 = text.lines().next().unwrap_or_default().trim().parse()?;
    let leader = Stat::read(&format!("/proc/{first}/stat"))?;
    let mut seconds =
        leader.ended_children / TICKS_PER_SECOND + of_thread(&format!("/proc/{first}"))?;
    for process in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        // One that ends in this moment is counted with its parent the next time.
        let Ok(stat) = Stat::read(&format!("/proc/{pid}/stat")) else { continue };
        if stat.parent == first {
            seconds += of_thread(&format!("/proc/{pid}")).unwrap_or_default();
        }
    }
    Ok(seconds)
}

/// Those of the threads of this program that have this name, as long as they live.
pub(super) fn of_threads(name: &str) -> anyhow::Result<f64> {
    let mut seconds = 0.0;
    for thread in fs::read_dir("/proc/self/task")?.flatten() {
        let Ok(comm) = fs::read_to_string(thread.path().join("comm")) else { continue };
        if comm.trim() == name {
            seconds += of_thread(&thread.path().to_string_lossy())?;
        }
    }
    Ok(seconds)
}

/// Those of one thread, to the nanosecond: many threads that each do little would all be rounded to
/// nothing in ticks.
fn of_thread(directory: &str) -> anyhow::Result<f64> {
    let file = format!("{directory}/schedstat");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read `{file}`"))?;
    let nanoseconds: f64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds / 1e9)
}

/// Those of the whole machine: everything that runs, and what a host takes away from its guest.
pub(super) fn of_machine() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read `/proc/stat`")?;
    let line = text.lines().next().and_then(|line| line.strip_prefix("cpu "));
    let fields = line.context("no processors in `/proc/stat`")?.split_whitespace();
    let ticks: Vec<f64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    // The fourth and fifth are idle, and what comes after the eighth is counted before.
    let busy = ticks.iter().take(8).enumerate().filter(|(field, _)| !matches!(field, 3 | 4));
    Ok(busy.map(|(_, ticks)| ticks).sum::<f64>() / TICKS_PER_SECOND)
}

struct Stat {
    parent: u32,
    own: f64,
    ended_children: f64,
}

impl Stat {
    fn read(path: &str) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read `{path}`"))?;
        // The second field is a name in brackets, which may have anything in it.
        let (_, fields) = text.rsplit_once(") ").context("no process status")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let number = |field: usize| -> anyhow::Result<f64> {
            // The first that is left is the third of the manual page.
            Ok(fields.get(field - 3).context("a short process status")?.trim().parse()?)
        };
        Ok(Self {
            parent: fields.get(1).context("a short process status")?.parse()?,
            own: number(14)? + number(15)?,
            ended_children: number(16)? + number(17)?,
        })
    }
}
