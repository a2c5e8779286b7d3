//! `cargo xtask decision-cost`: the processor time that a decision takes. `cargo xtask budget-rate`: steps a second with a
//! budget that every call is charged to, and without one (`rate.rs`). `cargo xtask bench`: the instructions of the parts of a
//! step (`count.rs`).
//!
//! A whole gate over the store in memory, on one thread. The time is taken when a proposal comes and when AUTHORIZE asks the
//! tool server for a permit, which is the last thing that it does. So RECEIVE is in it, too.

mod count;
mod parts;
mod rate;
mod rules;

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde_json::json;
use stepgate_core::gate::Gate;
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::run::Payload;
use stepgate_core::step::{self, Submission};
use stepgate_store::MemoryStore;
use uuid::Uuid;

use crate::parts::{AGENT, Meter};
use crate::rules::Rules;

/// Decisions that are measured for each figure.
const DECISIONS: usize = 2_000;
/// Steps of a long session.
const LONG: usize = 10_000;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        None => tokio::runtime::Builder::new_current_thread().build()?.block_on(measure()),
        Some("count") => {
            let (part, times) = (args.next().context("which part?")?, args.next());
            let times = times.context("how often?")?.parse()?;
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(count::repeat(&part, times))
        }
        Some("rate") => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(rate::measure(args.next().as_deref()))
        }
        Some(other) => bail!("there is no measurement `{other}`"),
    }
}

async fn measure() -> anyhow::Result<()> {
    println!("processor time from RECEIVE to the end of AUTHORIZE, {DECISIONS} decisions each");
    println!("{:42} {:>12} {:>10} {:>10}", "policies", "can apply", "p50 in µs", "p99 in µs");
    for rules in Rules::ALL {
        let bench = Bench::new(rules)?;
        let session_id = bench.session().await?;
        let [p50, p99] = bench.decide(session_id).await?;
        println!("{:42} {:>12} {p50:>10.1} {p99:>10.1}", rules.title(), rules.can_apply());
    }
    let bench = Bench::new(Rules::EachTool)?;
    let [new, long] = [bench.session().await?, bench.session().await?];
    bench.steps(long, LONG).await?;
    // In turns, so that both see the same machine and the same store.
    let mut ratios = Vec::new();
    for _ in 0..5 {
        let [new_p50, _] = bench.decide_in_new_sessions(new).await?;
        let [long_p50, _] = bench.decide(long).await?;
        ratios.push(long_p50 / new_p50);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios.get(2).context("five ratios")?;
    println!(
        "a session with {LONG} steps against new ones: {ratio:.2} times the processor time (median of 5)"
    );
    Ok(())
}

struct Bench {
    gate: Gate,
    meter: Arc<Meter>,
}

impl Bench {
    fn new(rules: Rules) -> anyhow::Result<Self> {
        let meter = Arc::new(Meter::default());
        let store = Arc::new(MemoryStore::new());
        let gate = parts::gate(&rules.text(), rules.budgets(), store, &meter)?;
        Ok(Self { gate, meter })
    }

    async fn session(&self) -> anyhow::Result<SessionId> {
        let principal_id = PrincipalId::parse(AGENT)?;
        let session_id = SessionId::new(Uuid::now_v7());
        let session = self.gate.named_session(session_id, &principal_id).await?;
        Ok(session.session_id)
    }

    /// Median and 99th percentile of decisions in one session, in microseconds.
    async fn decide(&self, session_id: SessionId) -> anyhow::Result<[f64; 2]> {
        self.steps(session_id, DECISIONS).await?;
        self.meter.percentiles(DECISIONS)
    }

    /// The same, with a new session every hundred steps.
    async fn decide_in_new_sessions(&self, first: SessionId) -> anyhow::Result<[f64; 2]> {
        let mut session_id = first;
        for _ in 0..DECISIONS / 100 {
            self.steps(session_id, 100).await?;
            session_id = self.session().await?;
        }
        self.meter.percentiles(DECISIONS)
    }

    async fn steps(&self, session_id: SessionId, count: usize) -> anyhow::Result<()> {
        for number in 0..count {
            self.step(session_id, number, || self.meter.start()).await?;
        }
        Ok(())
    }

    /// A step; `begin` is called when its proposal is there.
    async fn step(
        &self,
        session_id: SessionId,
        number: usize,
        begin: impl FnOnce(),
    ) -> anyhow::Result<()> {
        let principal_id = PrincipalId::parse(AGENT)?;
        let payload = Payload::whole(proposal(number).to_string().into_bytes());
        begin();
        let answer =
            step::run(&self.gate, Submission { session_id, principal_id, payload }).await?;
        let body = answer.body();
        ensure!(body.contains("\"SUCCESS\""), "not permitted: {body}");
        Ok(())
    }
}

/// A call with seven arguments.
pub(crate) fn proposal(number: usize) -> serde_json::Value {
    json!({
        "schema_version": "1.0.0",
        "id": Uuid::now_v7(),
        "reasoning": "The user asked to tell the team about the invoice.",
        "action": "server-1.tool-7",
        "args": {
            "to": "team@example.com",
            "cc": ["anna@example.com", "ben@example.com"],
            "subject": format!("Invoice {number}"),
            "body": "The invoice of last month is paid. ".repeat(8),
            "amount": 19.99,
            "count": number % 50,
            "urgent": false,
        },
    })
}
