//! OpenTelemetry: spans, log lines and metrics leave over OTLP, where the configuration names a collector.
//!
//! `context` knows which trace a span belongs to, also where nothing is exported: a caller's trace goes on to tool servers.
//! `layer` makes records of spans and lines, `fields` their attributes. A record goes into a queue that never waits: where it
//! is full, the record is dropped and counted. `export` is the thread that empties it, `send` the request to the collector.

mod context;
mod export;
mod fields;
mod layer;
mod metrics;
mod send;

use std::time::{SystemTime, UNIX_EPOCH};

use stepgate_exec::servers::Secret;
use stepgate_gateway::meters::Signal;

use crate::config::otlp::OtlpConfig;

pub(crate) use context::current;
pub(crate) use export::{Exporter, finish};
pub(crate) use layer::Traces;
pub(crate) use metrics::begin as begin_metrics;
use send::{Collector, Refusal};

/// Where records go, and which.
#[derive(Clone, Debug)]
pub(crate) struct OtlpSettings {
    pub(crate) config: OtlpConfig,
    /// Headers of each request; a value is a secret.
    pub(crate) headers: Vec<(String, Secret)>,
}

/// Checks settings, without their secrets.
pub(crate) fn check(settings: &OtlpSettings) -> Result<(), String> {
    Collector::new(settings).map(drop)
}

/// Sends the collector a request without any record, with the secrets as they are now: whether it takes what is sent.
pub(crate) async fn try_out(settings: &OtlpSettings) -> Result<(), String> {
    let signal = match (settings.config.traces, settings.config.logs) {
        (true, _) => Signal::Traces,
        (false, true) => Signal::Logs,
        (false, false) => Signal::Metrics,
    };
    Collector::new(settings)?.send(signal, &[]).await.map_err(|refusal| match refusal {
        Refusal::Later(why) | Refusal::Final(why) => why,
    })
}

fn nanoseconds(at: SystemTime) -> u64 {
    let since_1970 = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}
