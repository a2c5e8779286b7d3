//! Makes records of spans and of log lines. The spans of requests that name log lines are not exported: a span of its own
//! stands around each of them.

use std::time::SystemTime;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use stepgate_core::spans::{HTTP, MCP, MODEL, STEP};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::context::{Place, place_of};
use super::export::Exporter;
use super::fields::Fields;
use super::nanoseconds;
use crate::timing::is_part;

/// The spans that begin a trace where there is none. A part of a step without its step says nothing.
const BEGIN_TRACES: [&str; 4] = [HTTP, MCP, STEP, MODEL];

/// Spans and lines on their way to a collector; without one, only the callers' traces are kept.
pub(crate) struct Traces {
    exporter: Option<Exporter>,
    /// The least important lines that are exported.
    level: Level,
}

/// A span that is exported when it ends.
struct Open {
    name: String,
    kind: SpanKind,
    began: SystemTime,
    parent_span_id: Option<u64>,
    /// The span around it, where that belongs to another trace.
    beside: Option<Place>,
    attributes: Vec<KeyValue>,
    is_error: bool,
}

impl Traces {
    pub(crate) fn new(exporter: Option<Exporter>, level: Level) -> Self {
        Self { exporter, level }
    }
}

impl<S> Layer<S> for Traces
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        let Some(span) = context.span(id).filter(|_| is_part(metadata)) else { return };
        let exporter = self.exporter.as_ref().filter(|it| it.settings.config.traces);
        let is_entrance = metadata.fields().field("traceparent").is_some();
        // Without an exporter only the trace of a caller is of interest.
        if exporter.is_none() && !is_entrance {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let remote = fields.parent.map(|here| Place { here, state: fields.state.clone() });
        let Some(exporter) = exporter else {
            remote.map(|remote| span.extensions_mut().replace(remote));
            return;
        };
        let around = span.parent().and_then(|parent| place_of(&parent));
        let parent = remote.or_else(|| around.clone());
        let place = match &parent {
            Some(parent) => parent.child(),
            None if BEGIN_TRACES.contains(&metadata.target()) => {
                Place::root(|trace_id| exporter.samples(trace_id))
            }
            None => return,
        };
        let is_recorded = place.here.is_sampled;
        let trace_id = place.here.trace_id;
        span.extensions_mut().replace(place);
        if is_recorded {
            span.extensions_mut().replace(Open {
                name: fields.name.unwrap_or_else(|| metadata.name().to_owned()),
                kind: fields.kind.unwrap_or(SpanKind::Internal),
                began: SystemTime::now(),
                parent_span_id: parent.map(|parent| parent.here.span_id),
                beside: around.filter(|around| around.here.trace_id != trace_id),
                attributes: fields.attributes,
                is_error: fields.is_error,
            });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            let mut fields = Fields::default();
            values.record(&mut fields);
            open.attributes.extend(fields.attributes);
            open.is_error |= fields.is_error;
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let mut extensions = span.extensions_mut();
        let (open, place) = (extensions.remove::<Open>(), extensions.get_mut::<Place>());
        if let (Some(open), Some(place), Some(exporter)) = (open, place, &self.exporter) {
            exporter.span(open.ended(place));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let level = *event.metadata().level();
        let exporter = self.exporter.as_ref().filter(|it| it.settings.config.logs);
        let Some(exporter) = exporter.filter(|_| level <= self.level) else { return };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let place = context.event_span(event).and_then(|span| place_of(&span));
        exporter.line(line(level, fields, place.as_ref()));
    }
}

impl Open {
    fn ended(self, place: &Place) -> Span {
        let code = if self.is_error { StatusCode::Error } else { StatusCode::Unset };
        let links = self.beside.iter().map(|beside| Link {
            trace_id: beside.here.trace_id.to_be_bytes().to_vec(),
            span_id: beside.here.span_id.to_be_bytes().to_vec(),
            ..Link::default()
        });
        Span {
            trace_id: place.here.trace_id.to_be_bytes().to_vec(),
            span_id: place.here.span_id.to_be_bytes().to_vec(),
            trace_state: place.state.as_deref().unwrap_or_default().to_owned(),
            parent_span_id: self
                .parent_span_id
                .map(|id| id.to_be_bytes().to_vec())
                .unwrap_or_default(),
            name: self.name,
            kind: self.kind.into(),
            start_time_unix_nano: nanoseconds(self.began),
            end_time_unix_nano: nanoseconds(SystemTime::now()),
            attributes: self.attributes,
            links: links.collect(),
            status: Some(Status { code: code.into(), message: String::new() }),
            ..Span::default()
        }
    }
}

fn line(level: Level, fields: Fields, place: Option<&Place>) -> LogRecord {
    let severity = match level {
        Level::ERROR => SeverityNumber::Error,
        Level::WARN => SeverityNumber::Warn,
        _ => SeverityNumber::Info,
    };
    let now = nanoseconds(SystemTime::now());
    let body = fields.message.map(|text| AnyValue { value: Some(Value::StringValue(text)) });
    LogRecord {
        time_unix_nano: now,
        observed_time_unix_nano: now,
        severity_number: severity.into(),
        severity_text: level.as_str().to_owned(),
        body,
        attributes: fields.attributes,
        flags: place.map_or(0, |place| u32::from(place.here.is_sampled)),
        trace_id: place.map(|it| it.here.trace_id.to_be_bytes().to_vec()).unwrap_or_default(),
        span_id: place.map(|it| it.here.span_id.to_be_bytes().to_vec()).unwrap_or_default(),
        ..LogRecord::default()
    }
}
