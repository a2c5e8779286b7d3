//! The fields of a span or a line as attributes.

use std::fmt;
use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use stepgate_core::trace_context::{self, TRACEPARENT, TRACESTATE, TraceParent};
use tracing::field::{Field, Visit};

/// Longest text of an attribute, in bytes. What is longer is cut.
pub(super) const TEXT_BYTES_MAX: usize = 1024;

/// What the fields say. Those that begin with `otel.` say something about the span itself.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) attributes: Vec<KeyValue>,
    pub(super) name: Option<String>,
    pub(super) kind: Option<SpanKind>,
    /// The sentence of a line.
    pub(super) message: Option<String>,
    /// The caller's trace.
    pub(super) parent: Option<TraceParent>,
    pub(super) state: Option<Arc<str>>,
    pub(super) is_error: bool,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.attributes.push(attribute(field.name(), value));
    }

    fn add_text(&mut self, field: &Field, text: &str) {
        match field.name() {
            "otel.name" => self.name = Some(cut(text).to_owned()),
            "otel.kind" => self.kind = kind(text),
            "message" => self.message = Some(cut(text).to_owned()),
            TRACEPARENT => self.parent = TraceParent::parse(text),
            TRACESTATE => self.state = trace_context::state(text).map(Arc::from),
            name => {
                self.is_error |= name == "error.type";
                self.add(field, Value::StringValue(cut(text).to_owned()));
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::IntValue(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::DoubleValue(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::BoolValue(value));
    }
}

pub(super) fn attribute(name: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: name.to_owned(), value, ..KeyValue::default() }
}

pub(super) fn text_attribute(name: &str, text: &str) -> KeyValue {
    attribute(name, Value::StringValue(text.to_owned()))
}

fn cut(text: &str) -> &str {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    text.get(..end).unwrap_or_default()
}

fn kind(text: &str) -> Option<SpanKind> {
    match text {
        "server" => Some(SpanKind::Server),
        "client" => Some(SpanKind::Client),
        _ => None,
    }
}
