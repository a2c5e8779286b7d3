//! Six whole journals, made by `Journal` with fixed ids and instants.

use serde_json::{Value, json};
use stepgate_core::digest::Digest;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::artifact::{
    ActionRequest, CallMeta, DecisionMeta, EffectError, EffectMeta, EffectOutcome, EffectStatus,
    Guarantee, Invocation, RequestMeta, Resource, RiskLevel, SupervisorDecision, ToolCall,
    ToolClass, ToolEffect, Verdict,
};
use stepgate_core::journal::{Artifact, Checkpoint, ExecutionState, Journal, Kind};
use stepgate_core::time::Timestamp;

use super::model::{Row, Trace};

/// How a trace goes on after its request.
struct Story {
    name: &'static str,
    tool: &'static str,
    args: Value,
    class: ToolClass,
    verdict: Verdict,
    decision: DecisionMeta,
    call: CallMeta,
    effect: Option<(EffectStatus, Option<EffectError>, EffectMeta)>,
}

pub(crate) fn all() -> Vec<Trace> {
    stories().into_iter().enumerate().map(|(number, story)| tell(number, story)).collect()
}

/// A UUIDv7 that says which trace and which thing it is.
pub(crate) fn id_text(trace: usize, thing: usize) -> String {
    format!("01893b6e-7a00-7{trace:03x}-8000-{thing:012x}")
}

fn artifact_id(trace: usize, thing: usize) -> ArtifactId {
    id_text(trace, thing).parse().unwrap()
}

fn principal(name: &str) -> PrincipalId {
    PrincipalId::parse(name).unwrap()
}

fn policies(names: &[&str]) -> DecisionMeta {
    let policies = names.iter().map(|name| (*name).to_owned()).collect();
    DecisionMeta { policies, ..DecisionMeta::default() }
}

fn error(code: &str, message: &str) -> Option<EffectError> {
    Some(EffectError { code: code.into(), message: message.into() })
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn stories() -> Vec<Story> {
    let executor = || CallMeta { executor_id: Some("sandbox".into()), ..CallMeta::default() };
    let once = || EffectMeta { guarantee: Some(Guarantee::ExactlyOnce), ..EffectMeta::default() };
    let result = Digest::of(&json!({"content": "hello world\n"}));
    let approved = DecisionMeta {
        approval_id: Some(ApprovalId::new(artifact_id(1, 9).as_uuid())),
        approver_id: Some(principal("operator")),
        needs_approval_digest: Some(Digest::of_bytes(b"needs_approval")),
        note_digest: Some(Digest::of_bytes(b"note")),
        ..policies(&["writes-need-a-person"])
    };
    let read = |name, verdict, decision, effect| Story {
        name,
        tool: "READ_FILE",
        args: json!({"path": "/sandbox/config/settings.txt"}),
        class: ToolClass::Read,
        verdict,
        decision,
        call: executor(),
        effect,
    };
    let write = |name, decision, effect| Story {
        name,
        tool: "WRITE_FILE",
        args: json!({"content": "caf\u{e9} \u{1f600}\n", "path": "/sandbox/notes.md"}),
        class: ToolClass::Write,
        verdict: Verdict::Approve,
        decision,
        call: CallMeta { pre_state: Some(json!({"exists": false})), ..executor() },
        effect: Some(effect),
    };
    let core = || policies(&["core-actions"]);
    let tool = Story {
        tool: "sonos.set_volume",
        args: json!({"room": "kitchen", "volume": 30.5}),
        call: CallMeta {
            tool_definition_digest: Some(Digest::of_bytes(b"definition")),
            ..executor()
        },
        decision: DecisionMeta { cap: Some(json!({"volume": 30.5})), ..core() },
        ..write(
            "tool_error_at_least_once",
            core(),
            (
                EffectStatus::Error,
                error("OUTPUT_INVALID", "Tool returned an invalid result"),
                EffectMeta {
                    guarantee: Some(Guarantee::AtLeastOnce),
                    resolved_by: Some(principal("operator")),
                    result_digest: Some(Digest::of_bytes(b"?")),
                },
            ),
        )
    };
    vec![
        read(
            "read_completed",
            Verdict::Approve,
            core(),
            Some((
                EffectStatus::Success,
                None,
                EffectMeta { result_digest: Some(result), ..once() },
            )),
        ),
        write("write_completed_after_approval", approved, (EffectStatus::Success, None, once())),
        read(
            "read_failed",
            Verdict::Approve,
            core(),
            Some((EffectStatus::Failure, error("FILE_NOT_FOUND", "File not found"), once())),
        ),
        write(
            "write_refused_after_authorized",
            core(),
            (
                EffectStatus::Denied,
                error("POLICY_VIOLATION", "Action is not permitted by policy"),
                once(),
            ),
        ),
        tool,
        read("read_denied", Verdict::Deny, policies(&[]), None),
    ]
}

fn tell(number: usize, story: Story) -> Trace {
    let trace_id: RunId = id_text(number, 1).parse().unwrap();
    let plan_id: SessionId = id_text(number, 2).parse().unwrap();
    let ts = |ms: i64| Timestamp::from_millisecond(1_700_000_000_000 + ms);
    let proposal = format!("550e8400-e29b-41d4-a716-{number:012x}");
    let key = IdempotencyKey::from_stored(format!("agent/{proposal}"));
    let mut journal = Journal::empty(trace_id, plan_id);

    journal.advance(request(&journal, number, &story, &key), None).unwrap();
    journal.advance(decision(&journal, number, &story), None).unwrap();
    if let Some((status, error, meta)) = story.effect.clone() {
        let call = Artifact::ToolCall(ToolCall::new(
            journal.head(artifact_id(number, 5), ts(2)),
            invocation(&story),
            key.clone(),
            story.call.clone(),
            journal.reference(Kind::SupervisorDecision).unwrap().digest,
            artifact_id(number, 4),
            artifact_id(number, 5),
            story.class,
        ));
        journal.advance(call, Some(key.clone())).unwrap();
        let effect = Artifact::ToolEffect(ToolEffect::new(
            journal.head(artifact_id(number, 6), ts(3)),
            meta,
            EffectOutcome { error, status },
            journal.reference(Kind::ToolCall).unwrap().digest,
            artifact_id(number, 5),
            artifact_id(number, 6),
        ));
        journal.advance(effect, Some(key)).unwrap();
    }
    let tail = *journal.tail();
    let log: Vec<_> = journal.take_pending().iter().map(Row::of).collect();
    let last_ts = log.last().unwrap().entry.ts;
    Trace {
        name: story.name.into(),
        trace_id,
        plan_id,
        log,
        state: ExecutionState::of(trace_id, plan_id, &tail).unwrap(),
        checkpoint: Checkpoint::of(trace_id, plan_id, &tail, last_ts).unwrap(),
    }
}

fn invocation(story: &Story) -> Invocation {
    let (server, tool) = story.tool.split_once('.').unwrap_or(("core", story.tool));
    Invocation { args: story.args.clone(), tool_name: tool.into(), tool_server: server.into() }
}

fn request(journal: &Journal, number: usize, story: &Story, key: &IdempotencyKey) -> Artifact {
    let path = story.args.get("path").and_then(Value::as_str);
    let resources = path.map(|path| Resource { id: path.into(), kind: "path".into() });
    let asked = json!({"action": story.tool, "args": story.args});
    Artifact::ActionRequest(ActionRequest::new(
        journal.head(artifact_id(number, 3), Timestamp::from_millisecond(1_700_000_000_000)),
        artifact_id(number, 3),
        principal("agent"),
        Some(key.clone()),
        "Do what the tool does".into(),
        RequestMeta { asked_digest: Digest::of(&asked), principal_id: principal("agent") },
        invocation(story),
        resources.into_iter().collect(),
        match story.class {
            ToolClass::Read => RiskLevel::Read,
            ToolClass::Write => RiskLevel::Write,
        },
    ))
}

fn decision(journal: &Journal, number: usize, story: &Story) -> Artifact {
    Artifact::SupervisorDecision(SupervisorDecision::new(
        journal.head(artifact_id(number, 4), Timestamp::from_millisecond(1_700_000_000_001)),
        journal.reference(Kind::ActionRequest).unwrap().digest,
        artifact_id(number, 3),
        story.verdict,
        story.decision.clone(),
        Some(Digest::of_bytes(b"policy set")),
        "decided by policy".into(),
        artifact_id(number, 4),
    ))
}
