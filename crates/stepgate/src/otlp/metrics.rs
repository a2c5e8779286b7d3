//! The metrics of `/metrics`, sent again and again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};
use stepgate_gateway::meters::Snapshot;
use stepgate_http::{App, Figures, Labels, Number, Values};

use super::export::exporter;
use super::fields::text_attribute;
use super::nanoseconds;

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// Sends the metrics of a gateway until the process ends, where they are exported.
pub(crate) fn begin(app: &Arc<App>) {
    let config = exporter().map(|exporter| &exporter.settings.config);
    if let Some(config) = config.filter(|config| config.metrics) {
        let interval = Duration::from_millis(config.metrics_interval_ms);
        tokio::spawn(keep_sending(Arc::clone(app), interval));
    }
}

async fn keep_sending(app: Arc<App>, interval: Duration) {
    let times = Times { began: nanoseconds(SystemTime::now()), now: 0 };
    loop {
        tokio::time::sleep(interval).await;
        // Where the store does not answer, the next time has the counts.
        if let (Some(exporter), Ok(figures)) = (exporter(), app.figures().await) {
            let times = Times { now: nanoseconds(SystemTime::now()), ..times };
            exporter.metrics(figures.into_iter().map(|it| metric(it, times)).collect());
        }
    }
}

#[derive(Clone, Copy)]
struct Times {
    /// Since when is counted.
    began: u64,
    now: u64,
}

fn metric(figures: Figures, times: Times) -> Metric {
    let Figures { name, help, values } = figures;
    let data = match values {
        Values::Gauge(values) => Data::Gauge(Gauge { data_points: points(values, times) }),
        Values::Counter(values) => Data::Sum(Sum {
            data_points: points(values, times),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        Values::Histogram(values) => Data::Histogram(Histogram {
            data_points: values.into_iter().map(|value| histogram(value, times)).collect(),
            aggregation_temporality: CUMULATIVE,
        }),
    };
    Metric {
        name: name.to_owned(),
        description: help.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn points(values: Vec<(Labels, Number)>, times: Times) -> Vec<NumberDataPoint> {
    let point = |(labels, number): (Labels, Number)| NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: times.began,
        time_unix_nano: times.now,
        value: Some(match number {
            Number::Whole(number) => Value::AsInt(i64::try_from(number).unwrap_or(i64::MAX)),
            Number::Float(number) => Value::AsDouble(number),
        }),
        ..NumberDataPoint::default()
    };
    values.into_iter().map(point).collect()
}

fn histogram((labels, snapshot): (Labels, Snapshot), times: Times) -> HistogramDataPoint {
    let Snapshot { sum, buckets } = snapshot;
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: times.began,
        time_unix_nano: times.now,
        count: buckets.iter().map(|(_, count)| count).sum(),
        sum: Some(sum),
        bucket_counts: buckets.iter().map(|(_, count)| *count).collect(),
        // The last bucket has no bound.
        explicit_bounds: buckets
            .iter()
            .map(|(bound, _)| *bound)
            .filter(|it| it.is_finite())
            .collect(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(labels: Labels) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| text_attribute(name, value)).collect()
}
