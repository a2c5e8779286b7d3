//! `[[audit]]`: the streams that every event goes out by.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::event::EventType;
use stepgate_gateway::audit::{self, Beginning, Format, ReceiverSettings, StreamSettings};

use super::receiver::{self, TIMEOUT_CEILING_MS, TIMEOUT_MS};
use super::secret::{Beside, SecretConfig};

/// Least and most bytes of a file, and how many a file has where the configuration does not say.
const FILE_BYTES_FLOOR: u64 = 64 * 1024;
const FILE_BYTES_CEILING: u64 = 1024 * 1024 * 1024 * 1024;
const FILE_BYTES: u64 = 100 * 1024 * 1024;
/// Most files that are kept, and how many are where the configuration does not say.
const FILES_CEILING: u32 = 10_000;
const FILES: u32 = 10;

/// One stream of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditConfig {
    /// Its name: lower-case letters, digits, `-` and `_`. A stream of a new name begins where `begin` says.
    name: String,
    /// What takes the events.
    kind: KindConfig,
    /// How an event is written; `json` otherwise.
    #[serde(default)]
    format: Option<Format>,
    /// The events that are sent; all otherwise.
    #[serde(default)]
    events: Vec<EventType>,
    /// Where a stream of a new name begins; `start` otherwise.
    #[serde(default)]
    begin: Option<Beginning>,
    /// Its address, for `webhook` and `otlp`; with `otlp` the whole one, such as `https://otel.example/v1/logs`.
    #[serde(default)]
    url: Option<String>,
    /// Its address where that is a secret: from a variable or a file.
    #[serde(default)]
    secret_url: Option<SecretConfig>,
    /// The key that signs, `whsec_…`, for `webhook`: from a variable or a file.
    #[serde(default)]
    secret: Option<SecretConfig>,
    /// The value of the header `Authorization`, for `webhook` and `otlp`: from a variable or a file.
    #[serde(default)]
    authorization: Option<SecretConfig>,
    /// The server, for `syslog`.
    #[serde(default)]
    host: Option<String>,
    /// Its port; 6514 with TLS, 601 otherwise.
    #[serde(default)]
    #[schemars(range(min = 1, max = u16::MAX))]
    port: Option<u16>,
    /// Whether the connection to the syslog server is encrypted; true otherwise.
    #[serde(default)]
    tls: Option<bool>,
    /// The file, for `file`, beside the configuration file where it is not absolute.
    #[serde(default)]
    path: Option<PathBuf>,
    /// The file is renamed to `PATH.1` before it would have more bytes than this; 100 MiB otherwise.
    #[serde(default)]
    #[schemars(range(min = FILE_BYTES_FLOOR, max = FILE_BYTES_CEILING))]
    rotate_bytes: Option<u64>,
    /// How many renamed files are kept; 10 otherwise. The oldest is deleted.
    #[serde(default)]
    #[schemars(range(min = 1, max = FILES_CEILING))]
    keep: Option<u32>,
    /// How long one try may take, in milliseconds; 10,000 otherwise.
    #[serde(default)]
    #[schemars(range(min = 100, max = TIMEOUT_CEILING_MS))]
    timeout_ms: Option<u64>,
}

/// What takes the events of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum KindConfig {
    /// JSON arrays, each in a POST; signed by the Standard Webhooks convention where there is a `secret`.
    Webhook,
    /// A collector of OpenTelemetry: log records over OTLP/HTTP, in JSON.
    Otlp,
    /// A syslog server: RFC 5424 over TLS or TCP.
    Syslog,
    /// A file of this machine, one line for each event.
    File,
}

impl KindConfig {
    fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Otlp => "otlp",
            Self::Syslog => "syslog",
            Self::File => "file",
        }
    }
}

/// Refuses streams that contradict themselves or each other. Secrets are not read here.
pub(super) fn check(streams: &[AuditConfig]) -> anyhow::Result<()> {
    receiver::check_names("[[audit]]", streams.iter().map(|it| it.name.as_str()))?;
    for (index, stream) in streams.iter().enumerate() {
        stream.refuse_foreign_keys().with_context(|| stream.place())?;
        let mut others = streams.iter().take(index);
        let is_shared = stream.path.is_some() && others.any(|other| other.path == stream.path);
        ensure!(!is_shared, "{}: another [[audit]] has its `path`", stream.place());
    }
    Ok(())
}

/// The files that no tool server may read or write: secrets, and the streams' own.
pub(crate) fn private_files(streams: &[AuditConfig], base: &Path) -> Vec<PathBuf> {
    let own = streams.iter().filter_map(|it| Some((base.join(it.path.as_ref()?), it.keep)));
    let own = own.flat_map(|(path, keep)| {
        let renamed = (1..=keep.unwrap_or(FILES)).map(|number| audit::renamed(&path, number));
        let renamed: Vec<_> = renamed.take_while(|renamed| renamed.exists()).collect();
        [path].into_iter().chain(renamed)
    });
    own.chain(secret_files(streams, base)).collect()
}

pub(crate) fn secret_files(streams: &[AuditConfig], base: &Path) -> Vec<PathBuf> {
    let sources = streams.iter().flat_map(|it| [&it.secret_url, &it.secret, &it.authorization]);
    sources.flatten().filter_map(|source| source.file(base)).collect()
}

pub(crate) fn settings(
    streams: &[AuditConfig],
    beside: Beside<'_>,
) -> anyhow::Result<Vec<StreamSettings>> {
    let made = streams.iter().map(|it| it.settings(beside).with_context(|| it.place()));
    let settings = made.collect::<anyhow::Result<Vec<_>>>()?;
    audit::check(&settings).map_err(anyhow::Error::msg)?;
    Ok(settings)
}

impl AuditConfig {
    /// Its name, and its kind for people.
    pub(crate) fn shown(&self) -> (&str, &'static str) {
        (&self.name, self.kind.as_str())
    }

    fn place(&self) -> String {
        format!("[[audit]] `{}`", self.name)
    }

    /// Refuses a key that means nothing for this kind: most likely the kind is wrong.
    fn refuse_foreign_keys(&self) -> anyhow::Result<()> {
        use KindConfig::{File, Otlp, Syslog, Webhook};
        let has_url = self.url.is_some() || self.secret_url.is_some();
        let (over_http, syslog, file) = ([Webhook, Otlp], [Syslog], [File]);
        let keys = [
            ("url", has_url, over_http.as_slice()),
            ("secret", self.secret.is_some(), [Webhook].as_slice()),
            ("authorization", self.authorization.is_some(), over_http.as_slice()),
            ("host", self.host.is_some(), syslog.as_slice()),
            ("port", self.port.is_some(), syslog.as_slice()),
            ("tls", self.tls.is_some(), syslog.as_slice()),
            ("path", self.path.is_some(), file.as_slice()),
            ("rotate_bytes", self.rotate_bytes.is_some(), file.as_slice()),
            ("keep", self.keep.is_some(), file.as_slice()),
        ];
        for (key, is_there, kinds) in keys {
            let kind = self.kind.as_str();
            ensure!(!is_there || kinds.contains(&self.kind), "`{key}` is not for kind `{kind}`");
        }
        Ok(())
    }

    fn settings(&self, beside: Beside<'_>) -> anyhow::Result<StreamSettings> {
        Ok(StreamSettings {
            name: self.name.clone(),
            receiver: self.receiver(beside)?,
            format: self.format.unwrap_or_default(),
            events: self.events.clone(),
            beginning: self.begin.unwrap_or_default(),
            timeout: Duration::from_millis(self.timeout_ms.unwrap_or(TIMEOUT_MS)),
        })
    }

    fn receiver(&self, beside: Beside<'_>) -> anyhow::Result<ReceiverSettings> {
        let secret = |key: &str, source: &Option<SecretConfig>| {
            source.as_ref().map(|source| receiver::secret(key, source, beside)).transpose()
        };
        let url = || receiver::address(self.url.as_deref(), self.secret_url.as_ref(), beside);
        let authorization = secret("authorization", &self.authorization)?;
        Ok(match self.kind {
            KindConfig::Webhook => {
                let key = secret("secret", &self.secret)?;
                ReceiverSettings::Webhook { url: url()?, key, authorization }
            }
            KindConfig::Otlp => ReceiverSettings::Otlp { url: url()?, authorization },
            KindConfig::Syslog => {
                let tls = self.tls.unwrap_or(true);
                ReceiverSettings::Syslog {
                    host: self.host.clone().context("syslog needs `host`: which server?")?,
                    port: self.port.unwrap_or(if tls { 6514 } else { 601 }),
                    tls,
                }
            }
            KindConfig::File => {
                let path = self.path.as_ref().context("a file needs `path`: which one?")?;
                ReceiverSettings::File {
                    path: beside.base.join(path),
                    rotate_bytes: self.rotate_bytes.unwrap_or(FILE_BYTES),
                    keep: self.keep.unwrap_or(FILES),
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
