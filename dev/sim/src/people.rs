//! Agents that repeat themselves, operators who decide twice, and whoever changes the policies.

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
use crate::world::{NodeWorld, Sim};

/// How often an agent asks before it gives up.
const TRIES_MAX: u32 = 25;
/// How long a caller waits for a node.
const PATIENCE: Instant = 8 * SECOND;

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

/// Everybody begins.
pub(crate) fn begin(sim: &Arc<Sim>) {
    locked(&sim.ledger).agents_busy = sim.weather.agents;
    locked(&sim.ledger).operators_settle = sim.happens(800);
    for number in 0..sim.weather.agents {
        sim.spawn(Group::WORLD, agent(Arc::clone(sim), number));
    }
    for number in 0..2 {
        sim.spawn(Group::WORLD, operator(Arc::clone(sim), number));
    }
    if sim.weather.policy_changes > 0 {
        sim.spawn(Group::WORLD, change_policies(Arc::clone(sim)));
    }
}

async fn agent(sim: Arc<Sim>, number: u64) {
    let Ok(principal) = PrincipalId::parse(&format!("agent-{number}")) else { return };
    for turn in 0..sim.weather.proposals {
        let rest = sim.below(3 * SECOND);
        sim.sleep(rest).await;
        let proposal = invent(&sim, &principal, turn);
        if sim.happens(sim.weather.twice) {
            let (again, same) = (Arc::clone(&sim), proposal.clone());
            locked(&sim.ledger).agents_busy += 1;
            sim.spawn(Group::WORLD, async move {
                propose(&again, &same).await;
                locked(&again.ledger).agents_busy -= 1;
            });
        }
        propose(&sim, &proposal).await;
        if sim.happens(sim.weather.reused) {
            let args = json!({ "content": "something else", "path": "/sandbox/other.txt" });
            let other = Proposal { action: "WRITE_FILE", args, ..proposal.clone() };
            propose(&sim, &other).await;
        }
        if sim.happens(200) {
            propose(&sim, &proposal).await;
        }
    }
    locked(&sim.ledger).agents_busy -= 1;
}

/// A proposal like any other.
fn invent(sim: &Arc<Sim>, principal: &PrincipalId, turn: u64) -> Proposal {
    let id = fresh_uuid(sim);
    let path = |number: u64| format!("/sandbox/{number}.txt");
    let one = sim.below(3);
    let (action, args) = match sim.below(14) {
        0..=2 => {
            let content = format!("{} {turn}", principal.as_str());
            ("WRITE_FILE", json!({ "content": content, "path": path(one) }))
        }
        3 => ("DELETE_FILE", json!({ "path": path(one) })),
        4 => {
            // Nobody else changes the destination: see docs/simulation.md.
            let destination = format!("/sandbox/{}-{turn}.txt", principal.as_str());
            ("RENAME_FILE", json!({ "destination": destination, "source": path(one) }))
        }
        5 => ("READ_FILE", json!({ "path": path(one) })),
        6 => ("THINK", json!({})),
        _ => {
            let tool = locked(&sim.chance).pick(&CHANGING, "s.ask");
            (tool, json!({ "n": sim.below(100), "secret": "s" }))
        }
    };
    Proposal { principal: principal.clone(), id, action, args }
}

fn fresh_uuid(sim: &Arc<Sim>) -> Uuid {
    use stepgate_core::ports::World;
    NodeWorld { sim: Arc::clone(sim), skew_ms: 0 }.fresh_uuid()
}

/// Sends a proposal to any node until it is answered.
async fn propose(sim: &Arc<Sim>, proposal: &Proposal) {
    for _ in 0..TRIES_MAX {
        let node = sim.below(sim.nodes.count());
        let (principal, payload) = (proposal.principal.clone(), proposal.payload());
        let patience = sim.between(SECOND, PATIENCE);
        let answer = sim.call(node, patience, move |sim, process| async move {
            let answer = submit(&process.gate, principal, payload).await;
            process.heed(&sim, answer.as_ref().err());
            answer
        });
        if let Some(Ok(answer)) = answer.await {
            sim.answered(&proposal.key(), proposal.content(), &answer);
            if matches!(answer.word(), Word::Outcome(_)) {
                return;
            }
        }
        if sim.is_stormy() && sim.happens(30) {
            return;
        }
        let rest = sim.between(100 * MS, 4 * SECOND);
        sim.sleep(rest).await;
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
        let rest = sim.between(SECOND, 6 * SECOND);
        sim.sleep(rest).await;
        let node = sim.below(sim.nodes.count());
        let open = sim.call(node, PATIENCE, |_, process| async move {
            let status = Some(ApprovalStatus::Pending);
            let query = ApprovalQuery { status, limit: 8, ..ApprovalQuery::default() };
            process.gate.store.approvals(query).await.unwrap_or_default()
        });
        for approval in open.await.unwrap_or_default() {
            if sim.happens(500) {
                decide(&sim, approval.approval_id, &operator);
            }
            if sim.happens(200) {
                decide(&sim, approval.approval_id, &operator);
            }
        }
        let doubts = locked(&sim.ledger).to_settle();
        for (run_id, doubt) in doubts {
            if sim.happens(500) {
                settle(&sim, run_id, doubt, &operator).await;
            }
        }
    }
}

/// Decides on some node, and goes on with other things.
fn decide(sim: &Arc<Sim>, approval_id: ApprovalId, operator: &PrincipalId) {
    let node = sim.below(sim.nodes.count());
    let approver_id = operator.clone();
    let note = Some(format!("{}", sim.below(1_000_000)));
    let person = match sim.happens(700) {
        true => Person::Grants { approver_id, note },
        false => Person::Refuses { approver_id, note },
    };
    let sim = Arc::clone(sim);
    sim.clone().spawn(Group::WORLD, async move {
        let said = person.clone();
        let decided = sim.call(node, PATIENCE * 4, move |sim, process| async move {
            let decided = step::resume(&process.gate, approval_id, said).await;
            process.heed_refusal(&sim, decided.as_ref().err());
            decided
        });
        if let Some(Ok(_)) = decided.await {
            let rows = locked(&sim.database).rows().clone();
            let Ok(Some(approval)) = at_once(rows.approval(approval_id)) else {
                sim.violated(format!("approval {approval_id} was decided and is gone"));
                return;
            };
            let note_of = match &person {
                Person::Grants { note, .. } | Person::Refuses { note, .. } => note.clone(),
                Person::Nobody => None,
            };
            let noted = approval.resolution.as_ref().and_then(|made| made.note.clone());
            let is_theirs = approval.status == ApprovalStatus::Expired || noted == note_of;
            sim.told_decided(approval_id, is_theirs, approval.status);
        }
    });
}

/// Looks at what was done, and says so.
async fn settle(sim: &Arc<Sim>, run_id: RunId, doubt: Doubt, operator: &PrincipalId) {
    let settlement = match doubt {
        Doubt::Sandbox { acts: 0 } => Settlement::Failed,
        Doubt::Sandbox { .. } => Settlement::Succeeded(None),
        Doubt::Tool(key) if sim.servers.is_working(&key) => return,
        Doubt::Tool(key) => match sim.servers.acts(&key) {
            0 if sim.happens(500) => Settlement::Failed,
            0 => Settlement::Redispatch,
            _ => Settlement::Succeeded(None),
        },
    };
    let node = sim.below(sim.nodes.count());
    let operator = operator.clone();
    let settled = sim.call(node, PATIENCE * 4, move |sim, process| async move {
        let settled = step::resolve(&process.gate, run_id, settlement, operator, None).await;
        process.heed_refusal(&sim, settled.as_ref().err());
    });
    settled.await.unwrap_or_default();
}

async fn change_policies(sim: Arc<Sim>) {
    while sim.is_stormy() {
        sim.sleep(SECOND).await;
        if sim.happens(sim.weather.policy_changes) {
            let node = sim.below(sim.nodes.count());
            sim.note("policy", node, 0, || "another set is in force".into());
            sim.policies.change(node);
        }
    }
}
