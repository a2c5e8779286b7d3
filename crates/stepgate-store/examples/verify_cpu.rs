//! How many journal entries of a SQLite store `verify` proves in a second of processor time.
//!
//!     cargo run --release -p stepgate-store --example verify_cpu -- DATABASE [ROUNDS]

use std::path::Path;
use std::time::Instant;
use std::{env, fs};

use anyhow::{Context as _, ensure};
use stepgate_core::verify::verify;
use stepgate_store::SqliteStore;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let path = env::args().nth(1).context("which database?")?;
    let rounds: u32 = env::args().nth(2).map_or(Ok(3), |text| text.parse())?;
    for _ in 0..rounds {
        let store = SqliteStore::open_read_only(Path::new(&path))?;
        let (begun, cpu) = (Instant::now(), cpu_seconds()?);
        let report = verify(&store, &[], |_| {}).await?;
        let (took, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
        ensure!(report.problems.is_empty(), "{:?}", report.problems);
        let rate = report.entries as f64 / cpu;
        println!(
            "{} entries, {took:.2} s, {cpu:.2} CPU s, {rate:.0} entries per CPU s",
            report.entries
        );
    }
    Ok(())
}

/// Processor time of all threads of this process.
fn cpu_seconds() -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: f64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}
