//! Metrics for Prometheus.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use stepgate_core::attention::Kind;
use stepgate_core::ports::Store;
use stepgate_core::run::Word;
use stepgate_gateway::service::Counts;
use stepgate_gateway::{notify, panics};

use super::history::{History, SAMPLE};

/// Seconds: from an answer that was already recorded to a caller that waits as long as it may.
const BUCKETS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 10.0, 60.0];

/// The names and values of a metric's labels.
type Labels<V, const N: usize = 1> = [(&'static str, V); N];

pub(crate) struct Metrics {
    /// The last minutes, for the console.
    pub(crate) history: History,
    registry: Registry,
    steps: Family<Labels<&'static str>, Counter>,
    requests: Family<Labels<u16>, Counter>,
    malformed: Counter,
    panics: Gauge,
    duration: Histogram,
    connections: Gauge,
    approvals_open: Gauge,
    steps_running: Gauge,
    runs_unreached: Gauge,
    runs_needing_person: Family<Labels<&'static str>, Gauge>,
    attention: Family<Labels<&'static str>, Gauge>,
    start_time: Gauge,
    store_bytes: Gauge,
    notifications: Family<Labels<String, 2>, Counter>,
    receivers_failing: Family<Labels<String>, Gauge>,
}

/// Counts a connection while it is open.
pub(crate) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Values that are read when the metrics are requested.
pub(super) struct Present {
    pub(super) steps_running: usize,
    pub(super) attention: Counts,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut metrics = Self {
            history: History::new(),
            registry: Registry::with_prefix("stepgate"),
            steps: Family::default(),
            requests: Family::default(),
            malformed: Counter::default(),
            panics: Gauge::default(),
            duration: Histogram::new(BUCKETS),
            connections: Gauge::default(),
            approvals_open: Gauge::default(),
            steps_running: Gauge::default(),
            runs_unreached: Gauge::default(),
            runs_needing_person: Family::default(),
            attention: Family::default(),
            start_time: Gauge::default(),
            store_bytes: Gauge::default(),
            notifications: Family::default(),
            receivers_failing: Family::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("steps", "Answers to proposals, by outcome", metrics.steps.clone());
        registry.register("http_requests", "Requests, by status", metrics.requests.clone());
        let text = "Requests that could not be understood, or did not come in time";
        registry.register("http_malformed_requests", text, metrics.malformed.clone());
        let text = "Panics of this process, each contained";
        registry.register("panics", text, metrics.panics.clone());
        let text = "From a request's head to its answer";
        registry.register("http_request_duration_seconds", text, metrics.duration.clone());
        registry.register("http_connections", "Open connections", metrics.connections.clone());
        let text = "Approvals that nobody has decided";
        registry.register("approvals_open", text, metrics.approvals_open.clone());
        registry.register("steps_running", "Steps under way", metrics.steps_running.clone());
        let text = "Runs that wait for an executor that no living node reaches";
        registry.register("runs_unreached", text, metrics.runs_unreached.clone());
        let text = "Runs that recovery cannot end without a person, by kind";
        registry.register("runs_needing_person", text, metrics.runs_needing_person.clone());
        registry.register("attention", "What needs a person, by kind", metrics.attention.clone());
        let text = "When the process was started, in seconds since 1970";
        registry.register("start_time_seconds", text, metrics.start_time.clone());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        metrics.start_time.set(i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX));
        let text = "The size of the store";
        registry.register("store_bytes", text, metrics.store_bytes.clone());
        let text = "Notifications of this process, by receiver: delivered, tries that failed, and given up";
        registry.register("notifications", text, metrics.notifications.clone());
        let text = "Whether the last try to reach a receiver of notifications failed";
        registry.register("notify_receivers_failing", text, metrics.receivers_failing.clone());
        metrics
    }

    pub(super) fn step(&self, word: Word) {
        self.steps.get_or_create(&[("outcome", word.as_str())]).inc();
        self.history.count(|sample| sample.steps += 1);
    }

    pub(super) fn request(&self, status: StatusCode, elapsed: Duration) {
        self.requests.get_or_create(&[("status", status.as_u16())]).inc();
        self.duration.observe(elapsed.as_secs_f64());
        self.history.count(|sample| {
            sample.requests += 1;
            sample.longest = sample.longest.max(elapsed);
        });
    }

    /// Notes how large the store is. If the store does not answer, the last size stays.
    async fn measure(&self, store: &dyn Store) {
        if let Ok(Some(bytes)) = store.size_bytes().await {
            self.store_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
            self.history.count(|sample| sample.store_bytes = bytes);
        }
    }

    /// Counts a request that could not be understood.
    pub(crate) fn malformed(&self) {
        self.malformed.inc();
    }

    pub(crate) fn connection(&self) -> OpenConnection {
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }

    pub(super) fn text(&self, present: &Present) -> Result<String, std::fmt::Error> {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.steps_running.set(i64::try_from(present.steps_running).unwrap_or(i64::MAX));
        self.runs_unreached.set(number(present.attention.runs_unreached));
        self.panics.set(i64::try_from(panics::count()).unwrap_or(i64::MAX));
        for (kind, count) in &present.attention.by_kind {
            let (label, count) = ([("kind", kind.as_str())], number(*count));
            self.attention.get_or_create(&label).set(count);
            if Kind::OF_RUNS.contains(kind) {
                self.runs_needing_person.get_or_create(&label).set(count);
            }
            if *kind == Kind::Approval {
                self.approvals_open.set(count);
            }
        }
        self.count_notifications();
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }

    /// Measures the store, again and again.
    pub(crate) async fn keep_measuring(&self, store: &dyn Store) {
        loop {
            self.measure(store).await;
            tokio::time::sleep(SAMPLE).await;
        }
    }

    fn count_notifications(&self) {
        for (receiver, counts) in notify::counts() {
            let outcomes = [
                ("delivered", counts.delivered),
                ("failed", counts.failed),
                ("skipped", counts.skipped),
            ];
            for (outcome, count) in outcomes {
                let label = [("receiver", receiver.clone()), ("outcome", outcome.to_owned())];
                self.notifications.get_or_create(&label).inner().store(count, Ordering::Relaxed);
            }
            let failing = self.receivers_failing.get_or_create(&[("receiver", receiver)]);
            failing.set(i64::from(counts.is_failing));
        }
    }
}
