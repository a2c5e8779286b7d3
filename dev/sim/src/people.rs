//! Agents that repeat themselves, operators who decide twice, and changes of the policies.

use std::sync::Arc;

use serde_json::json;
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::digest::Digest;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{ApprovalId, PrincipalId, RunId};
use stepgate_core::json::Value;
use stepgate_core::ports::{ApprovalQuery, Approvals};
use stepgate_core::run::{Payload, Word};
use stepgate_core::step::{self, Answer, Person, Settlement, Submission};
use uuid::Uuid;

use crate::database::at_once;
use crate::ledger::Doubt;
use crate::locked;
use crate::schedule::{Group, Instant};
use crate::servers::CHANGING;
use crate::weather::{MS, SECOND};
use crate::world::Sim;

/// How often an agent asks before it gives up.
const TRIES_MAX: u32 = 25;
/// How long a caller waits for a node.
const CALL_TIMEOUT: Instant = 8 * SECOND;

/// A proposal, as it is sent again and again.
#[derive(Clone)]
struct Proposal {
    principal: PrincipalId,
    id: Uuid,
    action: &'static str,
    args: Value,
}

impl Proposal {
    fn key(&self) -> String {
        format!("{}/{}", self.principal.as_str(), self.id)
    }

    fn content(&self) -> Digest {
        Digest::of(&json!({ "action": self.action, "args": self.args }))
    }

    fn payload(&self) -> Payload {
        let text = json!({
            "action": self.action,
            "args": self.args,
            "id": self.id,
            "reasoning": "because",
            "schema_version": "1.0.0",
        });
        Payload::whole(text.to_string().into_bytes())
    }
}

/// Starts the agents and operators, and the changes of policies.
pub(crate) fn begin(sim: &Arc<Sim>) {
    sim.shared.ledger.begin(sim.env.weather.agents, sim.env.happens(800));
    for number in 0..sim.env.weather.agents {
        sim.env.spawn(Group::WORLD, agent(Arc::clone(sim), number));
    }
    for number in 0..2 {
        sim.env.spawn(Group::WORLD, operator(Arc::clone(sim), number));
    }
    if sim.env.weather.policy_changes > 0 {
        sim.env.spawn(Group::WORLD, change_policies(Arc::clone(sim)));
    }
}

async fn agent(sim: Arc<Sim>, number: u64) {
    let Ok(principal) = PrincipalId::parse(&format!("agent-{number}")) else { return };
    for turn in 0..sim.env.weather.proposals {
        let rest = sim.env.below(3 * SECOND);
        sim.env.sleep(rest).await;
        let proposal = invent(&sim, &principal, turn);
        if sim.env.happens(sim.env.weather.twice) {
            let (again, same) = (Arc::clone(&sim), proposal.clone());
            sim.shared.ledger.agent_begins();
            sim.env.spawn(Group::WORLD, async move {
                propose(&again, &same).await;
                again.shared.ledger.agent_ends();
            });
        }
        propose(&sim, &proposal).await;
        if sim.env.happens(sim.env.weather.reused) {
            let args = json!({ "content": "something else", "path": "/sandbox/other.txt" });
            let other = Proposal { action: "WRITE_FILE", args, ..proposal.clone() };
            propose(&sim, &other).await;
        }
        if sim.env.happens(200) {
            propose(&sim, &proposal).await;
        }
    }
    sim.shared.ledger.agent_ends();
}

/// A proposal like any other.
fn invent(sim: &Arc<Sim>, principal: &PrincipalId, turn: u64) -> Proposal {
    let id = sim.env.fresh_uuid();
    let path = |number: u64| format!("/sandbox/{number}.txt");
    let one = sim.env.below(3);
    let (action, args) = match sim.env.below(14) {
        0..=2 => {
            let content = format!("{} {turn}", principal.as_str());
            ("WRITE_FILE", json!({ "content": content, "path": path(one) }))
        }
        3 => ("DELETE_FILE", json!({ "path": path(one) })),
        4 => {
            // No other agent changes the destination: see docs/simulation.md.
            let destination = format!("/sandbox/{}-{turn}.txt", principal.as_str());
            ("RENAME_FILE", json!({ "destination": destination, "source": path(one) }))
        }
        5 => ("READ_FILE", json!({ "path": path(one) })),
        6 => ("THINK", json!({})),
        _ => {
            let tool = locked(&sim.env.chance).pick(&CHANGING, "s.ask");
            (tool, json!({ "n": sim.env.below(100), "secret": "s" }))
        }
    };
    Proposal { principal: principal.clone(), id, action, args }
}

/// Sends a proposal to any node until it is answered.
async fn propose(sim: &Arc<Sim>, proposal: &Proposal) {
    for _ in 0..TRIES_MAX {
        let node = sim.env.below(sim.processes.nodes());
        let (principal, payload) = (proposal.principal.clone(), proposal.payload());
        let timeout = sim.env.between(SECOND, CALL_TIMEOUT);
        let answer = sim.processes.call(node, timeout, move |process| async move {
            let answer = submit(&process.gate, principal, payload).await;
            process.heed(answer.as_ref().err());
            answer
        });
        if let Some(Ok(answer)) = answer.await {
            sim.shared.ledger.answered(&proposal.key(), proposal.content(), &answer);
            if matches!(answer.word(), Word::Outcome(_)) {
                return;
            }
        }
        if sim.env.is_stormy() && sim.env.happens(30) {
            return;
        }
        let rest = sim.env.between(100 * MS, 4 * SECOND);
        sim.env.sleep(rest).await;
    }
}

async fn submit(
    gate: &stepgate_core::gate::Gate,
    principal_id: PrincipalId,
    payload: Payload,
) -> Result<Answer, Fault> {
    let session_id = gate.default_session(&principal_id).await?.session_id;
    step::run(gate, Submission { session_id, principal_id, payload }).await
}

async fn operator(sim: Arc<Sim>, number: u64) {
    let Ok(operator) = PrincipalId::parse(&format!("operator-{number}")) else { return };
    loop {
        let rest = sim.env.between(SECOND, 6 * SECOND);
        sim.env.sleep(rest).await;
        let node = sim.env.below(sim.processes.nodes());
        let open = sim.processes.call(node, CALL_TIMEOUT, |process| async move {
            let status = Some(ApprovalStatus::Pending);
            let query = ApprovalQuery { status, limit: 8, ..ApprovalQuery::default() };
            process.gate.store.approvals(query).await.unwrap_or_default()
        });
        for approval in open.await.unwrap_or_default() {
            if sim.env.happens(500) {
                decide(&sim, approval.approval_id, &operator);
            }
            if sim.env.happens(200) {
                decide(&sim, approval.approval_id, &operator);
            }
        }
        let doubts = sim.shared.ledger.to_settle();
        for (run_id, doubt) in doubts {
            if sim.env.happens(500) {
                settle(&sim, run_id, doubt, &operator).await;
            }
        }
    }
}

/// Decides on some node, and goes on with other things.
fn decide(sim: &Arc<Sim>, approval_id: ApprovalId, operator: &PrincipalId) {
    let node = sim.env.below(sim.processes.nodes());
    let approver_id = operator.clone();
    let note = Some(format!("{}", sim.env.below(1_000_000)));
    let person = match sim.env.happens(700) {
        true => Person::Approves { approver_id, note },
        false => Person::Denies { approver_id, note },
    };
    let sim = Arc::clone(sim);
    sim.env.clone().spawn(Group::WORLD, async move {
        let said = person.clone();
        let decided = sim.processes.call(node, CALL_TIMEOUT * 4, move |process| async move {
            let decided = step::resume(&process.gate, approval_id, said).await;
            process.heed_refusal(decided.as_ref().err());
            decided
        });
        if let Some(Ok(_)) = decided.await {
            let rows = sim.shared.database.tables().rows().clone();
            let Ok(Some(approval)) = at_once(rows.approval(approval_id)) else {
                sim.env.violated(format!("approval {approval_id} was decided and is gone"));
                return;
            };
            let note_of = match &person {
                Person::Approves { note, .. } | Person::Denies { note, .. } => note.clone(),
                Person::Nobody => None,
            };
            let noted = approval.resolution.as_ref().and_then(|made| made.note.clone());
            let is_theirs = approval.status == ApprovalStatus::Expired || noted == note_of;
            sim.shared.ledger.told_decided(approval_id, is_theirs, approval.status);
        }
    });
}

/// Looks at what was done, and says so.
async fn settle(sim: &Arc<Sim>, run_id: RunId, doubt: Doubt, operator: &PrincipalId) {
    let settlement = match doubt {
        Doubt::Sandbox { acts: 0 } => Settlement::Failed,
        Doubt::Sandbox { .. } => Settlement::Succeeded(None),
        Doubt::Tool(key) if sim.shared.servers.is_working(&key) => return,
        Doubt::Tool(key) => match sim.shared.servers.acts(&key) {
            0 if sim.env.happens(500) => Settlement::Failed,
            0 => Settlement::Redispatch,
            _ => Settlement::Succeeded(None),
        },
    };
    let node = sim.env.below(sim.processes.nodes());
    let operator = operator.clone();
    let settled = sim.processes.call(node, CALL_TIMEOUT * 4, move |process| async move {
        let settled = step::resolve(&process.gate, run_id, settlement, operator, None).await;
        process.heed_refusal(settled.as_ref().err());
    });
    settled.await.unwrap_or_default();
}

async fn change_policies(sim: Arc<Sim>) {
    while sim.env.is_stormy() {
        sim.env.sleep(SECOND).await;
        if sim.env.happens(sim.env.weather.policy_changes) {
            let node = sim.env.below(sim.processes.nodes());
            sim.env.note("policy", node, 0, || "another set is in force".into());
            sim.shared.policies.change(node);
        }
    }
}
