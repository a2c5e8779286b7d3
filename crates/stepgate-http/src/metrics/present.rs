//! What is so at the moment of the request: read from the service and its parts.

use stepgate_core::attention::Kind;
use stepgate_core::decimal::Decimal;
use stepgate_core::ports::{Node, StoreError};
use stepgate_core::stops;

use stepgate_exec::servers::ServerState;
use stepgate_gateway::budgets::{self, BudgetObject};
use stepgate_gateway::control::{Candidate, Control, DifferenceKind, ShadowCounts};
use stepgate_gateway::service::{Counts, Service};
use stepgate_gateway::{audit, notify, panics};

use super::families::{Families, counters, gauge, gauges, labelled};

pub(super) async fn add(service: &Service, families: &mut Families) -> Result<(), StoreError> {
    add_attention(service, families).await?;
    add_budgets(service, families).await?;
    add_nodes(&service.gate.store.nodes().await?, families);
    let steps = service.steps.all().into_iter().map(|(label, word, count)| {
        let outcome = ("outcome", word.as_str().to_owned());
        let action = [("action", label.action), ("server", label.server), ("tool", label.tool)];
        ([outcome].into_iter().chain(action).collect(), count)
    });
    let text = "Steps that ended or paused, by action and outcome";
    families.add("stepgate_steps", text, counters(steps));
    families.add("stepgate_steps_running", "Steps under way", gauge(service.running()));
    let text = "Emergency stops that are in force";
    let stops = stops::in_force(&service.gate).await?;
    families.add("stepgate_stops_in_force", text, gauge(stops.len()));
    let text = "Panics of this process, each contained";
    families.add("stepgate_panics", text, gauge(panics::count()));
    let control = service.control.as_ref();
    if let Some(free) = control.and_then(|control| control.disk.free_bytes()) {
        let text = "Free space on the disk of the data directory";
        families.add("stepgate_disk_free_bytes", text, gauge(free));
    }
    add_notifications(families);
    add_audit_streams(families);
    if let Some(control) = control {
        add_parts(control, families);
    }
    Ok(())
}

async fn add_attention(service: &Service, families: &mut Families) -> Result<(), StoreError> {
    let Counts { by_kind, runs_unreached } = service.attention_counts().await?;
    let of = |kinds: &[Kind]| {
        let kinds = by_kind.iter().filter(|(kind, _)| kinds.contains(kind));
        kinds.map(|(kind, count)| (labelled("kind", kind.as_str()), *count)).collect::<Vec<_>>()
    };
    let text = "What needs a person, by kind";
    families.add("stepgate_attention", text, gauges(of(&Kind::ALL)));
    let text = "Runs that recovery cannot end without a person, by kind";
    families.add("stepgate_runs_needing_person", text, gauges(of(&Kind::OF_RUNS)));
    let text = "Runs that wait for an executor that no living node reaches";
    families.add("stepgate_runs_unreached", text, gauge(runs_unreached));
    let open = by_kind.get(&Kind::Approval).copied().unwrap_or_default();
    let text = "Approvals that nobody has decided";
    families.add("stepgate_approvals_open", text, gauge(open));
    let oldest = service.decidable_after(None, 1).await?;
    let now = service.gate.world.now();
    let age = oldest.first().map_or(0, |approval| now.since_ms(approval.ts_requested));
    let text = "How long the oldest open approval has waited; 0 where none is open";
    families.add("stepgate_approvals_oldest_age_seconds", text, gauge(seconds(age)));
    Ok(())
}

async fn add_budgets(service: &Service, families: &mut Families) -> Result<(), StoreError> {
    let budgets = match &service.control {
        // Each with its fullest account.
        Some(control) => budgets::list(&service.gate, &control.policy.current(), 1).await?,
        None => Vec::new(),
    };
    let each = |value: fn(&BudgetObject) -> f64| {
        let labels = |budget: &BudgetObject| labelled("budget", budget.budget.as_str());
        budgets.iter().map(|budget| (labels(budget), value(budget))).collect::<Vec<_>>()
    };
    let percents = budgets.iter().map(|budget| {
        let percent = budget.accounts.first().map_or(0, |account| account.percent);
        let percent = u64::try_from(percent).unwrap_or_default();
        (labelled("budget", budget.budget.as_str()), percent)
    });
    let text = "How many percent of a budget its fullest account has used in the present window";
    families.add("stepgate_budget_used_percent", text, gauges(percents));
    let text = "How much of a budget its fullest account has used in the present window";
    let used = |budget: &BudgetObject| budget.accounts.first().map_or(0.0, |it| float(it.used));
    families.add("stepgate_budget_used", text, gauges(each(used)));
    let text = "The most that an account of a budget may use in a window";
    families.add("stepgate_budget_limit", text, gauges(each(|budget| float(budget.limit))));
    Ok(())
}

/// A store that only one process can open has no nodes.
fn add_nodes(nodes: &[Node], families: &mut Families) {
    let Some(this) = nodes.iter().find(|node| node.is_this) else { return };
    let alive = nodes.iter().filter(|node| node.lease_left.is_some()).count();
    families.add("stepgate_nodes_alive", "Nodes whose lease is valid", gauge(alive));
    let left = this.lease_left.unwrap_or_default().as_secs_f64();
    let text = "How long this node's lease is still valid";
    families.add("stepgate_lease_left_seconds", text, gauge(left));
}

/// The parts that operators change.
fn add_parts(control: &Control, families: &mut Families) {
    let servers = control.servers.servers();
    let each = |is: fn(&ServerState) -> bool| {
        let servers = servers.iter();
        servers.map(|it| (labelled("server", &it.name), is(&it.state))).collect::<Vec<_>>()
    };
    let is_up = |state: &ServerState| match state {
        ServerState::Up | ServerState::Resting => true,
        ServerState::Down(_) => false,
    };
    let is_open = |state: &ServerState| match state {
        ServerState::Resting => true,
        ServerState::Up | ServerState::Down(_) => false,
    };
    families.add("stepgate_server_up", "Whether a tool server is connected", gauges(each(is_up)));
    let text = "Whether calls of a tool server are held back after failures in a row";
    families.add("stepgate_server_breaker_open", text, gauges(each(is_open)));
    let text = "The policies in force, by digest; always 1";
    let hash = control.policy.current().digest().to_string();
    families.add("stepgate_policy_info", text, gauges([(labelled("policy_hash", hash), true)]));
    let (since, is_failing) = control.policy_standing();
    let since = u64::try_from(since.as_millisecond()).unwrap_or_default();
    let text = "Since when the policies in force are, in seconds since 1970";
    families.add("stepgate_policy_in_force_since_seconds", text, gauge(seconds(since)));
    let text = "Whether the policy files have changed and cannot be loaded";
    families.add("stepgate_policy_reload_failing", text, gauge(is_failing));
    if let Some(Ok(candidate)) = control.shadow.as_ref().map(|shadow| shadow.candidate()) {
        add_shadow(&candidate, families);
    }
}

/// The shadow policies that are asked. The counts begin again with another candidate.
fn add_shadow(candidate: &Candidate, families: &mut Families) {
    let shadow = [(labelled("policy_hash", candidate.set.digest().to_string()), true)];
    let text = "The shadow policies that are asked, by digest";
    families.add("stepgate_policy_shadow", text, gauges(shadow));
    let ShadowCounts { asked, differing } = candidate.counts();
    let same = asked.saturating_sub(differing.values().sum());
    let name = |kind: DifferenceKind| format!("{}_to_{}", kind.from.as_str(), kind.to.as_str());
    let differing = differing.into_iter().map(|(kind, count)| (name(kind), count));
    let counts = differing.chain([("none".to_owned(), same)]);
    let counts = counts.map(|(difference, count)| (labelled("difference", difference), count));
    let text = "Decisions that the present shadow policies were asked about, by how they differ";
    families.add("stepgate_policy_shadow_decisions", text, counters(counts));
}

fn add_notifications(families: &mut Families) {
    let (mut sent, mut failing) = (Vec::new(), Vec::new());
    for (receiver, counts) in notify::counts() {
        let outcomes = [
            ("delivered", counts.delivered),
            ("failed", counts.failed),
            ("skipped", counts.skipped),
        ];
        for (outcome, count) in outcomes {
            let receiver = ("receiver", receiver.clone());
            sent.push((vec![receiver, ("outcome", outcome.to_owned())], count));
        }
        failing.push((labelled("receiver", receiver), counts.is_failing));
    }
    let text =
        "Notifications of this process, by receiver: delivered, tries that failed, and given up";
    families.add("stepgate_notifications", text, counters(sent));
    let text = "Whether the last try to reach a receiver of notifications failed";
    families.add("stepgate_notify_receivers_failing", text, gauges(failing));
}

fn add_audit_streams(families: &mut Families) {
    let (mut events, mut failing) = (Vec::new(), Vec::new());
    for (stream, counts) in audit::counts() {
        for (outcome, count) in [("delivered", counts.delivered), ("failed", counts.failed)] {
            let stream = ("stream", stream.clone());
            events.push((vec![stream, ("outcome", outcome.to_owned())], count));
        }
        failing.push((labelled("stream", stream), counts.is_failing));
    }
    let text = "Events that this process sent out by its audit streams, and tries that failed";
    families.add("stepgate_audit_events", text, counters(events));
    let text = "Whether the last try of an audit stream failed";
    families.add("stepgate_audit_streams_failing", text, gauges(failing));
}

fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

/// A decimal as a metric shows it: rounded where 64 bits do not hold it.
fn float(decimal: Decimal) -> f64 {
    decimal.to_string().parse().unwrap_or(f64::NAN)
}
