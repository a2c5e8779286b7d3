//! What is so at the moment of the request: read from the service and its parts.

use stepgate_core::attention::Kind;
use stepgate_core::decimal::Decimal;
use stepgate_core::ports::{Node, StoreError};
use stepgate_core::stops;
use stepgate_core::time::Timestamp;
use stepgate_exec::servers::{ListedServer, ServerState};
use stepgate_gateway::budgets::{self, BudgetObject};
use stepgate_gateway::control::{Candidate, Control, DifferenceKind, ShadowCounts};
use stepgate_gateway::service::{Counts, Service};
use stepgate_gateway::{audit, notify, panics};

use super::families::{Families, Labels, labelled};

/// Everything that is read for one request.
pub(super) struct Present {
    now: Timestamp,
    steps: Vec<(Labels, u64)>,
    steps_running: usize,
    stops_in_force: usize,
    attention: Counts,
    /// When the oldest open approval was asked for.
    oldest_approval: Option<Timestamp>,
    /// The budgets, each with its fullest account.
    budgets: Vec<BudgetObject>,
    /// The nodes that share the store, if it can be shared.
    nodes: Vec<Node>,
    /// Free space on the disk of the data directory, where it is known.
    free_bytes: Option<u64>,
    parts: Option<Parts>,
}

/// The parts that operators change.
struct Parts {
    servers: Vec<ListedServer>,
    policy_hash: String,
    policy_since: Timestamp,
    is_policy_failing: bool,
    /// The shadow policies that are asked.
    shadow: Option<Candidate>,
}

impl Parts {
    fn of(control: &Control) -> Self {
        let (policy_since, is_policy_failing) = control.policy_standing();
        let shadow = control.shadow.as_ref();
        Self {
            servers: control.servers.servers(),
            policy_hash: control.policy.current().digest().to_string(),
            policy_since,
            is_policy_failing,
            shadow: shadow.and_then(|shadow| shadow.candidate().ok()),
        }
    }
}

impl Present {
    pub(super) async fn read(service: &Service) -> Result<Self, StoreError> {
        let control = service.control.as_ref();
        let budgets = match control {
            Some(control) => budgets::list(&service.gate, &control.policy.current(), 1).await?,
            None => Vec::new(),
        };
        let oldest = service.decidable_after(None, 1).await?;
        let steps = service.steps.all().into_iter().map(|(label, word, count)| {
            let outcome = ("outcome", word.as_str().to_owned());
            let action = [("action", label.action), ("server", label.server), ("tool", label.tool)];
            ([outcome].into_iter().chain(action).collect(), count)
        });
        Ok(Self {
            now: service.gate.world.now(),
            steps: steps.collect(),
            steps_running: service.running(),
            stops_in_force: stops::in_force(&service.gate).await?.len(),
            attention: service.attention_counts().await?,
            oldest_approval: oldest.first().map(|approval| approval.ts_requested),
            budgets,
            nodes: service.gate.store.nodes().await?,
            free_bytes: control.and_then(|control| control.disk.free_bytes()),
            parts: control.map(|control| Parts::of(control)),
        })
    }

    pub(super) fn add(self, families: &mut Families) {
        self.add_attention(families);
        self.add_budgets(families);
        self.add_nodes(families);
        let text = "Steps that ended or paused, by action and outcome";
        families.counters("stepgate_steps", text, self.steps);
        families.gauge("stepgate_steps_running", "Steps under way", self.steps_running);
        let text = "Emergency stops that are in force";
        families.gauge("stepgate_stops_in_force", text, self.stops_in_force);
        let text = "Panics of this process, each contained";
        families.gauge("stepgate_panics", text, panics::count());
        if let Some(free) = self.free_bytes {
            let text = "Free space on the disk of the data directory";
            families.gauge("stepgate_disk_free_bytes", text, free);
        }
        add_notifications(families);
        add_audit_streams(families);
        if let Some(parts) = &self.parts {
            parts.add(families);
        }
    }

    fn add_attention(&self, families: &mut Families) {
        let Counts { by_kind, runs_unreached } = &self.attention;
        let of = |kinds: &[Kind]| {
            let kinds = by_kind.iter().filter(|(kind, _)| kinds.contains(kind));
            kinds.map(|(kind, count)| (labelled("kind", kind.as_str()), *count)).collect::<Vec<_>>()
        };
        let text = "What needs a person, by kind";
        families.gauges("stepgate_attention", text, of(&Kind::ALL));
        let text = "Runs that recovery cannot end without a person, by kind";
        families.gauges("stepgate_runs_needing_person", text, of(&Kind::OF_RUNS));
        let text = "Runs that wait for an executor that no living node reaches";
        families.gauge("stepgate_runs_unreached", text, *runs_unreached);
        let open = by_kind.get(&Kind::Approval).copied().unwrap_or_default();
        let text = "Approvals that nobody has decided";
        families.gauge("stepgate_approvals_open", text, open);
        let age = self.oldest_approval.map_or(0, |since| self.now.since_ms(since));
        let text = "How long the oldest open approval has waited; 0 where none is open";
        families.gauge("stepgate_approvals_oldest_age_seconds", text, seconds(age));
    }

    fn add_budgets(&self, families: &mut Families) {
        let each = |value: fn(&BudgetObject) -> f64| {
            let budgets = self.budgets.iter();
            let labels = |budget: &BudgetObject| labelled("budget", budget.budget.as_str());
            budgets.map(|budget| (labels(budget), value(budget))).collect::<Vec<_>>()
        };
        let percents = self.budgets.iter().map(|budget| {
            let percent = budget.accounts.first().map_or(0, |account| account.percent);
            let percent = u64::try_from(percent).unwrap_or_default();
            (labelled("budget", budget.budget.as_str()), percent)
        });
        let text =
            "How many percent of a budget its fullest account has used in the present window";
        families.gauges("stepgate_budget_used_percent", text, percents);
        let text = "How much of a budget its fullest account has used in the present window";
        let used = |budget: &BudgetObject| budget.accounts.first().map_or(0.0, |it| float(it.used));
        families.gauges("stepgate_budget_used", text, each(used));
        let text = "The most that an account of a budget may use in a window";
        families.gauges("stepgate_budget_limit", text, each(|budget| float(budget.limit)));
    }

    /// A store that only one process can open has no nodes.
    fn add_nodes(&self, families: &mut Families) {
        let Some(this) = self.nodes.iter().find(|node| node.is_this) else { return };
        let alive = self.nodes.iter().filter(|node| node.lease_left.is_some()).count();
        families.gauge("stepgate_nodes_alive", "Nodes whose lease is valid", alive);
        let left = this.lease_left.unwrap_or_default().as_secs_f64();
        let text = "How long this node's lease is still valid";
        families.gauge("stepgate_lease_left_seconds", text, left);
    }
}

impl Parts {
    fn add(&self, families: &mut Families) {
        let each = |is: fn(&ServerState) -> bool| {
            let servers = self.servers.iter();
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
        families.gauges("stepgate_server_up", "Whether a tool server is connected", each(is_up));
        let text = "Whether calls of a tool server are held back after failures in a row";
        families.gauges("stepgate_server_breaker_open", text, each(is_open));
        let text = "The policies in force, by digest; always 1";
        let hash = [(labelled("policy_hash", &self.policy_hash), true)];
        families.gauges("stepgate_policy_info", text, hash);
        let since = u64::try_from(self.policy_since.as_millisecond()).unwrap_or_default();
        let text = "Since when the policies in force are, in seconds since 1970";
        families.gauge("stepgate_policy_in_force_since_seconds", text, seconds(since));
        let text = "Whether the policy files have changed and cannot be loaded";
        families.gauge("stepgate_policy_reload_failing", text, self.is_policy_failing);
        if let Some(shadow) = &self.shadow {
            add_shadow(shadow, families);
        }
    }
}

/// The counts begin again with another candidate.
fn add_shadow(candidate: &Candidate, families: &mut Families) {
    let shadow = [(labelled("policy_hash", candidate.set.digest().to_string()), true)];
    let text = "The shadow policies that are asked, by digest";
    families.gauges("stepgate_policy_shadow", text, shadow);
    let ShadowCounts { asked, differing } = candidate.counts();
    let same = asked.saturating_sub(differing.values().sum());
    let name = |kind: DifferenceKind| format!("{}_to_{}", kind.from.as_str(), kind.to.as_str());
    let differing = differing.into_iter().map(|(kind, count)| (name(kind), count));
    let counts = differing.chain([("none".to_owned(), same)]);
    let counts = counts.map(|(difference, count)| (labelled("difference", difference), count));
    let text = "Decisions that the present shadow policies were asked about, by how they differ";
    families.counters("stepgate_policy_shadow_decisions", text, counts);
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
    families.counters("stepgate_notifications", text, sent);
    let text = "Whether the last try to reach a receiver of notifications failed";
    families.gauges("stepgate_notify_receivers_failing", text, failing);
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
    families.counters("stepgate_audit_events", text, events);
    let text = "Whether the last try of an audit stream failed";
    families.gauges("stepgate_audit_streams_failing", text, failing);
}

fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

/// A decimal as a metric shows it: rounded where 64 bits do not hold it.
fn float(decimal: Decimal) -> f64 {
    decimal.to_string().parse().unwrap_or(f64::NAN)
}
