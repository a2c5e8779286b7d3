//! Metrics as values: what is read for one request, before it becomes text for Prometheus or is exported otherwise.

use std::fmt;

use prometheus_client::encoding::text;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use stepgate_gateway::meters::Snapshot;

/// The labels of a value, by name.
pub type Labels = Vec<(&'static str, String)>;

/// All values of one name.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The name; that of a counter without `_total`.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
    /// The values.
    pub values: Values,
}

/// Values of one kind, each with its labels.
#[derive(Clone, Debug)]
pub enum Values {
    /// What is so now.
    Gauge(Vec<(Labels, Number)>),
    /// What was counted since the process began.
    Counter(Vec<(Labels, Number)>),
    /// How often a value was in each bucket.
    Histogram(Vec<(Labels, Snapshot)>),
}

/// A number as it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole one.
    Whole(u64),
    /// Any other.
    Float(f64),
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<usize> for Number {
    fn from(number: usize) -> Self {
        Self::Whole(u64::try_from(number).unwrap_or(u64::MAX))
    }
}

impl From<bool> for Number {
    fn from(is_so: bool) -> Self {
        Self::Whole(u64::from(is_so))
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

/// What is read for one request.
#[derive(Default)]
pub(super) struct Families(pub(super) Vec<Figures>);

impl Families {
    pub(super) fn add(&mut self, name: &'static str, help: &'static str, values: Values) {
        self.0.push(Figures { name, help, values });
    }
}

pub(super) fn gauge(value: impl Into<Number>) -> Values {
    gauges([(Vec::new(), value)])
}

pub(super) fn gauges<N: Into<Number>>(values: impl IntoIterator<Item = (Labels, N)>) -> Values {
    Values::Gauge(numbers(values))
}

pub(super) fn counter(value: impl Into<Number>) -> Values {
    counters([(Vec::new(), value)])
}

pub(super) fn counters<N: Into<Number>>(values: impl IntoIterator<Item = (Labels, N)>) -> Values {
    Values::Counter(numbers(values))
}

pub(super) fn histogram(value: Snapshot) -> Values {
    histograms([(Vec::new(), value)])
}

pub(super) fn histograms(values: impl IntoIterator<Item = (Labels, Snapshot)>) -> Values {
    Values::Histogram(values.into_iter().collect())
}

fn numbers<N: Into<Number>>(
    values: impl IntoIterator<Item = (Labels, N)>,
) -> Vec<(Labels, Number)> {
    values.into_iter().map(|(labels, value)| (labels, value.into())).collect()
}

pub(super) fn labelled(name: &'static str, value: impl Into<String>) -> Labels {
    vec![(name, value.into())]
}

/// The text in OpenMetrics.
pub(super) fn text(figures: Vec<Figures>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    for Figures { name, help, values } in figures {
        registry.register(name, help, values);
    }
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

impl EncodeMetric for Values {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Gauge(values) => each(&mut encoder, values, |encoder, number| match number {
                Number::Whole(number) => encoder.encode_gauge(number),
                Number::Float(number) => encoder.encode_gauge(number),
            }),
            Self::Counter(values) => each(&mut encoder, values, |encoder, number| match number {
                Number::Whole(number) => {
                    encoder.encode_counter::<NoLabelSet, u64, u64>(number, None)
                }
                Number::Float(number) => {
                    encoder.encode_counter::<NoLabelSet, f64, f64>(number, None)
                }
            }),
            Self::Histogram(values) => {
                each(&mut encoder, values, |encoder, Snapshot { sum, buckets }| {
                    let count = buckets.iter().map(|(_, count)| count).sum();
                    encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
                })
            }
        }
    }

    fn metric_type(&self) -> MetricType {
        match self {
            Self::Gauge(_) => MetricType::Gauge,
            Self::Counter(_) => MetricType::Counter,
            Self::Histogram(_) => MetricType::Histogram,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Gauge(values) | Self::Counter(values) => values.is_empty(),
            Self::Histogram(values) => values.is_empty(),
        }
    }
}

/// Writes each value with its labels; one without any is written without braces.
fn each<T>(
    encoder: &mut MetricEncoder<'_>,
    values: &[(Labels, T)],
    write: impl Fn(&mut MetricEncoder<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    values.iter().try_for_each(|(labels, value)| match labels.is_empty() {
        true => write(encoder, value),
        false => write(&mut encoder.encode_family(labels)?, value),
    })
}
