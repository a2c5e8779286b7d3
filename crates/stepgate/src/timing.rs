//! Measures the spans of steps, for `/metrics`. Besides the span itself, which lives in a pool, it adds to atomics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use stepgate_core::spans::{BATCH, COMMIT, MODEL, PHASE, TAKEOVER, TOOL};
use stepgate_gateway::meters::{Histogram, METERS};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Whether a span is around a part of the work, to be measured and exported. The others name the lines inside them.
pub(crate) fn is_part(metadata: &Metadata<'_>) -> bool {
    *metadata.level() > Level::INFO
}

pub(crate) struct Timing;

struct Begun {
    at: Instant,
    meter: Meter,
}

enum Meter {
    Fixed(&'static Histogram),
    Tool(Arc<Histogram>),
}

impl<S> Layer<S> for Timing
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let (Some(meter), Some(span)) = (meter_of(attributes), context.span(id)) {
            span.extensions_mut().replace(Begun { at: Instant::now(), meter });
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let extensions = span.extensions();
        let Some(Begun { at, meter }) = extensions.get() else { return };
        match meter {
            Meter::Fixed(meter) => meter.observe_time(at.elapsed()),
            Meter::Tool(meter) => meter.observe_time(at.elapsed()),
        }
    }
}

/// What measures a span of this kind. What a span counts when it begins is counted here.
fn meter_of(attributes: &Attributes<'_>) -> Option<Meter> {
    let metadata = attributes.metadata();
    match metadata.target() {
        PHASE => METERS.phase(metadata.name()).map(Meter::Fixed),
        COMMIT => Some(Meter::Fixed(&METERS.commits)),
        MODEL => Some(Meter::Fixed(&METERS.model_calls)),
        TOOL | BATCH => {
            let mut tool = ToolOf(None);
            attributes.record(&mut tool);
            tool.0.map(Meter::Tool)
        }
        TAKEOVER => {
            METERS.takeovers.fetch_add(1, Ordering::Relaxed);
            None
        }
        _ => None,
    }
}

/// The meter of the tool that a span names. The size of a batch is counted at once.
struct ToolOf(Option<Arc<Histogram>>);

impl Visit for ToolOf {
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "gen_ai.tool.name" {
            self.0 = Some(METERS.tool(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "db.operation.batch.size" {
            METERS.batch_writes.observe(value);
        }
    }
}
