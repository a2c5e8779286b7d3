//! `[servers.NAME]`: the tool servers, as an operator writes them down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::label::Label;
use stepgate_core::result_pointer::ResultPointer;
use stepgate_core::tool::{Mode, is_server_name};
use stepgate_exec::servers::{
    DeliverySpec, Pinning, Secret, ServerLimits, ServerSpec, ToolSpec, Transport,
};

use super::secret::{Beside, SecretConfig};

/// Longest time that a call may take: a day.
const TIMEOUT_CEILING_MS: u64 = 24 * 60 * 60 * 1000;
const CONCURRENCY_CEILING: usize = 1024;
const OUTPUT_BYTES_CEILING: usize = 64 * 1024 * 1024;

/// One tool server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerConfig {
    /// The program that serves over its standard input and output.
    command: Option<String>,
    /// Its arguments.
    args: Vec<String>,
    /// Where it runs; the gateway's own directory otherwise.
    directory: Option<PathBuf>,
    /// Its environment, beside `PATH`, `HOME` and `LANG`.
    env: BTreeMap<String, String>,
    /// Variables of its environment that are secret: each from a variable or a file.
    secret_env: BTreeMap<String, SecretConfig>,
    /// Whether the processes that several nodes start know of each other's calls, so that one can answer for
    /// another's. A server with a `url` is one for all of them.
    shared: bool,
    /// The address of a server that is reached over streamable HTTP.
    url: Option<String>,
    /// Headers of every request.
    headers: BTreeMap<String, String>,
    /// Headers that are secret: each from a variable or a file.
    secret_headers: BTreeMap<String, SecretConfig>,
    /// Calls at the same time; 8 otherwise.
    #[schemars(range(min = 1, max = CONCURRENCY_CEILING))]
    concurrency: Option<usize>,
    /// Longest result of a tool, in bytes; 10 MiB otherwise.
    #[schemars(range(min = 1, max = OUTPUT_BYTES_CEILING))]
    output_bytes_max: Option<usize>,
    /// What the tools do. A tool without a mode is not offered; a server that is off is not started.
    mode: Option<ModeConfig>,
    /// How long a call may take, in milliseconds; 60,000 otherwise.
    #[schemars(range(min = 1, max = TIMEOUT_CEILING_MS))]
    timeout_ms: Option<u64>,
    /// Whether the tools act once per idempotency key.
    honours_key: Option<bool>,
    /// What becomes of a call when it is not known whether it was done.
    in_doubt: Option<InDoubtConfig>,
    /// The read-only tool that knows; for `in_doubt = "query"`.
    status_tool: Option<String>,
    /// Arguments that are journalled as their digest only.
    redacted: Option<Vec<String>>,
    /// Arguments that are journalled as their digest only, and that the store keeps apart, encrypted, until an operator
    /// erases them.
    erasable: Option<Vec<String>>,
    /// What the results of its tools bring into a session, as labels that policies see: `["untrusted"]`.
    reads: Option<BTreeSet<Label>>,
    /// What calls of its tools carry out: `["egress"]`. A tool that only reads can do that, by its arguments.
    sends: Option<BTreeSet<Label>>,
    /// A name for what its tools remember. Labels pass from sessions that write it to sessions that read it.
    memory: Option<String>,
    /// The arguments that say where calls of its tools go, or what they act on.
    targets: Option<Vec<String>>,
    /// The parts of results of its tools whose values no stranger can choose, as JSON Pointers with `*`.
    trusted: Option<Vec<String>>,
    /// The texts in results of its tools whose addresses may be opened, as JSON Pointers with `*`.
    links: Option<Vec<String>>,
    /// Whether its tools have their own names over MCP, without the server's; one server's may.
    pub(super) own_names: bool,
    /// Whether nothing starts without this server, and without each of its tools that has a mode. Otherwise
    /// what is away or cannot be used is off, and the rest serves.
    required: bool,
    /// Which changes of a tool an operator must accept; every change of the definition otherwise.
    pin: Option<PinConfig>,
    /// What holds for one tool.
    tools: BTreeMap<String, ToolConfig>,
}

/// Which changes of a tool an operator must accept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum PinConfig {
    /// Every change of its definition that means something.
    Definition,
    /// Only changes of the names and types of arguments and results: descriptions may change unseen.
    NamesAndTypes,
}

/// One tool: what it leaves open, its server says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ToolConfig {
    /// What the tool does.
    mode: Option<ModeConfig>,
    /// How long a call may take, in milliseconds.
    #[schemars(range(min = 1, max = TIMEOUT_CEILING_MS))]
    timeout_ms: Option<u64>,
    /// Whether the tool acts once per idempotency key.
    honours_key: Option<bool>,
    /// What becomes of a call when it is not known whether it was done.
    in_doubt: Option<InDoubtConfig>,
    /// The read-only tool that knows; for `in_doubt = "query"`.
    status_tool: Option<String>,
    /// Arguments that are journalled as their digest only.
    redacted: Option<Vec<String>>,
    /// Arguments that are journalled as their digest only, and that the store keeps apart, encrypted, until an operator
    /// erases them.
    erasable: Option<Vec<String>>,
    /// What its results bring into a session, as labels that policies see: `["untrusted"]`.
    reads: Option<BTreeSet<Label>>,
    /// What its calls carry out: `["egress"]`.
    sends: Option<BTreeSet<Label>>,
    /// A name for what it remembers.
    memory: Option<String>,
    /// The arguments that say where a call goes, or what it acts on: `["recipients", "cc"]`. All others are text. An
    /// empty list: it acts on nothing that a call could choose.
    targets: Option<Vec<String>>,
    /// The parts of its results whose values the system behind it makes, and no stranger can choose, as JSON Pointers
    /// with `*`: `["/items/*/id"]`.
    trusted: Option<Vec<String>>,
    /// The texts in its results whose addresses may be opened, as JSON Pointers with `*`.
    links: Option<Vec<String>>,
}

/// The files that secrets of servers come from. No server's process may read them, not even its own: it gets
/// its secrets in its environment.
pub(crate) fn secret_files(servers: &BTreeMap<String, ServerConfig>, base: &Path) -> Vec<PathBuf> {
    let secrets = |server: &ServerConfig| {
        let sources = server.secret_env.values().chain(server.secret_headers.values());
        sources.filter_map(|source| source.file(base)).collect::<Vec<_>>()
    };
    servers.values().flat_map(secrets).collect()
}

/// What a tool does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ModeConfig {
    /// Looks, and changes nothing.
    ReadOnly,
    /// Prepares what a person sends later.
    Draft,
    /// Changes the world.
    ExecuteGated,
    /// Is never offered; a server of this mode is never started.
    Off,
}

/// What becomes of a call in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum InDoubtConfig {
    /// It is sent again, with the same key.
    Redispatch,
    /// `status_tool` says.
    Query,
    /// A person says, by `runs resolve`.
    Ask,
}

/// Every server that is not off; `hidden` are directories that no server's process may reach; `node_id` is this
/// node's, where there may be others.
pub(crate) fn specs(
    servers: &BTreeMap<String, ServerConfig>,
    beside: Beside<'_>,
    hidden: &[PathBuf],
    node_id: Option<&str>,
) -> anyhow::Result<Vec<ServerSpec>> {
    let mut specs = Vec::new();
    for (name, server) in servers {
        let spec = server.spec(name, beside, hidden, node_id);
        // One that is off is checked all the same.
        let spec = spec.with_context(|| format!("servers.{name}"))?;
        if !server.is_off() {
            specs.push(spec);
        }
    }
    Ok(specs)
}

impl ServerConfig {
    pub(crate) fn is_off(&self) -> bool {
        self.mode == Some(ModeConfig::Off)
    }

    /// The directories that its process is told to work with: where it runs, and those among its arguments.
    /// None for a server that is no process of ours.
    pub(crate) fn directories(&self, base: &Path) -> Vec<PathBuf> {
        if self.command.is_none() {
            return Vec::new();
        }
        let runs_in = match &self.directory {
            Some(directory) => base.join(directory),
            None => std::env::current_dir().unwrap_or_default(),
        };
        // `--root=/srv/files` names a directory too.
        let named = self.args.iter().map(|arg| arg.rsplit_once('=').map_or(&**arg, |(_, it)| it));
        let named = named.filter(|arg| !arg.is_empty()).map(|arg| runs_in.join(arg));
        let all = named.chain([runs_in.clone()]).filter_map(|path| path.canonicalize().ok());
        all.filter(|path| path.is_dir()).collect()
    }

    fn spec(
        &self,
        name: &str,
        beside: Beside<'_>,
        hidden: &[PathBuf],
        node_id: Option<&str>,
    ) -> anyhow::Result<ServerSpec> {
        ensure!(
            is_server_name(name),
            "a server's name has 1 to 32 of a-z, 0-9, `_` and `-`, and is not `core`"
        );
        let tools = self.tools.iter();
        let tools = tools.map(|(tool, config)| {
            Ok((tool.clone(), config.spec().with_context(|| format!("tools.{tool}"))?))
        });
        let defaults = ServerLimits::default();
        let output_bytes_max = self.output_bytes_max.unwrap_or(defaults.output_bytes_max);
        let limits = ServerLimits {
            concurrency: self.concurrency.unwrap_or(defaults.concurrency),
            ..ServerLimits::for_output(output_bytes_max)
        };
        Ok(ServerSpec {
            name: name.to_owned(),
            executor_id: super::executor_id(
                name,
                node_id.filter(|_| !self.shared && self.url.is_none()),
            ),
            transport: self.transport(beside)?,
            tool: self.defaults().spec()?,
            tools: tools.collect::<anyhow::Result<_>>()?,
            limits,
            hidden: hidden.to_vec(),
            required: self.required,
            pin: match self.pin {
                Some(PinConfig::NamesAndTypes) => Pinning::NamesAndTypes,
                Some(PinConfig::Definition) | None => Pinning::Definition,
            },
        })
    }

    /// Whether any of its tools may have redacted or erasable arguments.
    pub(super) fn has_redacted(&self) -> bool {
        let of_tools = self.tools.values().flat_map(|tool| [&tool.redacted, &tool.erasable]);
        of_tools.chain([&self.redacted, &self.erasable]).flatten().any(|names| !names.is_empty())
    }

    fn defaults(&self) -> ToolConfig {
        ToolConfig {
            mode: self.mode,
            timeout_ms: self.timeout_ms,
            honours_key: self.honours_key,
            in_doubt: self.in_doubt,
            status_tool: self.status_tool.clone(),
            redacted: self.redacted.clone(),
            erasable: self.erasable.clone(),
            reads: self.reads.clone(),
            sends: self.sends.clone(),
            memory: self.memory.clone(),
            targets: self.targets.clone(),
            trusted: self.trusted.clone(),
            links: self.links.clone(),
        }
    }

    /// Every label that a tool of it brings in or carries out.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &Label> {
        let own = [&self.reads, &self.sends].into_iter().flatten().flatten();
        let tools = self.tools.values().flat_map(|tool| [&tool.reads, &tool.sends]);
        own.chain(tools.flatten().flatten())
    }

    pub(crate) fn brings_labels(&self) -> bool {
        let reads = self.tools.values().map(|tool| &tool.reads).chain([&self.reads]);
        reads.flatten().any(|labels| !labels.is_empty())
    }

    fn transport(&self, beside: Beside<'_>) -> anyhow::Result<Transport> {
        let base = beside.base;
        let has_process = !self.args.is_empty() || self.directory.is_some() || !self.env.is_empty();
        match (&self.command, &self.url) {
            (Some(command), None) => {
                ensure!(
                    self.headers.is_empty() && self.secret_headers.is_empty(),
                    "headers are for servers with a `url`"
                );
                Ok(Transport::Stdio {
                    command: found(base, command),
                    args: self.args.clone(),
                    env: secrets(&self.env, &self.secret_env, beside)?,
                    directory: self.directory.as_ref().map(|directory| base.join(directory)),
                })
            }
            (None, Some(url)) => {
                ensure!(
                    !has_process && self.secret_env.is_empty() && !self.shared,
                    "args, directory, env and shared are for servers with a `command`"
                );
                let headers = secrets(&self.headers, &self.secret_headers, beside)?;
                Ok(Transport::Http { url: url.clone(), headers })
            }
            (Some(_), Some(_)) => bail!("it has a `command` and a `url`: name one"),
            (None, None) => bail!("name the `command` that starts it, or its `url`"),
        }
    }
}

impl ToolConfig {
    fn spec(&self) -> anyhow::Result<ToolSpec> {
        Ok(ToolSpec {
            mode: self.mode.and_then(|mode| match mode {
                ModeConfig::ReadOnly => Some(Mode::ReadOnly),
                ModeConfig::Draft => Some(Mode::Draft),
                ModeConfig::ExecuteGated => Some(Mode::ExecuteGated),
                ModeConfig::Off => None,
            }),
            is_off: self.mode == Some(ModeConfig::Off),
            timeout: self.timeout_ms.map(Duration::from_millis),
            delivery: self.delivery()?,
            redacted: self.redacted.clone(),
            erasable: self.erasable.clone(),
            reads: self.reads.clone(),
            sends: self.sends.clone(),
            memory: self.memory.clone(),
            targets: self.targets.clone(),
            trusted: pointers(self.trusted.as_deref()).context("trusted")?,
            links: pointers(self.links.as_deref()).context("links")?,
        })
    }

    fn delivery(&self) -> anyhow::Result<Option<DeliverySpec>> {
        ensure!(
            self.status_tool.is_none() || self.in_doubt == Some(InDoubtConfig::Query),
            "`status_tool` is for `in_doubt = \"query\"`"
        );
        match (self.honours_key, self.in_doubt, &self.status_tool) {
            (Some(true), Some(_), _) => {
                bail!("a call is never in doubt where the key is honoured: name one of the two")
            }
            (Some(true), None, _) => Ok(Some(DeliverySpec::HonoursKey)),
            (Some(false) | None, None, _) => Ok(None),
            (_, Some(InDoubtConfig::Redispatch), _) => Ok(Some(DeliverySpec::Redispatch)),
            (_, Some(InDoubtConfig::Ask), _) => Ok(Some(DeliverySpec::Ask)),
            (_, Some(InDoubtConfig::Query), Some(tool)) => {
                Ok(Some(DeliverySpec::Query(tool.clone())))
            }
            (_, Some(InDoubtConfig::Query), None) => {
                bail!("`in_doubt = \"query\"` needs `status_tool`, the read-only tool that knows")
            }
        }
    }
}

fn pointers(texts: Option<&[String]>) -> anyhow::Result<Option<Vec<ResultPointer>>> {
    let parsed = |texts: &[String]| texts.iter().map(|text| Ok(text.parse()?)).collect();
    texts.map(parsed).transpose()
}

/// A command with a slash is a path, as in a shell; one without is found in `PATH`.
fn found(base: &Path, command: &str) -> String {
    match command.contains('/') {
        true => base.join(command).display().to_string(),
        false => command.to_owned(),
    }
}

/// Plain values and secret ones, under one name each.
fn secrets(
    plain: &BTreeMap<String, String>,
    secret: &BTreeMap<String, SecretConfig>,
    beside: Beside<'_>,
) -> anyhow::Result<BTreeMap<String, Secret>> {
    let mut values: BTreeMap<String, Secret> =
        plain.iter().map(|(name, value)| (name.clone(), Secret::new(value))).collect();
    for (name, source) in secret {
        let value = source.read(beside).with_context(|| format!("the secret `{name}`"))?;
        let before = values.insert(name.clone(), value);
        ensure!(before.is_none(), "`{name}` is named as plain and as secret");
    }
    Ok(values)
}

/// At most one server's tools keep their own names: those of two could be the same.
pub(super) fn check_own_names(servers: &BTreeMap<String, ServerConfig>) -> anyhow::Result<()> {
    let mut own = servers.iter().filter(|(_, server)| server.own_names).map(|(name, _)| name);
    if let (Some(first), Some(second)) = (own.next(), own.next()) {
        bail!("servers.{first} and servers.{second} have `own_names`: only one server can");
    }
    Ok(())
}

/// The line of a file on which a server's table begins, for messages.
pub(crate) fn line_of(text: &str, name: &str) -> Option<usize> {
    let is_table = |line: &str| {
        let header = line.trim_start().strip_prefix('[').unwrap_or_default();
        let header: String = header.chars().filter(|c| !matches!(c, '"' | '\'' | ' ')).collect();
        header == format!("servers.{name}]")
    };
    text.lines().position(is_table).map(|index| index + 1)
}

#[cfg(test)]
mod tests;
