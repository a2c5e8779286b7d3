//! Metrics: what HTTP counts itself, and everything that is read when they are requested.

mod families;
mod format;
mod measured;
mod present;
mod process;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use stepgate_core::lock;
use stepgate_core::ports::{Store, StoreError};
use stepgate_gateway::meters::Histogram;
use stepgate_gateway::service::Service;

use super::history::{History, SAMPLE};
use super::refusals::Refusals;
use families::{Families, counter, counters, gauge, histogram, labelled};

pub use families::{Figures, Labels, Number, Values};
pub(super) use format::Format;

pub(crate) struct Metrics {
    /// The last minutes, for the console.
    pub(crate) history: History,
    pub(crate) refusals: Refusals,
    started: Duration,
    requests: RwLock<BTreeMap<u16, AtomicU64>>,
    malformed: AtomicU64,
    duration: Histogram,
    connections: Arc<AtomicU64>,
    store_bytes: AtomicU64,
}

/// Counts a connection while it is open.
pub(crate) struct CountedConnection(Arc<AtomicU64>);

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(super) fn new() -> Self {
        Self {
            history: History::new(),
            refusals: Refusals::default(),
            started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            requests: RwLock::default(),
            malformed: AtomicU64::new(0),
            duration: Histogram::of_seconds(),
            connections: Arc::default(),
            store_bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn step(&self) {
        self.history.count(|sample| sample.steps += 1);
    }

    pub(super) fn request(&self, status: StatusCode, elapsed: Duration) {
        self.count_status(status.as_u16());
        self.duration.observe_time(elapsed);
        self.history.count(|sample| {
            sample.requests += 1;
            sample.longest = sample.longest.max(elapsed);
        });
    }

    /// A reader's lock: only the first request with a status waits for others.
    fn count_status(&self, status: u16) {
        if let Some(count) = lock::read(&self.requests).get(&status) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut requests = lock::write(&self.requests);
        requests.entry(status).or_default().fetch_add(1, Ordering::Relaxed);
    }

    /// Notes how large the store is. If the store does not answer, the last size stays.
    async fn measure(&self, store: &dyn Store) {
        if let Ok(Some(bytes)) = store.size_bytes().await {
            self.store_bytes.store(bytes, Ordering::Relaxed);
            self.history.count(|sample| sample.store_bytes = bytes);
        }
    }

    pub(crate) fn malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection(&self) -> CountedConnection {
        self.connections.fetch_add(1, Ordering::Relaxed);
        CountedConnection(Arc::clone(&self.connections))
    }

    /// Everything, at this moment.
    pub(super) async fn figures(&self, service: &Service) -> Result<Vec<Figures>, StoreError> {
        let mut families = Families::default();
        self.add(&mut families);
        measured::add(&mut families);
        present::add(service, &mut families).await?;
        process::add(&mut families);
        Ok(families.0)
    }

    pub(super) fn text(figures: Vec<Figures>, format: Format) -> Result<String, std::fmt::Error> {
        Ok(format.of(families::text(figures)?))
    }

    fn add(&self, families: &mut Families) {
        let value = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let requests = lock::read(&self.requests);
        let requests = requests.iter().map(|(status, it)| {
            (labelled("status", status.to_string()), it.load(Ordering::Relaxed))
        });
        families.add("stepgate_http_requests", "Requests, by status", counters(requests));
        let text = "Requests that could not be understood, or did not come in time";
        families.add("stepgate_http_malformed_requests", text, counter(value(&self.malformed)));
        families.add(
            "stepgate_http_connections",
            "Open connections",
            gauge(value(&self.connections)),
        );
        let text = "Requests and connections that gave way to others, by limit";
        let refusals = self.refusals.counts().into_iter();
        let refusals = refusals.map(|(limit, count)| (labelled("limit", limit), count));
        families.add("stepgate_refusals", text, counters(refusals));
        let text = "From a request's head to its answer";
        let duration = self.duration.snapshot();
        families.add("stepgate_http_request_duration_seconds", text, histogram(duration));
        families.add(
            "stepgate_store_bytes",
            "The size of the store",
            gauge(value(&self.store_bytes)),
        );
        let text = "When the process was started, in seconds since 1970";
        families.add("stepgate_start_time_seconds", text, gauge(self.started.as_secs()));
    }

    /// Measures the store, again and again.
    pub(crate) async fn keep_measuring(&self, store: &dyn Store) {
        loop {
            self.measure(store).await;
            tokio::time::sleep(SAMPLE).await;
        }
    }
}
