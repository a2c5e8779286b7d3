//! Configuration: `stepgate.toml`, then `STEPGATE_SECTION_KEY`, then flags. Unknown keys are errors.

pub(crate) mod agent;
pub(crate) mod audit;
mod detect;
pub(crate) mod notify;
pub(crate) mod origin;
pub(crate) mod otlp;
mod ranges;
mod receiver;
mod retention;
mod sample;
mod schedule;
mod secret;
pub(crate) mod servers;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::approvers::Groups;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::gate::Extensions;
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::{Flow, Label};
use stepgate_core::limits::Limits;
use stepgate_core::schedule::Schedule;
use stepgate_exec::SandboxLimits;
use stepgate_http::{CONNECTIONS_CEILING, SERVE_CEILING_MS, ServeConfig};
use stepgate_mcp::{McpConfig, McpSettings};

pub(crate) use sample::sample;
pub(crate) use secret::Beside;
use servers::ServerConfig;
use store::{StoreConfig, executor_id};

/// What every environment variable of ours begins with. No other is ours, so a wrong one is a mistake.
const PREFIX: &str = "STEPGATE_";

/// The variables that stand for a flag.
const FLAG_VARIABLES: [&str; 5] =
    ["STEPGATE_CONFIG", "STEPGATE_DATA", "STEPGATE_STORE", "STEPGATE_TOKEN", "STEPGATE_URL"];

/// Most typing mistakes in the name of a variable that a message still guesses.
const TYPOS_MAX: usize = 3;

/// Largest file, as large as the largest payload.
const FILE_BYTES_CEILING: u64 = 64 * 1024 * 1024;
const ENTRIES_CEILING: usize = 1_000_000;

/// Everything that can be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// What a step may cost.
    limits: Limits,
    /// The directory behind `/sandbox/`.
    pub(crate) sandbox: SandboxConfig,
    /// How `stepgate serve` listens.
    pub(crate) serve: ServeConfig,
    /// The interface for agents that speak MCP.
    pub(crate) mcp: McpConfig,
    /// Where the policies are.
    pub(crate) policy: PolicyConfig,
    /// Groups of principals, by name, for `@approvers` and `principal in Group::"finance"` in policies:
    /// `finance = ["ann", "bob"]`.
    pub(crate) groups: BTreeMap<String, Vec<String>>,
    /// Windows of time, by name, for `context.schedule` in policies.
    pub(crate) schedule: BTreeMap<String, schedule::WindowConfig>,
    /// Patterns that add a label to a result, by name.
    pub(crate) detect: BTreeMap<String, detect::DetectConfig>,
    /// Lists of values that policies can accept as `Origin::"directory/NAME"`, by name.
    pub(crate) directory: BTreeMap<String, origin::DirectoryConfig>,
    /// Who says what users ask for.
    pub(crate) requests: origin::RequestsConfig,
    /// The agent and its model.
    pub(crate) agent: agent::AgentConfig,
    /// Where the store is, and how this node takes part in it.
    pub(crate) store: StoreConfig,
    /// How long runs stay in the store after they ended. Then they leave it for archives: files that verify alone.
    pub(crate) retention: retention::RetentionConfig,
    /// What is written to standard error.
    pub(crate) log: LogConfig,
    /// The collector that spans, log lines and metrics are sent to.
    pub(crate) otlp: otlp::OtlpConfig,
    /// The streams that every event goes out by.
    pub(crate) audit: Vec<audit::AuditConfig>,
    /// Who is told when something needs a person.
    pub(crate) notify: Vec<notify::NotifyConfig>,
    /// The tool servers, by name.
    pub(crate) servers: BTreeMap<String, servers::ServerConfig>,
}

/// What is written to standard error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// How lines are written.
    pub(crate) format: LogFormat,
    /// The least important lines that are written.
    pub(crate) level: LogLevel,
}

/// How log lines are written.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// A line of text, for people.
    #[default]
    Text,
    /// One JSON object a line, for machines.
    Json,
}

/// The least important lines that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogLevel {
    /// What went wrong.
    Error,
    /// What may go wrong, and what went wrong and is tried again.
    Warn,
    /// Also what happened, and each request.
    #[default]
    Info,
}

/// Where the policies are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PolicyConfig {
    /// Their directory, beside the configuration file where it is not absolute.
    pub(crate) directory: PathBuf,
    /// The directory of shadow policies, beside the configuration file where it is not absolute: they are asked beside
    /// those in force, and change nothing. Empty: there are none.
    pub(crate) shadow: PathBuf,
    /// How often `stepgate serve` looks whether they have changed, in milliseconds.
    #[schemars(range(min = 10, max = SERVE_CEILING_MS))]
    pub(crate) reload_ms: u64,
    /// The solver cvc5, for `stepgate policy prove` and `stepgate policy diff`: an absolute path, or a name on the search path.
    pub(crate) solver: PathBuf,
    /// How long the solver may take for one question, in milliseconds.
    #[schemars(range(min = 10, max = SERVE_CEILING_MS))]
    pub(crate) solver_timeout_ms: u64,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            directory: "policies".into(),
            shadow: PathBuf::new(),
            reload_ms: 1000,
            solver: "cvc5".into(),
            solver_timeout_ms: 30_000,
        }
    }
}

/// The directory behind `/sandbox/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxConfig {
    /// Whether every node that has the store open has this directory too: the same files, by a mount.
    pub(crate) shared: bool,
    /// Extensions of files that may be read, with their dot.
    read_extensions: Vec<String>,
    /// Extensions of files that may be written, deleted and renamed, with their dot.
    write_extensions: Vec<String>,
    /// What the sandbox's files bring into a session that reads or lists them, as labels that policies see.
    reads: BTreeSet<Label>,
    /// Largest file that READ_FILE returns and WRITE_FILE writes, in bytes.
    #[schemars(range(min = 1, max = FILE_BYTES_CEILING))]
    file_bytes_max: u64,
    /// Most entries that LIST_FILES returns.
    #[schemars(range(min = 1, max = ENTRIES_CEILING))]
    entries_max: usize,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        let dotted = |names: Vec<String>| names.iter().map(|name| format!(".{name}")).collect();
        let Extensions { read, write } = Extensions::default();
        let SandboxLimits { file_bytes_max, entries_max } = SandboxLimits::default();
        Self {
            shared: false,
            read_extensions: dotted(read),
            write_extensions: dotted(write),
            reads: BTreeSet::new(),
            file_bytes_max,
            entries_max,
        }
    }
}

impl Config {
    /// Reads the file, where there is one, and lays the environment over it.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let mut text = String::new();
        if let Some(file) = file {
            text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read `{}`", file.display()))?;
            // Read once as what it must be, so that an error names the line.
            toml::from_str::<Self>(&text)
                .with_context(|| format!("`{}` is not valid", file.display()))?;
        }
        Self::of_text(&text, environment)
    }

    /// Reads the text of a file, and lays the environment over it.
    pub(crate) fn of_text(
        text: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let mut table = toml::from_str(text)?;
        overlay(&mut table, &environment)?;
        let config: Self = table.try_into()?;
        ranges::check(&config)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> anyhow::Result<()> {
        self.serve.configured_url()?;
        self.mcp.check()?;
        self.agent.check()?;
        servers::check_own_names(&self.servers)?;
        self.store.check()?;
        self.retention.check()?;
        notify::check(&self.notify)?;
        audit::check(&self.audit)?;
        self.otlp.check()?;
        self.groups()?;
        self.facts()?;
        let sandbox = &self.sandbox;
        let extensions = sandbox.read_extensions.iter().chain(&sandbox.write_extensions);
        for extension in extensions {
            let is_extension = extension.len() > 1
                && extension.starts_with('.')
                && !extension.chars().skip(1).any(|c| c == '.' || c == '/');
            ensure!(is_extension, "`{extension}` is not an extension: write it like `.txt`");
        }
        Ok(())
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits.clone()
    }

    pub(crate) fn groups(&self) -> anyhow::Result<Groups> {
        let mut groups = BTreeMap::new();
        for (name, members) in &self.groups {
            let wrong = || format!("groups.{name} is not valid");
            PrincipalId::parse(name).with_context(wrong)?;
            let members: Result<BTreeSet<_>, _> =
                members.iter().map(|member| PrincipalId::parse(member)).collect();
            groups.insert(name.clone(), members.with_context(wrong)?);
        }
        Ok(Groups::new(groups))
    }

    /// Where the facts come from that policies know beside a call.
    pub(crate) fn facts(&self) -> anyhow::Result<FactSources> {
        let mut windows = BTreeMap::new();
        for (name, window) in &self.schedule {
            let window =
                window.window().with_context(|| format!("schedule.{name} is not valid"))?;
            windows.insert(name.clone(), window);
        }
        let reads = &self.sandbox.reads;
        let servers = self.servers.values();
        let mut labels: BTreeSet<Label> = servers.flat_map(ServerConfig::labels).cloned().collect();
        labels.extend(reads.iter().cloned());
        let detectors = detect::detectors(&self.detect)?;
        labels.extend(detectors.labels().cloned());
        ensure!(
            labels.len() <= Label::COUNT_MAX,
            "more than {} labels in `reads`, `sends` and `adds`: use fewer",
            Label::COUNT_MAX
        );
        // Where nothing brings a label in, none has to be looked up.
        let is_found = detectors.labels().next().is_some();
        if reads.is_empty() && !is_found && !self.servers.values().any(ServerConfig::brings_labels)
        {
            labels.clear();
        }
        let sandbox = Flow { reads: reads.clone(), ..Flow::default() };
        Ok(FactSources {
            labels,
            sandbox,
            schedule: Schedule::new(windows),
            detectors,
            directories: origin::directories(&self.directory, None)?,
            tellers: self.requests.tellers()?,
            ..FactSources::default()
        })
    }

    pub(crate) fn extensions(&self) -> Extensions {
        let bare = |names: &[String]| {
            names.iter().map(|name| name.trim_start_matches('.').to_owned()).collect()
        };
        Extensions {
            read: bare(&self.sandbox.read_extensions),
            write: bare(&self.sandbox.write_extensions),
        }
    }

    /// The MCP interface; its pages can be opened where the gateway listens on an address.
    pub(crate) fn mcp_settings(&self, has_pages: bool) -> McpSettings {
        McpSettings {
            config: self.mcp.clone(),
            own_names: self.own_names(),
            has_pages,
            look: Duration::from_millis(self.policy.reload_ms),
        }
    }

    /// The server whose tools keep their own names over MCP.
    pub(crate) fn own_names(&self) -> Option<String> {
        let own = self.servers.iter().find(|(_, server)| server.own_names);
        own.map(|(name, _)| name.clone())
    }

    pub(crate) fn turned_off(&self) -> Vec<String> {
        let off = self.servers.iter().filter(|(_, server)| server.is_off());
        off.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn sandbox_limits(&self) -> SandboxLimits {
        SandboxLimits {
            file_bytes_max: self.sandbox.file_bytes_max,
            entries_max: self.sandbox.entries_max,
        }
    }
}

/// A misspelled variable would silently leave a limit, or a directory, as it is by default.
pub(crate) fn refuse_unknown_variables(
    names: impl IntoIterator<Item = OsString>,
) -> anyhow::Result<()> {
    let mut known: Vec<String> = FLAG_VARIABLES.map(str::to_owned).to_vec();
    for (section, keys) in toml::Table::try_from(Config::default())? {
        if let toml::Value::Table(keys) = keys {
            known.extend(keys.keys().map(|key| variable(&section, key)));
        }
    }
    let names: Vec<String> = names
        .into_iter()
        .filter(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let links = service_links(&names);
    let is_unknown = |name: &&String| {
        !known.contains(*name) && !links.iter().any(|link| name.starts_with(link.as_str()))
    };
    if let Some(name) = names.iter().find(is_unknown) {
        let likely = known.iter().min_by_key(|known| edits(name, known));
        let likely = likely.filter(|known| edits(name, known) <= TYPOS_MAX);
        bail!(
            "there is no environment variable `{name}`: {}",
            match likely {
                Some(likely) => format!("did you mean `{likely}`? unset it otherwise"),
                None => format!("unset it, or use one of {}", known.join(", ")),
            }
        );
    }
    Ok(())
}

/// What the variables begin with that Kubernetes sets for a service called `stepgate`, or `stepgate-` and
/// more, in every container beside it. A variable like `STEPGATE_PORT` is one of these only where the
/// service's host is there too.
fn service_links(names: &[String]) -> Vec<String> {
    const HOST: &str = "_SERVICE_HOST";
    let services = names.iter().filter_map(|name| name.strip_suffix(HOST));
    services.flat_map(|name| [format!("{name}_SERVICE_"), format!("{name}_PORT")]).collect()
}

/// How many characters must be put in, taken out or replaced to make one text of another (Levenshtein).
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (line, a) in one.chars().enumerate() {
        let mut next = vec![line + 1];
        for ((b, diagonal), above) in other.chars().zip(&row).zip(row.iter().skip(1)) {
            let left = next.last().copied().unwrap_or_default();
            next.push((diagonal + usize::from(a != b)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

fn variable(section: &str, key: &str) -> String {
    format!("{PREFIX}{section}_{key}").to_uppercase()
}

/// Lays `STEPGATE_SECTION_KEY` over the file, for every key that there is. Lists are split at commas.
fn overlay(
    table: &mut toml::Table,
    environment: &impl Fn(&str) -> Option<String>,
) -> anyhow::Result<()> {
    for (section, keys) in toml::Table::try_from(Config::default())? {
        let toml::Value::Table(keys) = keys else { continue };
        for (key, default) in keys {
            let name = variable(&section, &key);
            let Some(text) = environment(&name) else { continue };
            let value = value_like(&default, &text)
                .with_context(|| format!("environment variable {name} is not valid"))?;
            let section = table
                .entry(section.clone())
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let toml::Value::Table(section) = section {
                section.insert(key, value);
            }
        }
    }
    Ok(())
}

fn value_like(default: &toml::Value, text: &str) -> anyhow::Result<toml::Value> {
    Ok(match default {
        toml::Value::String(_) => toml::Value::String(text.to_owned()),
        toml::Value::Integer(_) => toml::Value::Integer(text.trim().parse()?),
        toml::Value::Boolean(_) => toml::Value::Boolean(text.trim().parse()?),
        toml::Value::Array(_) => toml::Value::Array(
            text.split(',').map(|item| toml::Value::String(item.trim().to_owned())).collect(),
        ),
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => {
            bail!("cannot be set by the environment")
        }
    })
}

#[cfg(test)]
mod tests;
