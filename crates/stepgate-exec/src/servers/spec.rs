//! The configuration of tool servers. The code that reads the configuration file makes and checks these
//! values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use stepgate_core::label::{Flow, Label};
use stepgate_core::result_pointer::ResultPointer;
use stepgate_core::tool::Mode;

/// One tool server.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Its name: the part of its tools' names before the first dot.
    pub name: String,
    /// The executor that acts when it is called. Processes that do not know of each other's calls have
    /// different ids.
    pub executor_id: String,
    /// How it is reached.
    pub transport: Transport,
    /// Settings for all of its tools.
    pub tool: ToolSpec,
    /// Settings for single tools, by the server's names for them.
    pub tools: BTreeMap<String, ToolSpec>,
    /// Its limits.
    pub limits: ServerLimits,
    /// Directories and files that its process must not reach: the data directory, and secrets elsewhere.
    pub hidden: Vec<PathBuf>,
    /// Whether the gateway refuses to start without it, and without each of its tools that has a mode.
    pub required: bool,
    /// Which changes of a definition an operator must accept.
    pub pin: Pinning,
}

impl ServerSpec {
    /// What the configuration says about a tool, by the server's name for it.
    pub fn settings_of(&self, tool: &str) -> ToolSpec {
        match self.tools.get(tool) {
            Some(own) => own.or(&self.tool),
            None => self.tool.clone(),
        }
    }
}

/// Which changes of a tool's definition an operator must accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// Every change that a model, a person or the validation of arguments can notice.
    #[default]
    Definition,
    /// Only changes of the names and types of arguments and results. Descriptions, enumerations and bounds
    /// may change unnoticed.
    NamesAndTypes,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Transport {
    /// A process that we start, connected over its standard input and output.
    Stdio {
        /// The program, by path or found in `PATH`.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment, beside `PATH`, `HOME` and `LANG`.
        env: BTreeMap<String, Secret>,
        /// Its working directory; ours where none is named.
        directory: Option<PathBuf>,
    },
    /// A process that we do not start, connected over streamable HTTP.
    Http {
        /// The endpoint.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, Secret>,
    },
}

/// A value that no message, log or debug output shows. A secret in a file is read at each connection to a
/// server, so that a rotated secret needs no restart of the gateway.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Value(String),
    File(PathBuf),
    Missing(String),
}

impl Secret {
    /// Keeps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(Source::Value(value.into()))
    }

    /// The text of this file; a line break at its end is dropped.
    pub fn of_file(path: PathBuf) -> Self {
        Self(Source::File(path))
    }

    /// The secret is missing, with the reason. The server that needs it is down.
    pub fn missing(why: impl Into<String>) -> Self {
        Self(Source::Missing(why.into()))
    }

    /// The current value. The error names the source, never the value.
    pub fn read(&self) -> Result<String, String> {
        match &self.0 {
            Source::Value(value) => Ok(value.clone()),
            Source::Missing(why) => Err(why.clone()),
            Source::File(path) => {
                let named = |why: &str| format!("`{}`: {why}", path.display());
                let bytes = std::fs::metadata(path).map_err(|error| named(&error.to_string()))?;
                if bytes.len() > SECRET_BYTES_MAX {
                    return Err(named("it is too long for a secret"));
                }
                let text =
                    std::fs::read_to_string(path).map_err(|error| named(&error.to_string()))?;
                Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
            }
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Settings of a tool. A setting that the tool's table leaves out comes from its server's; otherwise there
/// is a default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSpec {
    /// What it does. A tool without a mode is not offered.
    pub mode: Option<Mode>,
    /// Whether it is never offered, whatever its server's mode is.
    pub is_off: bool,
    /// Timeout of a call; [`ToolSpec::TIMEOUT`] by default.
    pub timeout: Option<Duration>,
    /// What happens to a call in doubt. Required for a tool that writes.
    pub delivery: Option<DeliverySpec>,
    /// Arguments that are stored only as their digest.
    pub redacted: Option<Vec<String>>,
    /// Arguments that the journal has only as their digest, and that the store keeps apart until they are erased.
    pub erasable: Option<Vec<String>>,
    /// What its results bring into a session.
    pub reads: Option<BTreeSet<Label>>,
    /// What its calls carry out.
    pub sends: Option<BTreeSet<Label>>,
    /// The memory that its calls read or write.
    pub memory: Option<String>,
    /// The arguments that say where a call goes, or what it acts on.
    pub targets: Option<Vec<String>>,
    /// The parts of its results that no stranger can choose.
    pub trusted: Option<Vec<ResultPointer>>,
    /// The texts in its results that may name addresses to open.
    pub links: Option<Vec<ResultPointer>>,
}

impl ToolSpec {
    /// Default timeout of a call.
    pub const TIMEOUT: Duration = Duration::from_secs(60);

    /// The arguments that the journal has only as their digest.
    pub fn hidden(&self) -> impl Iterator<Item = &String> {
        self.redacted.iter().chain(&self.erasable).flatten()
    }

    /// What its calls bring in and carry out.
    pub fn flow(&self) -> Flow {
        Flow {
            is_undeclared: self.reads.is_none() && self.sends.is_none(),
            reads: self.reads.clone().unwrap_or_default(),
            sends: self.sends.clone().unwrap_or_default(),
            memory: self.memory.clone(),
            targets: self.targets.clone(),
            trusted: self.trusted.clone().unwrap_or_default(),
            links: self.links.clone().unwrap_or_default(),
        }
    }

    /// The tool's settings, with the server's where the tool has none.
    fn or(&self, server: &Self) -> Self {
        Self {
            mode: self.mode.or(server.mode).filter(|_| !self.is_off),
            is_off: self.is_off,
            timeout: self.timeout.or(server.timeout),
            delivery: self.delivery.clone().or_else(|| server.delivery.clone()),
            redacted: self.redacted.clone().or_else(|| server.redacted.clone()),
            erasable: self.erasable.clone().or_else(|| server.erasable.clone()),
            reads: self.reads.clone().or_else(|| server.reads.clone()),
            sends: self.sends.clone().or_else(|| server.sends.clone()),
            memory: self.memory.clone().or_else(|| server.memory.clone()),
            targets: self.targets.clone().or_else(|| server.targets.clone()),
            trusted: self.trusted.clone().or_else(|| server.trusted.clone()),
            links: self.links.clone().or_else(|| server.links.clone()),
        }
    }
}

/// What happens to a call in doubt: it was sent, and whether it was done is unknown (decision 12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliverySpec {
    /// The server acts once per idempotency key: `honours_key = true`.
    HonoursKey,
    /// It is sent again: `in_doubt = "redispatch"`.
    Redispatch,
    /// A read-only tool of the same server says whether it was done: `in_doubt = "query"`, with its name.
    Query(String),
    /// A person decides: `in_doubt = "ask"`.
    Ask,
}

/// The limits of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Most concurrent calls.
    pub concurrency: usize,
    /// How long a call waits for a permit.
    pub permit_wait: Duration,
    /// Timeout of a start: process, handshake and list of tools.
    pub start_wait: Duration,
    /// Longest result of a tool.
    pub output_bytes_max: usize,
    /// Longest message of any kind. Also the rate limit, in bytes a second, of unsolicited messages.
    pub message_bytes_max: usize,
    /// Rate limit of unsolicited messages, per second.
    pub unasked_per_second_max: u32,
    /// Most tools.
    pub tools_max: usize,
    /// Most pages of the list of tools.
    pub pages_max: usize,
    /// Failures in a row, of connection or by timeout, after which the breaker opens.
    pub breaker_failures_max: u32,
    /// How long the breaker stays open.
    pub breaker_pause: Duration,
    /// Most late results that are waited for at the same time.
    pub late_max: usize,
    /// First backoff before a server is restarted; it doubles.
    pub restart_pause_min: Duration,
    /// Longest backoff.
    pub restart_pause_max: Duration,
}

impl ServerLimits {
    /// Default of `output_bytes_max`.
    pub const OUTPUT_BYTES: usize = 10 * 1024 * 1024;
    /// Lower bound of the longest message: a list of tools needs it, however short results must be.
    const MESSAGE_BYTES: usize = 4 * 1024 * 1024;
    /// Room in a message around the longest result.
    const ENVELOPE_BYTES: usize = 64 * 1024;

    /// The defaults for results of at most this length: a message always has room for one.
    pub fn for_output(output_bytes_max: usize) -> Self {
        let message_bytes_max =
            output_bytes_max.saturating_add(Self::ENVELOPE_BYTES).max(Self::MESSAGE_BYTES);
        Self { output_bytes_max, message_bytes_max, ..Self::default() }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            concurrency: 8,
            permit_wait: Duration::from_secs(5),
            start_wait: Duration::from_secs(30),
            output_bytes_max: Self::OUTPUT_BYTES,
            message_bytes_max: Self::OUTPUT_BYTES + Self::ENVELOPE_BYTES,
            unasked_per_second_max: 1000,
            tools_max: 512,
            pages_max: 64,
            breaker_failures_max: 5,
            breaker_pause: Duration::from_secs(10),
            late_max: 64,
            restart_pause_min: Duration::from_millis(100),
            restart_pause_max: Duration::from_secs(30),
        }
    }
}

/// Timeout of a write to the server.
pub(crate) const WRITE_WAIT: Duration = Duration::from_secs(10);
/// How long to wait for a result after its timeout.
pub(crate) const LATE_WAIT: Duration = Duration::from_secs(600);
/// How long a server may take to end by itself before it is killed.
pub(crate) const END_WAIT: Duration = Duration::from_secs(2);
/// Shortest pause between two reads of a changing list of tools.
pub(crate) const RELIST_PAUSE: Duration = Duration::from_secs(1);
/// How long a server must stay up until the backoff is reset.
pub(crate) const RESTART_RESET: Duration = Duration::from_secs(60);
/// Longest secret in a file.
const SECRET_BYTES_MAX: u64 = 64 * 1024;
/// Longest definition of a tool that is kept with its pin. A longer one is pinned by its digest alone.
pub(crate) const DEFINITION_BYTES_MAX: usize = 256 * 1024;
/// How much of a line beyond the longest message is read and discarded before the server is stopped.
pub(crate) const DROPPED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most bytes a second on its standard error.
pub(crate) const STDERR_BYTES_PER_SECOND_MAX: usize = 8 * 1024 * 1024;
/// Last lines of a server's standard error that are kept for messages, and the longest of them.
pub(crate) const STDERR_LINES_MAX: usize = 64;
pub(crate) const STDERR_LINE_BYTES_MAX: usize = 512;
/// Longest text of a server that a record's detail repeats.
pub(crate) const DETAIL_BYTES_MAX: usize = 1024;
/// Rate limit for passing progress on, per second, and the longest message with it.
pub(crate) const PROGRESS_PER_SECOND_MAX: u32 = 10;
pub(crate) const PROGRESS_MESSAGE_BYTES_MAX: usize = 1024;
