//! The log: what an operator should have been told, one line each, on standard error. Text for people, JSON for
//! machines.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::sync::OnceLock;

use anstyle::Style;
use serde_json::{Map, Value};
use stepgate_core::ports::World;
use stepgate_gateway::world::RealWorld;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Metadata, Subscriber, error};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::config::{LogFormat, LogLevel};
use crate::otlp::{Exporter, Traces};
use crate::show::{self, DIM, ERROR, printable, printable_lines};
use crate::timing::{self, Timing};

/// What targets of our own crates begin with. What libraries log is left out.
const OWN_TARGETS: &str = "stepgate";
/// Fields that a line of text always has, also where the sentence happens to contain their value.
const ALWAYS: [&str; 2] = ["node", "request_id"];
const MESSAGE: &str = "message";

/// This node's name, where there may be others.
static NODE: OnceLock<String> = OnceLock::new();

impl LogLevel {
    fn level(self) -> Level {
        match self {
            Self::Error => Level::ERROR,
            Self::Warn => Level::WARN,
            Self::Info => Level::INFO,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// A person who waits for a command to end.
    Command,
    /// A reader of the log of a long-running process: every line has its time.
    Service,
}

/// Begins to write log lines. Only the first call of a process has an effect.
pub(crate) fn begin(
    format: LogFormat,
    level: LogLevel,
    audience: Audience,
    exporter: Option<Exporter>,
) {
    let log = Log { format, level: level.level(), audience };
    let (timing, traces) = match audience {
        Audience::Command => (None, None),
        Audience::Service => (Some(Timing), Some(Traces::new(exporter, level.level()))),
    };
    let subscriber = Registry::default().with(log).with(timing).with(traces);
    // Set already: the first call decides.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Tells why the process ends. The log may not have begun.
pub(crate) fn fatal(fault: &anyhow::Error) {
    if tracing::dispatcher::has_been_set() {
        error!("{fault:#}");
    } else {
        let text = printable_lines(&format!("{fault:#}"));
        show::note(format!("{ERROR}error:{ERROR:#} {text}"));
    }
}

/// Names this node in every line from now on.
pub(crate) fn name_node(node_id: String) {
    // A process is one node.
    let _ = NODE.set(node_id);
}

struct Log {
    format: LogFormat,
    level: Level,
    audience: Audience,
}

/// The fields of a span or an event, by name.
#[derive(Clone, Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl<S> Layer<S> for Log
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let is_told = match (metadata.is_span(), self.audience) {
            (false, _) => *metadata.level() <= self.level,
            (true, Audience::Command) => !timing::is_part(metadata),
            // The other spans are measured.
            (true, Audience::Service) => true,
        };
        is_told && metadata.target().starts_with(OWN_TARGETS)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        // The parts of a step are not for people.
        if !timing::is_part(attributes.metadata()) {
            keep_fields(attributes, id, &context);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = fields_of(event, &context);
        if let Some(node) = NODE.get() {
            fields.0.insert("node".to_owned(), node.as_str().into());
        }
        let level = *event.metadata().level();
        // Where standard error is closed, there is no place to say so.
        let _ = match (self.format, self.audience) {
            // Nothing for a program goes through a filter for terminals.
            (LogFormat::Json, _) => writeln!(io::stderr().lock(), "{}", json(level, fields)),
            (LogFormat::Text, Audience::Command) => {
                writeln!(anstream::stderr().lock(), "{}", told(level, fields))
            }
            (LogFormat::Text, Audience::Service) => {
                writeln!(anstream::stderr().lock(), "{}", text(level, fields))
            }
        };
    }
}

/// Keeps the fields of a span for the events inside it.
fn keep_fields<S>(attributes: &Attributes<'_>, id: &Id, context: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if let Some(span) = context.span(id) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().replace(fields);
    }
}

/// The fields of an event and of the spans that it is in.
fn fields_of<S>(event: &Event<'_>, context: &Context<'_, S>) -> Fields
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let mut fields = Fields::default();
    let scope = context.event_scope(event);
    for span in scope.into_iter().flat_map(|scope| scope.from_root()) {
        if let Some(outer) = span.extensions().get::<Fields>() {
            fields.0.extend(outer.0.clone());
        }
    }
    event.record(&mut fields);
    fields
}

/// One JSON object: time, level and message first.
fn json(level: Level, Fields(mut fields): Fields) -> String {
    let message = fields.remove(MESSAGE).unwrap_or_default();
    let mut line = Map::new();
    line.insert("time".to_owned(), RealWorld.now().to_string().into());
    line.insert("level".to_owned(), level.as_str().to_lowercase().into());
    line.insert(MESSAGE.to_owned(), message);
    line.extend(fields);
    Value::Object(line).to_string()
}

/// A line with its time and level, and what the message does not say itself.
fn text(level: Level, Fields(mut fields): Fields) -> String {
    // A line that goes on is indented: no text from outside can look like a line of its own.
    let message = message(&mut fields).replace('\n', "\n    ");
    let style = style(level);
    let now = RealWorld.now();
    let mut line = format!("{DIM}{now}{DIM:#} {style}{level:<5}{style:#} {message}");
    for (name, value) in fields {
        let value = value.as_str().map_or_else(|| value.to_string(), printable);
        if ALWAYS.contains(&name.as_str()) || !message.contains(&value) {
            let _ = write!(line, " {DIM}{name}={value}{DIM:#}");
        }
    }
    line
}

/// A line for a person who waits for a command.
fn told(level: Level, Fields(mut fields): Fields) -> String {
    let message = message(&mut fields);
    let style = style(level);
    match level {
        Level::ERROR => format!("{style}error:{style:#} {message}"),
        Level::WARN => format!("{style}warning:{style:#} {message}"),
        _ => message,
    }
}

/// The sentence. It may repeat text from outside.
fn message(fields: &mut Map<String, Value>) -> String {
    let message = fields.remove(MESSAGE).unwrap_or_default();
    printable_lines(message.as_str().unwrap_or_default())
}

fn style(level: Level) -> Style {
    match level {
        Level::ERROR => ERROR,
        Level::WARN => show::WAITING,
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests;
