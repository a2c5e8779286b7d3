use std::sync::Arc;

use serde_json::json;
use stepgate_core::approvers::Groups;
use stepgate_core::consent_cache::Consents;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::gate::{Doubts, Extensions, Gate, Parked};
use stepgate_core::limits::Limits;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::NoToolServers;
use stepgate_exec::{Sandbox, SandboxLimits};
use stepgate_store::memory::MemoryStore;
use tempfile::TempDir;

use super::*;
use crate::world::RealWorld;

fn gate(place: &TempDir) -> Gate {
    let sandbox = Sandbox::open(place.path(), "sandbox".into(), SandboxLimits::default()).unwrap();
    Gate {
        store: Arc::new(MemoryStore::new()),
        executor: Arc::new(sandbox),
        tools: Arc::new(NoToolServers),
        policy: Arc::new(BuiltInRule),
        world: Arc::new(RealWorld),
        limits: Limits::default(),
        extensions: Extensions::default(),
        parked: Parked::default(),
        doubts: Doubts::default(),
        groups: Groups::default(),
        consents: Consents::default(),
        facts: FactSources::default(),
    }
}

fn decision(set: &str, verdict: PolicyAnswer) -> SetDecision {
    SetDecision {
        caps: BTreeMap::new(),
        detail: None,
        policies: Vec::new(),
        policy_hash: Digest::of(set),
        reason: None,
        required: Vec::new(),
        verdict,
    }
}

fn difference(set: &str, tool: &str, to: PolicyAnswer) -> PolicyDiffers {
    PolicyDiffers {
        in_force: decision("in force", PolicyAnswer::Permit),
        principal_id: PrincipalId::parse("agent").unwrap(),
        shadow: decision(set, to),
        tool: tool.to_owned(),
    }
}

#[tokio::test]
async fn differences_are_counted_for_the_candidate_or_for_all_and_the_newest_are_listed() {
    use PolicyAnswer::{Approval, Deny, Permit};
    let place = TempDir::new().unwrap();
    let gate = gate(&place);
    let rows = [
        ("first", "DELETE_FILE", Deny),
        ("second", "DELETE_FILE", Deny),
        ("second", "READ_FILE", Approval),
        ("second", "WRITE_FILE", Deny),
        ("second", "DELETE_FILE", Deny),
    ];
    let mut times = Vec::new();
    for (set, tool, to) in rows {
        let payload = difference(set, tool, to);
        times.push(gate.note(EventType::PolicyDiffers, payload).await.unwrap().ts);
    }
    // `verify` reports one that was changed in the store.
    gate.note(EventType::PolicyDiffers, json!({ "shadow": 1 })).await.unwrap();

    let of = Of::Candidate(Digest::of("second"));
    let found = read(&*gate.store, of, 2).await.unwrap();
    assert_eq!((found.count, found.is_cut), (4, false));
    assert_eq!((found.first_at, found.last_at), (Some(times[1]), Some(times[4])));
    let kind = |to, count| KindCount { from: Permit, to, count };
    assert_eq!(found.by_kind, [kind(Deny, 3), kind(Approval, 1)]);
    let tool = |tool: &str, to, count| ToolCount { tool: tool.to_owned(), from: Permit, to, count };
    let by_tool =
        [tool("DELETE_FILE", Deny, 2), tool("READ_FILE", Approval, 1), tool("WRITE_FILE", Deny, 1)];
    assert_eq!(found.by_tool, by_tool);
    let newest: Vec<&str> = found.newest.iter().map(|one| one.tool.as_str()).collect();
    assert_eq!(newest, ["DELETE_FILE", "WRITE_FILE"]);

    let all = read(&*gate.store, Of::All, 0).await.unwrap();
    assert_eq!((all.count, all.first_at, all.newest), (5, Some(times[0]), vec![]));
    let none = read(&*gate.store, Of::Candidate(Digest::of("third")), 9).await.unwrap();
    assert_eq!(none, Differences::default());
    // The changed event is one of the two that are read.
    let cut = read_at_most(2, &*gate.store, Of::All, 9).await.unwrap();
    assert_eq!((cut.count, cut.is_cut), (1, true));
}
