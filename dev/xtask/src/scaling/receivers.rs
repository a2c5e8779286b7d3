//! What receivers of telemetry and of audit events cost a step: none, and receivers that answer at once, slowly, not at all,
//! or with lies. Each way has a gateway of its own, one at a time, in turns. Prints the table of `docs/telemetry.md`.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::client::Work;
use super::load::{Crowd, Sessions, Taken};
use super::node::{Node, Policy};
use super::{built, median};

/// Clients at the same time.
const CLIENTS: [usize; 2] = [1, 16];
/// How long a slow receiver takes for an answer, or for the next kilobyte of syslog.
const SLOW: Duration = Duration::from_secs(3);
/// What a slow syslog server reads at once.
const SLOW_BYTES: usize = 1024;
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How the command is called.
struct Options {
    binary: Option<PathBuf>,
    is_quick: bool,
}

/// How much is measured.
struct Extent {
    rounds: usize,
    warm_up: Duration,
    window: Duration,
}

const WHOLE: Extent =
    Extent { rounds: 7, warm_up: Duration::from_secs(2), window: Duration::from_secs(8) };
const QUICK: Extent =
    Extent { rounds: 2, warm_up: Duration::from_millis(500), window: Duration::from_secs(2) };

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Self { binary: None, is_quick: false };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.is_quick = true,
                "--binary" => {
                    let path = words.next().context("`--binary` takes the path of a program")?;
                    options.binary = Some(fs::canonicalize(path)?);
                }
                other => bail!("there is no option `{other}`: --binary PATH, --quick"),
            }
        }
        Ok(options)
    }
}

/// What the receivers of a gateway are like: an OTLP collector, and a webhook, an OTLP and a syslog stream of audit events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    None,
    AtOnce,
    Slow,
    Down,
    Lying,
}

impl Manner {
    const ALL: [Self; 5] = [Self::None, Self::AtOnce, Self::Slow, Self::Down, Self::Lying];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AtOnce => "answer at once",
            Self::Slow => "answer after 3 s",
            Self::Down => "down",
            Self::Lying => "lie",
        }
    }
}

/// Measures, and prints the table.
pub(crate) fn receivers(target: &Path) -> anyhow::Result<()> {
    let options = Options::parse(env::args().skip(2))?;
    let stepgate = match options.binary {
        Some(binary) => binary,
        None => built(target, options.is_quick)?,
    };
    let extent = if options.is_quick { QUICK } else { WHOLE };
    let directory = target.join("receivers");
    println!(
        "{} rounds, {} s for each; steps of READ_FILE over HTTP\n",
        extent.rounds,
        extent.window.as_secs()
    );
    println!("| clients | receivers | steps/s | p50 ms | p99 ms | rate | p50 | p99 | messages/s |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for clients in CLIENTS {
        let mut rounds: Vec<[Round; Manner::ALL.len()]> = Vec::new();
        for number in 0..extent.rounds {
            rounds.push(round(&stepgate, &directory, clients, &extent, number)?);
        }
        for (at, manner) in Manner::ALL.into_iter().enumerate() {
            row(clients, manner, at, &rounds);
        }
    }
    fs::remove_dir_all(&directory)?;
    Ok(())
}

/// What one gateway gave. Times in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    per_second: f64,
    p50: f64,
    p99: f64,
    /// What its receivers were sent meanwhile.
    messages_per_second: f64,
}

/// All ways once. Each round begins with another one.
fn round(
    stepgate: &Path,
    directory: &Path,
    clients: usize,
    extent: &Extent,
    number: usize,
) -> anyhow::Result<[Round; Manner::ALL.len()]> {
    let mut rounds = [Round::default(); Manner::ALL.len()];
    for turn in 0..rounds.len() {
        let at = (turn + number) % rounds.len();
        let manner = Manner::ALL.get(at).copied().context("no such way")?;
        // A fresh store for each: what is stored makes a step slower.
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        let measured = measured(stepgate, directory, clients, extent, manner)
            .with_context(|| format!("receivers that are: {}", manner.name()))?;
        if let Some(round) = rounds.get_mut(at) {
            *round = measured;
        }
    }
    Ok(rounds)
}

fn measured(
    stepgate: &Path,
    directory: &Path,
    clients: usize,
    extent: &Extent,
    manner: Manner,
) -> anyhow::Result<Round> {
    let messages = Arc::new(AtomicU64::new(0));
    let more = configuration(manner, &messages)?;
    let nodes = [Node::start_with(stepgate, directory, None, Policy::Nobody, &more)?];
    let mut crowd = Crowd::gather(&nodes, clients, Sessions::OfClients, Work::Read)?;
    let wait = |how_long| {
        move || {
            thread::sleep(how_long);
            Ok(())
        }
    };
    crowd.work(wait(extent.warm_up))?;
    let before = messages.load(Ordering::Relaxed);
    let begin = Instant::now();
    let (taken, ()) = crowd.work(wait(extent.window))?;
    let seconds = begin.elapsed().as_secs_f64();
    let sent = messages.load(Ordering::Relaxed) - before;
    let mut times: Vec<f64> = taken.iter().map(milliseconds).collect();
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    let [node] = nodes;
    drop(crowd);
    node.stop()?;
    Ok(Round {
        per_second: times.len() as f64 / seconds,
        p50: at(50),
        p99: at(99),
        messages_per_second: sent as f64 / seconds,
    })
}

fn milliseconds(taken: &Taken) -> f64 {
    (taken.end - taken.begin).as_secs_f64() * 1000.0
}

/// A row: medians, and the medians of each round's ratio to the same round without receivers.
fn row(clients: usize, manner: Manner, at: usize, rounds: &[[Round; Manner::ALL.len()]]) {
    let of = |round: &[Round; Manner::ALL.len()]| round.get(at).copied().unwrap_or_default();
    let middle =
        |value: fn(&Round) -> f64| median(rounds.iter().map(|it| value(&of(it))).collect());
    let ratio = |value: fn(&Round) -> f64| {
        let none = |round: &[Round; Manner::ALL.len()]| round.first().copied().unwrap_or_default();
        median(rounds.iter().map(|it| value(&of(it)) / value(&none(it))).collect())
    };
    println!(
        "| {clients} | {} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} |",
        manner.name(),
        middle(|it| it.per_second),
        middle(|it| it.p50),
        middle(|it| it.p99),
        ratio(|it| it.per_second),
        ratio(|it| it.p50),
        ratio(|it| it.p99),
        middle(|it| it.messages_per_second),
    );
}

/// The receivers, started, and the lines that name them.
fn configuration(manner: Manner, messages: &Arc<AtomicU64>) -> anyhow::Result<String> {
    let posts = |says: &'static [u8]| match manner {
        Manner::None => Ok(0),
        Manner::Down => free_port(),
        Manner::AtOnce => {
            listen(messages, move |stream, count| post(stream, count, Duration::ZERO, b""))
        }
        Manner::Slow => listen(messages, move |stream, count| post(stream, count, SLOW, b"")),
        Manner::Lying => {
            listen(messages, move |stream, count| post(stream, count, Duration::ZERO, says))
        }
    };
    if manner == Manner::None {
        return Ok(String::new());
    }
    // One that says that it has all, and it is nothing of the kind; and two that reject a record of each batch.
    let webhook = posts(b"<html>welcome</html>")?;
    let otlp = posts(b"{\"partialSuccess\":{\"rejectedLogRecords\":\"1\"}}")?;
    // `partial_success { rejected_spans: 1 }`
    let collector = posts(&[0x0a, 0x02, 0x08, 0x01])?;
    let syslog = match manner {
        Manner::None => 0,
        Manner::Down => free_port()?,
        Manner::AtOnce | Manner::Slow | Manner::Lying => {
            listen(messages, move |stream, count| swallow(stream, count, manner))?
        }
    };
    Ok(format!(
        "[otlp]\nendpoint = \"http://127.0.0.1:{collector}\"\n\
         [[audit]]\nname = \"webhook\"\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{webhook}/\"\n\
         [[audit]]\nname = \"otlp\"\nkind = \"otlp\"\nurl = \"http://127.0.0.1:{otlp}/v1/logs\"\n\
         [[audit]]\nname = \"syslog\"\nkind = \"syslog\"\nhost = \"127.0.0.1\"\nport = {syslog}\ntls = false\n"
    ))
}

/// A port at which no process listens.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Serves each connection in a thread of its own, for as long as this program runs.
fn listen<S>(messages: &Arc<AtomicU64>, serve: S) -> anyhow::Result<u16>
where
    S: Fn(TcpStream, &AtomicU64) -> std::io::Result<()> + Clone + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let messages = Arc::clone(messages);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (serve, messages) = (serve.clone(), Arc::clone(&messages));
            // It ends with its connection, however that ends.
            thread::spawn(move || serve(stream, &messages));
        }
    });
    Ok(port)
}

/// Answers each POST of a connection with 200 and these words, after a while.
fn post(stream: TcpStream, count: &AtomicU64, after: Duration, says: &[u8]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let body = Read::by_ref(&mut reader).take(BODY_BYTES_MAX.min(length));
        std::io::copy(&mut { body }, &mut std::io::sink())?;
        count.fetch_add(1, Ordering::Relaxed);
        thread::sleep(after);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", says.len());
        reader.get_mut().write_all(&[head.as_bytes(), says].concat())?;
    }
}

/// Reads what a syslog server is sent: at once, slowly, or the beginning alone.
fn swallow(mut stream: TcpStream, count: &AtomicU64, manner: Manner) -> std::io::Result<()> {
    let mut buffer = [0; 64 * SLOW_BYTES];
    let most = if manner == Manner::Slow { SLOW_BYTES } else { buffer.len() };
    loop {
        let part = buffer.get_mut(..most).unwrap_or_default();
        if stream.read(part)? == 0 {
            return Ok(());
        }
        count.fetch_add(1, Ordering::Relaxed);
        match manner {
            Manner::Slow => thread::sleep(SLOW),
            Manner::Lying => return Ok(()),
            Manner::None | Manner::AtOnce | Manner::Down => {}
        }
    }
}
