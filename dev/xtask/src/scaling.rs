//! What a step costs a store, what one PostgreSQL carries, and how sessions spread over several.
//!
//! Everything but the last is measured: real nodes, real requests, a PostgreSQL of this program's own.
//! The last is a simulation with the measured figures.

mod archive;
mod carry;
mod chance;
mod client;
mod cost;
mod load;
mod node;
mod processor;
mod proxy;
mod receivers;
mod server;
mod spread;
mod sqlite_log;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use stepgate_test_postgres::{Cluster, Settings};

use crate::{cargo, run};

pub(crate) use archive::archive;
pub(crate) use receivers::receivers;

/// How the command is called.
#[derive(Debug)]
struct Options {
    /// A program that was built before; none builds one.
    binary: Option<PathBuf>,
    /// Only tries it out: a debug build, one round, and short ones.
    is_quick: bool,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Self { binary: None, is_quick: false };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.is_quick = true,
                "--binary" => {
                    let path = words.next().context("`--binary` takes the path of a program")?;
                    options.binary = Some(path.into());
                }
                other => bail!("there is no option `{other}`: --binary PATH, --quick"),
            }
        }
        Ok(options)
    }
}

/// Where and how much is measured.
struct Scene {
    stepgate: PathBuf,
    /// For the data directories of nodes; emptied at the start.
    directory: PathBuf,
    cluster: Cluster,
    extent: Extent,
}

/// How much is measured.
struct Extent {
    /// Steps of a cost, with one client and with many.
    steps: usize,
    steps_of_many: usize,
    rounds: usize,
    warm_up: Duration,
    window: Duration,
}

const WHOLE: Extent = Extent {
    steps: 500,
    steps_of_many: 3_200,
    rounds: 3,
    warm_up: Duration::from_millis(700),
    window: Duration::from_millis(2_000),
};
const QUICK: Extent = Extent {
    steps: 100,
    steps_of_many: 400,
    rounds: 1,
    warm_up: Duration::from_millis(300),
    window: Duration::from_millis(700),
};

/// Measures, and prints the tables of `docs/scaling.md`.
pub(crate) fn measure(target: &Path) -> anyhow::Result<()> {
    let options = Options::parse(env::args().skip(2))?;
    let scene = Scene::new(target, options)?;
    cost::tables(&scene)?;
    let carried = carry::tables(&scene)?;
    spread::tables(carried);
    Ok(())
}

impl Scene {
    fn new(target: &Path, options: Options) -> anyhow::Result<Self> {
        let stepgate = match options.binary {
            Some(binary) => fs::canonicalize(&binary)
                .with_context(|| format!("there is no program `{}`", binary.display()))?,
            None => built(target, options.is_quick)?,
        };
        let directory = target.join("scaling");
        // What an earlier run left would make the stores larger, and the figures another thing.
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        // A checkpoint in the middle would add whole pages to the log of one figure and not of another.
        let lines = ["checkpoint_timeout = '1h'", "max_wal_size = '16GB'", "autovacuum = off"];
        let settings = Settings { lines: lines.map(str::to_owned).to_vec(), ..Settings::default() };
        let extent = if options.is_quick { QUICK } else { WHOLE };
        Ok(Self { stepgate, directory, cluster: Cluster::start(&settings)?, extent })
    }
}

fn built(target: &Path, is_debug: bool) -> anyhow::Result<PathBuf> {
    let mut build = cargo(["build", "--quiet", "-p", "stepgate"]);
    if !is_debug {
        build.arg("--release");
    }
    run("build", build)?;
    Ok(target.join(if is_debug { "debug" } else { "release" }).join("stepgate"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
