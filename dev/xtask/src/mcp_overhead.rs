//! What the gate costs a call: the same tool of the same server, called directly and through Stepgate, in
//! one run and in turns, so that both halves share the machine's moods.

mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::{cargo, run};
use wire::{Http, Lines};

/// Calls at the same time.
const CALLERS: [usize; 2] = [1, 16];
/// Rounds; the median counts.
const ROUNDS: usize = 5;
/// Calls of one round, of all callers together; fewer with a debug build, which only tries it out.
const CALLS: usize = 4000;
const CALLS_OF_DEBUG: usize = 160;
/// Calls before each round.
const WARM_UP_CALLS: usize = 100;

const TOOL: &str = "google.get_agenda";
const TOOL_AT_GATE: &str = "calendar__google_get_agenda";

/// Measures with a release build, or, to try it out, with a debug build.
pub(crate) fn measure(target: &Path, is_debug: bool) -> anyhow::Result<()> {
    let mut build = cargo(["build", "--quiet", "-p", "stepgate", "-p", "stepgate-example-home"]);
    if !is_debug {
        build.arg("--release");
    }
    run("build", build)?;
    let programs = target.join(if is_debug { "debug" } else { "release" });
    let scene = Scene::new(&programs, &target.join("overhead"))?;
    let gateway = scene.serve()?;
    let mut ways = [
        Way {
            name: "directly, over standard input",
            door: Door::Lines(scene.directly()),
            tool: TOOL,
        },
        Way {
            name: "through `stepgate mcp`",
            door: Door::Lines(scene.bridged()),
            tool: TOOL_AT_GATE,
        },
        Way { name: "through `/mcp`", door: Door::Http(gateway.http.clone()), tool: TOOL_AT_GATE },
    ];
    let calls = if is_debug { CALLS_OF_DEBUG } else { CALLS };
    println!("\n{TOOL} of examples/home, {ROUNDS} rounds of {calls} calls\n");
    println!("| callers | how | calls/s | p50 ms | p99 ms | added at p50, ms |");
    println!("|---|---|---|---|---|---|");
    for callers in CALLERS {
        table(&mut ways, callers, calls / callers)?;
    }
    Ok(())
}

/// A way to the tool.
struct Way {
    name: &'static str,
    door: Door,
    tool: &'static str,
}

enum Door {
    /// A program that is started, and spoken to over its standard input.
    Lines(Command),
    /// A gateway that serves.
    Http(Http),
}

/// The rows of one number of callers: every round takes all ways in turns.
fn table(ways: &mut [Way], callers: usize, calls: usize) -> anyhow::Result<()> {
    let mut rounds: Vec<Vec<Round>> = ways.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (way, rounds) in ways.iter_mut().zip(&mut rounds) {
            rounds.push(way.round(callers, calls).with_context(|| way.name)?);
        }
    }
    let mut direct = None;
    for (way, rounds) in ways.iter().zip(rounds) {
        let middle = |value: fn(&Round) -> f64| median(rounds.iter().map(value).collect());
        let (per_second, p50, p99) =
            (middle(|it| it.per_second), middle(|it| it.p50), middle(|it| it.p99));
        let added = p50 - *direct.get_or_insert(p50);
        println!(
            "| {callers} | {} | {per_second:.0} | {p50:.2} | {p99:.2} | {added:.2} |",
            way.name
        );
    }
    Ok(())
}

/// What one round gave. Times in milliseconds.
struct Round {
    per_second: f64,
    p50: f64,
    p99: f64,
}

impl Way {
    fn round(&mut self, callers: usize, calls: usize) -> anyhow::Result<Round> {
        let times = Mutex::new(Vec::new());
        let tool = self.tool;
        let took = match &mut self.door {
            Door::Lines(command) => {
                let lines = Lines::start(command)?;
                lines.calls(tool, WARM_UP_CALLS)?;
                let begin = Instant::now();
                each_caller(callers, || lines.calls(tool, calls), &times)?;
                begin.elapsed()
            }
            Door::Http(http) => {
                http.calls(tool, WARM_UP_CALLS)?;
                let begin = Instant::now();
                each_caller(callers, || http.calls(tool, calls), &times)?;
                begin.elapsed()
            }
        };
        let mut times = times.into_inner().unwrap_or_default();
        ensure!(times.len() == callers * calls, "{} of the calls were answered", times.len());
        times.sort_unstable();
        let at = |part: usize| {
            let index = (times.len() * part / 100).min(times.len() - 1);
            times.get(index).copied().unwrap_or_default().as_secs_f64() * 1000.0
        };
        let per_second = count(times.len()) / took.as_secs_f64();
        Ok(Round { per_second, p50: at(50), p99: at(99) })
    }
}

/// Lets so many callers call at the same time.
fn each_caller(
    callers: usize,
    calls: impl Fn() -> anyhow::Result<Vec<Duration>> + Sync,
    times: &Mutex<Vec<Duration>>,
) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(&calls)).collect();
        for thread in threads {
            let took = thread.join().map_err(|_| anyhow::anyhow!("a caller stopped"))??;
            if let Ok(mut times) = times.lock() {
                times.extend(took);
            }
        }
        Ok(())
    })
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A data directory with the calendar behind the gate.
struct Scene {
    stepgate: PathBuf,
    home: PathBuf,
    data: PathBuf,
}

impl Scene {
    fn new(programs: &Path, directory: &Path) -> anyhow::Result<Self> {
        // What an earlier run left would make the store larger, and the figures another thing.
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        let data = directory.join("data");
        fs::create_dir_all(data.join("policies"))?;
        let home = programs.join("stepgate-example-home");
        let config = format!(
            "[serve]\nrequests_per_second_max = 1000000\nrequests_burst_max = 1000000\n\
             [servers.calendar]\ncommand = {home:?}\nargs = [\"calendar\"]\nmode = \"read_only\"\n\
             concurrency = 64\n"
        );
        fs::write(data.join("stepgate.toml"), config)?;
        let policy = "permit (principal, action in Action::\"read_only\", resource);";
        fs::write(data.join("policies/look.cedar"), policy)?;
        Ok(Self { stepgate: programs.join("stepgate"), home, data })
    }

    fn directly(&self) -> Command {
        let mut command = Command::new(&self.home);
        command.arg("calendar");
        command
    }

    fn bridged(&self) -> Command {
        let mut command = Command::new(&self.stepgate);
        command.arg("--data").arg(&self.data).arg("mcp");
        command
    }

    fn serve(&self) -> anyhow::Result<Gateway> {
        let mut command = Command::new(&self.stepgate);
        command.arg("--data").arg(&self.data).args(["serve", "--bind", "127.0.0.1:0", "--quiet"]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let greeting = wire::first_line(child.stdout.take().context("no output")?)?;
        let address = greeting.split("http://").nth(1).context("it does not serve")?.trim();
        let address = address.parse()?;
        let token = fs::read_to_string(self.data.join("agent.token"))?.trim().to_owned();
        Ok(Gateway { child, http: Http::new(address, token) })
    }
}

/// A gateway that ends with the measurement.
struct Gateway {
    child: std::process::Child,
    http: Http,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
