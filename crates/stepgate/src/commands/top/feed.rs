//! What the gateway tells: what waits, what else needs a person, and how fast steps go.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::http::Method;
use stepgate_core::attention::Kind;
use stepgate_core::ids::ApprovalId;
use stepgate_core::time::Timestamp;
use stepgate_gateway::attention::{Attention, NeedObject};

use crate::client::Client;

const RATE_WINDOW: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) id: ApprovalId,
    /// Who asks for what, and why. Untrusted.
    pub(super) reason: String,
    pub(super) since: Timestamp,
}

/// The gateway at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Snapshot {
    /// The oldest first. Of very many only the oldest ones.
    pub(super) waiting: Vec<Waiting>,
    /// How much of each kind needs a person.
    pub(super) counts: BTreeMap<String, u64>,
    /// Steps that are under way.
    pub(super) running: u64,
    pub(super) steps_per_second: f64,
    /// Emergency stops that are in force.
    pub(super) stops: u64,
    /// When the gateway was started, in seconds since 1970.
    pub(super) started_s: Option<u64>,
}

pub(super) struct Feed {
    client: Client,
    /// How many steps were answered in all, at some moments of the window.
    steps: VecDeque<(Instant, u64)>,
}

impl Feed {
    pub(super) fn new(client: Client) -> Self {
        Self { client, steps: VecDeque::new() }
    }

    pub(super) async fn read(&mut self) -> anyhow::Result<Snapshot> {
        let reply = self.client.get("/v1/attention").await?;
        let Attention { attention, counts } = serde_json::from_value(reply)?;
        let waiting = attention.iter().filter(|need| need.kind == Kind::Approval.as_str());
        let waiting = waiting.map(waiting_of).collect::<anyhow::Result<_>>()?;
        let reply = self.client.ask(Method::GET, "/metrics", None).await?;
        reply.succeeded()?;
        let metrics = String::from_utf8_lossy(&reply.body);
        Ok(Snapshot {
            waiting,
            counts,
            running: sum(&metrics, "stepgate_steps_running"),
            steps_per_second: self.rate(Instant::now(), sum(&metrics, "stepgate_steps_total")),
            stops: sum(&metrics, "stepgate_stops_in_force"),
            started_s: Some(sum(&metrics, "stepgate_start_time_seconds")).filter(|at| *at > 0),
        })
    }

    /// Steps a second, from the oldest number of the window to this one.
    fn rate(&mut self, now: Instant, steps: u64) -> f64 {
        // A gateway that was started again counts from 0.
        if self.steps.back().is_some_and(|(_, before)| *before > steps) {
            self.steps.clear();
        }
        self.steps.push_back((now, steps));
        while self.steps.len() > 2
            && self.steps.front().is_some_and(|(at, _)| now.duration_since(*at) > RATE_WINDOW)
        {
            self.steps.pop_front();
        }
        let Some((at, before)) = self.steps.front() else { return 0.0 };
        let seconds = now.duration_since(*at).as_secs_f64();
        let count = u32::try_from(steps - before).unwrap_or(u32::MAX);
        if seconds > 0.0 { f64::from(count) / seconds } else { 0.0 }
    }
}

fn waiting_of(need: &NeedObject) -> anyhow::Result<Waiting> {
    let id = need.subject.parse().context("the gateway lists an approval without its id")?;
    Ok(Waiting { id, reason: need.reason.clone(), since: need.since })
}

/// The sum of a metric over its labels.
fn sum(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next()?.parse::<u64>().ok())?
    });
    values.sum()
}

#[cfg(test)]
mod tests;
