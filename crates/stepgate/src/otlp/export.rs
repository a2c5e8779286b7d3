//! The queue of records, and the thread that sends them. It shares nothing with the threads that take steps: a collector that is
//! down or slow fills the queue, and then records are dropped and counted.

use std::sync::{Arc, Mutex, OnceLock, mpsc as std_mpsc};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use stepgate_core::lock::locked;
use stepgate_gateway::meters::{METERS, Signal};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};
use uuid::Uuid;

use super::OtlpSettings;
use super::fields::text_attribute;
use super::send::{Collector, Refusal};

/// Most records of one request.
const BATCH_MAX: usize = 512;
/// How long a record waits for others to share its request.
const GATHER: Duration = Duration::from_millis(500);
/// How often a request is tried.
const TRIES: u32 = 4;
/// Pause before the second try; it doubles with each later one.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a process that ends waits for its last records.
const FINISH_MAX: Duration = Duration::from_secs(3);

/// Where records are handed in, once the thread runs.
static EXPORTER: OnceLock<Exporter> = OnceLock::new();
/// The thread that sends, while it runs.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

struct Running {
    stop: Arc<Notify>,
    ended: std_mpsc::Receiver<()>,
}

enum Record {
    Span(Box<Span>),
    Line(Box<LogRecord>),
    Metrics(Vec<Metric>),
}

impl Record {
    fn signal(&self) -> Signal {
        match self {
            Self::Span(_) => Signal::Traces,
            Self::Line(_) => Signal::Logs,
            Self::Metrics(_) => Signal::Metrics,
        }
    }
}

/// Where records are handed in.
#[derive(Clone)]
pub(crate) struct Exporter {
    pub(super) settings: Arc<OtlpSettings>,
    queue: mpsc::Sender<Record>,
}

impl Exporter {
    /// Starts the thread that sends. The error says what in the settings cannot be.
    pub(crate) fn start(settings: OtlpSettings) -> Result<Self, String> {
        let settings = Arc::new(settings);
        let collector = Collector::new(&settings)?;
        let (queue, records) = mpsc::channel(settings.config.queue_max.max(1));
        let (stop, resource) = (Arc::new(Notify::new()), resource(&settings));
        let (ending, ended) = std_mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no thread to export from: {error}"))?;
        let sending = Sending { collector, resource, records, is_failing: false };
        let told = Arc::clone(&stop);
        std::thread::Builder::new()
            .name("stepgate-otlp".into())
            .spawn(move || {
                runtime.block_on(sending.until(&told));
                // The process may not wait for it.
                let _ = ending.send(());
            })
            .map_err(|error| format!("no thread to export from: {error}"))?;
        *locked(&RUNNING) = Some(Running { stop, ended });
        let exporter = Self { settings, queue };
        // A process has one.
        let _ = EXPORTER.set(exporter.clone());
        Ok(exporter)
    }

    pub(super) fn samples(&self, trace_id: u128) -> bool {
        trace_id % 100 < u128::from(self.settings.config.sample_percent)
    }

    pub(super) fn span(&self, span: Span) {
        self.hand_in(Record::Span(Box::new(span)));
    }

    pub(super) fn line(&self, line: LogRecord) {
        self.hand_in(Record::Line(Box::new(line)));
    }

    pub(super) fn metrics(&self, metrics: Vec<Metric>) {
        self.hand_in(Record::Metrics(metrics));
    }

    /// Never waits.
    fn hand_in(&self, record: Record) {
        if let Err(refused) = self.queue.try_send(record) {
            let (mpsc::error::TrySendError::Full(record)
            | mpsc::error::TrySendError::Closed(record)) = refused;
            METERS.exports.dropped(record.signal(), 1);
        }
    }
}

pub(super) fn exporter() -> Option<&'static Exporter> {
    EXPORTER.get()
}

/// Sends what is left, and waits for that a little.
pub(crate) fn finish() {
    let running = locked(&RUNNING).take();
    if let Some(Running { stop, ended }) = running {
        stop.notify_one();
        // A collector that does not answer does not keep the process.
        let _ = ended.recv_timeout(FINISH_MAX);
    }
}

fn resource(settings: &OtlpSettings) -> Resource {
    let instance = Uuid::new_v4().to_string();
    Resource {
        attributes: vec![
            text_attribute("service.name", &settings.config.service_name),
            text_attribute("service.version", env!("CARGO_PKG_VERSION")),
            text_attribute("service.instance.id", &instance),
        ],
        ..Resource::default()
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

struct Sending {
    collector: Collector,
    resource: Resource,
    records: mpsc::Receiver<Record>,
    /// Whether the last request failed: each change is told once.
    is_failing: bool,
}

impl Sending {
    /// Sends batches until it is told to stop, and then what is left.
    async fn until(mut self, stop: &Notify) {
        loop {
            let batch = tokio::select! {
                batch = gathered(&mut self.records) => batch,
                () = stop.notified() => break,
            };
            match batch.is_empty() {
                true => return,
                false => self.send(batch).await,
            }
        }
        self.records.close();
        let mut rest = Vec::new();
        while self.records.recv_many(&mut rest, BATCH_MAX).await > 0 {
            self.send(std::mem::take(&mut rest)).await;
        }
    }

    async fn send(&mut self, batch: Vec<Record>) {
        let (mut spans, mut lines, mut metrics) = (Vec::new(), Vec::new(), Vec::new());
        for record in batch {
            match record {
                Record::Span(span) => spans.push(*span),
                Record::Line(line) => lines.push(*line),
                Record::Metrics(more) => metrics.extend(more),
            }
        }
        let (span_count, line_count) = (spans.len(), lines.len());
        if span_count > 0 {
            let request = self.of_spans(spans).encode_to_vec();
            self.send_signal(Signal::Traces, request, span_count).await;
        }
        if line_count > 0 {
            let request = self.of_lines(lines).encode_to_vec();
            self.send_signal(Signal::Logs, request, line_count).await;
        }
        if !metrics.is_empty() {
            let request = self.of_metrics(metrics);
            self.send_signal(Signal::Metrics, request.encode_to_vec(), 1).await;
        }
    }

    fn of_spans(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let (resource, scope) = (Some(self.resource.clone()), Some(scope()));
        let scope_spans = vec![ScopeSpans { scope, spans, ..ScopeSpans::default() }];
        let spans = ResourceSpans { resource, scope_spans, ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![spans] }
    }

    fn of_lines(&self, log_records: Vec<LogRecord>) -> ExportLogsServiceRequest {
        let (resource, scope) = (Some(self.resource.clone()), Some(scope()));
        let scope_logs = vec![ScopeLogs { scope, log_records, ..ScopeLogs::default() }];
        let lines = ResourceLogs { resource, scope_logs, ..ResourceLogs::default() };
        ExportLogsServiceRequest { resource_logs: vec![lines] }
    }

    fn of_metrics(&self, metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
        let (resource, scope) = (Some(self.resource.clone()), Some(scope()));
        let scope_metrics = vec![ScopeMetrics { scope, metrics, ..ScopeMetrics::default() }];
        let metrics = ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() };
        ExportMetricsServiceRequest { resource_metrics: vec![metrics] }
    }

    /// Sends a request until it is taken, refused, or tried often enough.
    async fn send_signal(&mut self, signal: Signal, request: Vec<u8>, count: usize) {
        let mut pause = PAUSE;
        let mut tries_left = TRIES;
        let failed = loop {
            tries_left -= 1;
            match self.collector.send(signal, &request).await {
                Ok(()) => break None,
                Err(Refusal::Final(why)) => break Some(why),
                Err(Refusal::Later(why)) if tries_left == 0 => break Some(why),
                Err(Refusal::Later(_)) => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        };
        match &failed {
            None => METERS.exports.sent(signal, count),
            Some(_) => METERS.exports.dropped(signal, count),
        }
        match (failed, std::mem::take(&mut self.is_failing)) {
            (Some(why), was_failing) => {
                self.is_failing = true;
                if !was_failing {
                    warn!("the OTLP collector takes nothing, and records are dropped: {why}");
                }
            }
            (None, true) => info!("the OTLP collector takes records again"),
            (None, false) => {}
        }
    }
}

/// A record, and those that come soon after it; none where the queue has ended.
async fn gathered(records: &mut mpsc::Receiver<Record>) -> Vec<Record> {
    let mut batch = Vec::new();
    if records.recv_many(&mut batch, BATCH_MAX).await == 0 {
        return batch;
    }
    let deadline = Instant::now() + GATHER;
    while batch.len() < BATCH_MAX {
        let room = BATCH_MAX - batch.len();
        match timeout_at(deadline, records.recv_many(&mut batch, room)).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    batch
}
