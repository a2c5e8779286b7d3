//! `[otlp]`: the collector that spans, log lines and metrics are sent to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use stepgate_exec::servers::Secret;

use super::secret::{Beside, SecretConfig};

/// Longest time for one try: a minute.
const TIMEOUT_CEILING_MS: u64 = 60_000;
/// Longest time between two exports of the metrics: an hour.
const INTERVAL_CEILING_MS: u64 = 60 * 60 * 1000;
/// Most records that wait; each has a few hundred bytes.
const QUEUE_CEILING: usize = 1_000_000;
/// Most headers.
const HEADERS_MAX: usize = 32;

/// How the collector is spoken with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Protocol {
    /// HTTP with protobuf, by convention on port 4318.
    #[default]
    #[serde(rename = "http/protobuf")]
    Http,
    /// gRPC, by convention on port 4317.
    #[serde(rename = "grpc")]
    Grpc,
}

/// The collector that spans, log lines and metrics are sent to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OtlpConfig {
    /// Its address without the path of a signal, such as `http://127.0.0.1:4318`. Empty: nothing is sent.
    pub(crate) endpoint: String,
    /// How it is spoken with.
    pub(crate) protocol: Protocol,
    /// Headers of each request, by name: from a variable or a file.
    headers: BTreeMap<String, SecretConfig>,
    /// Whether spans are sent.
    pub(crate) traces: bool,
    /// Whether log lines are sent, beside standard error.
    pub(crate) logs: bool,
    /// Whether metrics are sent, beside `/metrics`.
    pub(crate) metrics: bool,
    /// How many percent of the traces that begin here are recorded. A trace that a caller began is recorded where the caller
    /// records it.
    #[schemars(range(min = 0, max = 100))]
    pub(crate) sample_percent: u8,
    /// How often metrics are sent, in milliseconds.
    #[schemars(range(min = 100, max = INTERVAL_CEILING_MS))]
    pub(crate) metrics_interval_ms: u64,
    /// Most records that wait for the collector. Further ones are dropped and counted.
    #[schemars(range(min = 1, max = QUEUE_CEILING))]
    pub(crate) queue_max: usize,
    /// How long one try may take, in milliseconds.
    #[schemars(range(min = 1, max = TIMEOUT_CEILING_MS))]
    pub(crate) timeout_ms: u64,
    /// `service.name` of everything that is sent.
    pub(crate) service_name: String,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            protocol: Protocol::default(),
            headers: BTreeMap::new(),
            traces: true,
            logs: true,
            metrics: true,
            sample_percent: 100,
            metrics_interval_ms: 60_000,
            queue_max: 8192,
            timeout_ms: 10_000,
            service_name: "stepgate".into(),
        }
    }
}

impl OtlpConfig {
    /// Refuses what contradicts itself. Secrets are not read here.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let headers = self.headers.len();
        ensure!(headers <= HEADERS_MAX, "otlp.headers has more than {HEADERS_MAX} headers");
        Ok(())
    }

    /// The headers, with the places of their secrets.
    pub(crate) fn headers(&self, beside: Beside<'_>) -> anyhow::Result<Vec<(String, Secret)>> {
        let headers = self.headers.iter().map(|(name, secret)| {
            let secret = secret.read(beside).with_context(|| format!("otlp.headers.{name}"))?;
            Ok((name.clone(), secret))
        });
        headers.collect()
    }

    pub(crate) fn secret_files(&self, base: &Path) -> Vec<PathBuf> {
        self.headers.values().filter_map(|secret| secret.file(base)).collect()
    }
}
