//! `/health`: this process, its nodes, and the last ten minutes as small plots.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use stepgate_core::attention::Kind;
use stepgate_core::ports::Node;
use stepgate_core::time::Timestamp;

use super::{Frame, Moment, Shown, Tab, Text, Trouble, Visit, ago, duration, html};
use crate::history::{SAMPLE, Sample};

/// The size of a plot, in its own units.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 60.0;

#[derive(Template)]
#[template(path = "health.html")]
struct HealthPage {
    frame: Frame,
    trouble: Option<String>,
    counts: Vec<(&'static str, String)>,
    plots: Vec<Plot>,
    nodes: Vec<NodeRow>,
    off: Vec<(Text, Shown)>,
}

/// The last ten minutes of one number.
struct Plot {
    name: &'static str,
    present: String,
    highest: String,
    line: String,
    area: String,
}

struct NodeRow {
    name: Text,
    is_this: bool,
    class: &'static str,
    state: String,
    started: Moment,
    age: String,
    runs: u64,
    executors: Vec<Text>,
    policy: Option<String>,
}

pub(super) async fn show(Visit(app, visitor): Visit) -> Result<Response, Trouble> {
    let store = &app.service.gate.store;
    let attention = app.service.attention_counts().await?;
    let open = attention.by_kind.get(&Kind::Approval).copied().unwrap_or_default();
    let trouble = app.service.try_store().await.err().map(|error| error.to_string());
    let now = app.service.gate.world.now();
    let samples = app.metrics.history.samples();
    let control = app.service.control.as_ref();
    let off = control.map(|control| control.off()).unwrap_or_default();
    let events = store.last_position().await?;
    let page = HealthPage {
        frame: Frame::at(Tab::Health, "Health", &visitor),
        trouble,
        counts: vec![
            ("Steps under way", app.service.running().to_string()),
            ("Approvals open", open.to_string()),
            ("Events in all", events.to_string()),
            ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ],
        plots: plots(&samples),
        nodes: store.nodes().await?.iter().map(|node| NodeRow::of(node, now)).collect(),
        off: off.iter().map(|off| (Text::of(&off.server), Shown::of(&off.to_string()))).collect(),
    };
    Ok(html(StatusCode::OK, &page))
}

fn plots(samples: &[Sample]) -> Vec<Plot> {
    let seconds = SAMPLE.as_secs_f64();
    let rate = |value: f64| match value {
        value if value >= 10.0 => format!("{value:.0}/s"),
        value => format!("{value:.1}/s"),
    };
    let time = |value: f64| format!("{value:.1} ms");
    let steps = |sample: &Sample| f64::from(sample.steps) / seconds;
    let requests = |sample: &Sample| f64::from(sample.requests) / seconds;
    let longest = |sample: &Sample| sample.longest.as_secs_f64() * 1000.0;
    vec![
        Plot::of("Steps", samples.iter().map(steps).collect(), rate),
        Plot::of("Requests", samples.iter().map(requests).collect(), rate),
        Plot::of("Slowest request", samples.iter().map(longest).collect(), time),
        Plot::of("Store", samples.iter().map(stored).collect(), mebibytes),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "a plot has fewer points than a double has digits")]
fn stored(sample: &Sample) -> f64 {
    sample.store_bytes as f64
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / (1024.0 * 1024.0))
}

impl Plot {
    fn of(name: &'static str, values: Vec<f64>, unit: impl Fn(f64) -> String) -> Self {
        let highest = values.iter().copied().fold(0.0, f64::max);
        let scale = if highest > 0.0 { (HEIGHT - 4.0) / highest } else { 0.0 };
        let step = WIDTH / f64::from(u32::try_from(values.len()).unwrap_or(1).max(2) - 1);
        let points = values.iter().enumerate().map(|(at, value)| {
            let x = step * f64::from(u32::try_from(at).unwrap_or_default());
            format!("{x:.1} {:.1}", HEIGHT - 2.0 - value * scale)
        });
        let line = format!("M{}", points.collect::<Vec<_>>().join("L"));
        Self {
            name,
            present: unit(values.last().copied().unwrap_or_default()),
            highest: unit(highest),
            area: format!("{line}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z"),
            line,
        }
    }
}

impl NodeRow {
    fn of(node: &Node, now: Timestamp) -> Self {
        let (class, state) = match node.lease_left {
            Some(left) => {
                let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                ("good", format!("alive, lease {}", duration(ms)))
            }
            None => ("bad", "its lease has expired".to_owned()),
        };
        let short = |digest: String| digest.chars().take(12).collect();
        Self {
            name: Text::of(&node.node_id),
            is_this: node.is_this,
            class,
            state,
            started: Moment::of(node.started_at),
            age: ago(node.started_at, now),
            runs: node.runs,
            executors: node.executor_ids.iter().map(|id| Text::of(id)).collect(),
            policy: node.policy_hash.map(|digest| short(digest.to_string())),
        }
    }
}

#[cfg(test)]
mod tests;
