//! The four artifacts of a trace, and their sealed form: canonical text with its digest in front.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::action;
use crate::digest::Digest;
use crate::facts::Facts;
use crate::failure::ExecutionFailure;
use crate::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use crate::json::{Value, canonical, strict};
use crate::machine::Move;
use crate::spelled::spelled;
use crate::time::Timestamp;

use super::StateError;

spelled! {
    /// Which of the four an artifact is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "ArtifactKind")]
    #[serde(rename_all = "snake_case")]
    pub enum Kind {
        /// What the agent asked for.
        ActionRequest = "action_request",
        /// What was decided.
        SupervisorDecision = "supervisor_decision",
        /// What is sent to the executor.
        ToolCall = "tool_call",
        /// The result of the call.
        ToolEffect = "tool_effect",
    }
}

/// The fields that every artifact begins with.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The artifact's own id.
    pub id: ArtifactId,
    /// The trace it belongs to.
    pub trace_id: RunId,
    /// The session it belongs to.
    pub plan_id: SessionId,
    /// When it was made.
    pub ts: Timestamp,
}

/// How much an action can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RiskLevel {
    /// Changes nothing.
    Read,
    /// Changes something.
    Write,
    /// Changes something that a person should see first.
    HighRisk,
}

/// Whether a call changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolClass {
    /// Changes nothing.
    Read,
    /// Changes something: it needs an idempotency key.
    Write,
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DecisionVerdict")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// It may be called.
    Approve,
    /// It may not.
    Deny,
    /// A person decides. Stored with the approval, never in the journal.
    NeedsApproval,
}

/// How an effect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EffectStatus {
    /// It was done.
    Success,
    /// The executor could not do it.
    Failure,
    /// It was refused after it had been authorized.
    Denied,
    /// It may have been done, but the answer is not usable.
    Error,
}

/// Something that an action touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// The resource's name.
    pub id: String,
    /// What kind of thing it is.
    pub kind: String,
}

/// A tool and its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Invocation {
    /// The arguments, an object.
    #[serde(deserialize_with = "strict::value")]
    pub args: Value,
    /// The tool.
    pub tool_name: String,
    /// Its server; `core` for core actions.
    pub tool_server: String,
}

impl Invocation {
    /// The name in a proposal: a tool's has its server in front.
    pub fn action(&self) -> String {
        action::proposed_name(&self.tool_server, &self.tool_name)
    }
}

/// The fields stand in canonical order, so that writing them needs no sorting: those before `plan_id`, those
/// between it and `schema_id`, and those between `schema_version` and `trace_id`.
macro_rules! artifact {
    (
        $(#[$doc:meta])*
        $name:ident, $schema_id:literal, $kind:expr, $id:ident,
        { $($(#[$a_meta:meta])* $a:ident: $a_type:ty,)* }
        plan_id
        { $($(#[$b_meta:meta])* $b:ident: $b_type:ty,)* }
        schema
        { $($(#[$c_meta:meta])* $c:ident: $c_type:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            #[serde(rename = "_digest_alg")]
            digest_alg: String,
            $($(#[$a_meta])* pub $a: $a_type,)*
            plan_id: SessionId,
            $($(#[$b_meta])* pub $b: $b_type,)*
            schema_id: String,
            schema_version: String,
            $($(#[$c_meta])* pub $c: $c_type,)*
            trace_id: RunId,
            ts: Timestamp,
        }

        impl $name {
            /// Makes the artifact with its head; every other field is named by the caller.
            #[allow(clippy::too_many_arguments, reason = "one argument for each field")]
            #[allow(clippy::allow_attributes, reason = "two of the four have few fields")]
            pub fn new(
                head: Head,
                $($a: $a_type,)*
                $($b: $b_type,)*
                $($c: $c_type,)*
            ) -> Self {
                Self {
                    digest_alg: "sha256".into(),
                    plan_id: head.plan_id,
                    schema_id: $schema_id.into(),
                    schema_version: "tga.v1".into(),
                    trace_id: head.trace_id,
                    ts: head.ts,
                    $($a,)*
                    $($b,)*
                    $($c,)*
                }
            }

            fn head(&self) -> Head {
                Head { id: self.$id, trace_id: self.trace_id, plan_id: self.plan_id, ts: self.ts }
            }

            /// When it was made.
            pub fn ts(&self) -> Timestamp {
                self.ts
            }

            fn has_its_constants(&self) -> bool {
                self.digest_alg == "sha256"
                    && self.schema_id == $schema_id
                    && self.schema_version == "tga.v1"
            }

            fn seal(&self) -> Sealed {
                Sealed::of($kind, self.head(), self)
            }
        }
    };
}

artifact! {
    /// What the agent asked for, as it asked for it.
    ActionRequest, "talos.tga.action_request", Kind::ActionRequest, action_request_id,
    {
        /// This artifact.
        action_request_id: ArtifactId,
        /// The agent.
        agent_id: PrincipalId,
        /// The key under which it acts at most once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<IdempotencyKey>,
        /// A fixed text per action, never the agent's reasoning.
        intent: String,
        /// What must be provable.
        meta: RequestMeta,
    }
    plan_id
    {
        /// The tool and arguments as asked.
        proposal: Invocation,
        /// What it touches.
        resources: Vec<Resource>,
        /// How much it can change.
        risk_level: RiskLevel,
    }
    schema
    {}
}

/// What an action_request proves beside its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestMeta {
    /// Digest of action and args as proposed.
    pub asked_digest: Digest,
    /// The authenticated principal.
    pub principal_id: PrincipalId,
}

artifact! {
    /// What was decided, by which rules.
    SupervisorDecision, "talos.tga.supervisor_decision", Kind::SupervisorDecision,
    supervisor_decision_id,
    {
        /// Digest of the request that was decided on.
        action_request_digest: Digest,
        /// The request that was decided on.
        action_request_id: ArtifactId,
        /// The decision.
        decision: Verdict,
        /// What must be provable.
        meta: DecisionMeta,
    }
    plan_id
    {
        /// Digest of the policy set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy_hash: Option<Digest>,
        /// Why, in words.
        rationale: String,
    }
    schema
    {
        /// This artifact.
        supervisor_decision_id: ArtifactId,
    }
}

/// What a supervisor_decision proves beside its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionMeta {
    /// The approval that a person decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver_id: Option<PrincipalId>,
    /// Everyone who approved, where policies require certain people or more than one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub approver_ids: BTreeSet<PrincipalId>,
    /// The cap that tightened the arguments.
    #[serde(default, deserialize_with = "strict::some_value")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Value>,
    /// The declared defaults that policy saw for omitted arguments, by JSON Pointer.
    #[serde(default, deserialize_with = "strict::some_value")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Value>,
    /// What policy knew beside the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Box<Facts>>,
    /// The grant by which an operator approved the call in advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<ArtifactId>,
    /// Which use of the grant it is, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_use: Option<u64>,
    /// Digest of the NEEDS_APPROVAL decision that came before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_approval_digest: Option<Digest>,
    /// Digest of the operator's note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note_digest: Option<Digest>,
    /// The policies that decided.
    pub policies: Vec<String>,
}

impl DecisionMeta {
    /// The caps, by argument.
    pub(crate) fn caps(&self) -> BTreeMap<String, i64> {
        let caps = self.cap.as_ref().and_then(Value::as_object).into_iter().flatten();
        caps.filter_map(|(name, max)| Some((name.clone(), max.as_i64()?))).collect()
    }
}

artifact! {
    /// What is sent to the executor.
    ToolCall, "talos.tga.tool_call", Kind::ToolCall, tool_call_id,
    {
        /// The tool and the arguments as decided.
        call: Invocation,
        /// The key under which it acts at most once.
        idempotency_key: IdempotencyKey,
        /// What must be provable.
        meta: CallMeta,
    }
    plan_id
    {}
    schema
    {
        /// Digest of the decision that allows it.
        supervisor_decision_digest: Digest,
        /// The decision that allows it.
        supervisor_decision_id: ArtifactId,
        /// This artifact.
        tool_call_id: ArtifactId,
        /// Whether it changes anything.
        tool_class: ToolClass,
    }
}

/// What a tool_call proves beside its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallMeta {
    /// The executor that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor_id: Option<String>,
    /// The state before the call; recovery compares with it.
    #[serde(default, deserialize_with = "strict::some_value")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_state: Option<Value>,
    /// Digest of the tool's definition as pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_definition_digest: Option<Digest>,
}

artifact! {
    /// The result of the call.
    ToolEffect, "talos.tga.tool_effect", Kind::ToolEffect, tool_effect_id,
    {
        /// What must be provable.
        meta: EffectMeta,
        /// How it ended.
        outcome: EffectOutcome,
    }
    plan_id
    {}
    schema
    {
        /// Digest of the call.
        tool_call_digest: Digest,
        /// The call.
        tool_call_id: ArtifactId,
        /// This artifact.
        tool_effect_id: ArtifactId,
    }
}

/// What a tool_effect proves beside its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EffectMeta {
    /// How often the effect can have happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// Who settled a call in doubt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<PrincipalId>,
    /// SHA-256 of the stored result bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_digest: Option<Digest>,
}

impl ToolEffect {
    /// Whether the call certainly did not happen: it was refused, it was not sent because its server could not be
    /// reached, or a person said that it was not done. A tool that answers with an error may have acted.
    pub(crate) fn did_not_happen(&self) -> bool {
        let code = self.outcome.error.as_ref().map(|error| error.code.as_str());
        match self.outcome.status {
            EffectStatus::Denied => true,
            EffectStatus::Failure => {
                self.meta.resolved_by.is_some()
                    || code == Some(ExecutionFailure::Unavailable.code())
            }
            EffectStatus::Success | EffectStatus::Error => false,
        }
    }
}

/// How often an effect can have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// Once, also across crashes.
    ExactlyOnce,
    /// Once or more: the executor cannot tell.
    AtLeastOnce,
    /// Once or not at all: only a person can send it again.
    AtMostOnce,
}

/// How an effect ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EffectOutcome {
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<EffectError>,
    /// SUCCESS, or how it failed.
    pub status: EffectStatus,
}

/// Why an effect failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EffectError {
    /// The finer code.
    pub code: String,
    /// The fixed message of the code.
    pub message: String,
}

/// Any of the four, read back from its text.
#[derive(Clone, Debug, PartialEq)]
pub enum Artifact {
    /// What the agent asked for.
    ActionRequest(ActionRequest),
    /// What was decided.
    SupervisorDecision(SupervisorDecision),
    /// What is sent to the executor.
    ToolCall(ToolCall),
    /// The result of the call.
    ToolEffect(ToolEffect),
}

impl Artifact {
    /// Reads an artifact of this kind.
    fn read<'de, D: Deserializer<'de>>(kind: Kind, body: D) -> Result<Self, D::Error> {
        match kind {
            Kind::ActionRequest => ActionRequest::deserialize(body).map(Self::ActionRequest),
            Kind::SupervisorDecision => {
                SupervisorDecision::deserialize(body).map(Self::SupervisorDecision)
            }
            Kind::ToolCall => ToolCall::deserialize(body).map(Self::ToolCall),
            Kind::ToolEffect => ToolEffect::deserialize(body).map(Self::ToolEffect),
        }
    }

    fn has_its_constants(&self) -> bool {
        match self {
            Self::ActionRequest(artifact) => artifact.has_its_constants(),
            Self::SupervisorDecision(artifact) => artifact.has_its_constants(),
            Self::ToolCall(artifact) => artifact.has_its_constants(),
            Self::ToolEffect(artifact) => artifact.has_its_constants(),
        }
    }

    pub(super) fn head(&self) -> Head {
        match self {
            Self::ActionRequest(artifact) => artifact.head(),
            Self::SupervisorDecision(artifact) => artifact.head(),
            Self::ToolCall(artifact) => artifact.head(),
            Self::ToolEffect(artifact) => artifact.head(),
        }
    }

    /// The canonical text, without `_digest`.
    fn canonical(&self) -> Vec<u8> {
        match self {
            Self::ActionRequest(artifact) => canonical::bytes_of(artifact),
            Self::SupervisorDecision(artifact) => canonical::bytes_of(artifact),
            Self::ToolCall(artifact) => canonical::bytes_of(artifact),
            Self::ToolEffect(artifact) => canonical::bytes_of(artifact),
        }
    }

    /// Seals the artifact: canonical text and digest.
    pub fn seal(&self) -> Sealed {
        match self {
            Self::ActionRequest(artifact) => artifact.seal(),
            Self::SupervisorDecision(artifact) => artifact.seal(),
            Self::ToolCall(artifact) => artifact.seal(),
            Self::ToolEffect(artifact) => artifact.seal(),
        }
    }

    /// The call that the artifact is, or is the effect of.
    pub fn tool_call_id(&self) -> Option<ArtifactId> {
        match self {
            Self::ToolCall(call) => Some(call.tool_call_id),
            Self::ToolEffect(effect) => Some(effect.tool_call_id),
            Self::ActionRequest(_) | Self::SupervisorDecision(_) => None,
        }
    }

    /// Whether an entry with this call and key can be about the artifact.
    pub(super) fn is_called_by(
        &self,
        tool_call_id: Option<ArtifactId>,
        key: Option<&IdempotencyKey>,
    ) -> bool {
        let has_its_key = match self {
            Self::ToolCall(call) => key == Some(&call.idempotency_key),
            Self::ToolEffect(_) => key.is_some(),
            Self::ActionRequest(_) | Self::SupervisorDecision(_) => key.is_none(),
        };
        tool_call_id == self.tool_call_id() && has_its_key
    }

    /// The trace and session that the artifact names.
    pub fn place(&self) -> (RunId, SessionId) {
        let head = self.head();
        (head.trace_id, head.plan_id)
    }

    /// The move that appending this artifact makes, or none: a request opens the journal, and a
    /// NEEDS_APPROVAL decision is never appended.
    pub fn as_move(&self) -> Option<Move> {
        match self {
            Self::ActionRequest(_) => None,
            Self::SupervisorDecision(decision) => match decision.decision {
                Verdict::Approve => Some(Move::Approve),
                Verdict::Deny => Some(Move::Deny),
                Verdict::NeedsApproval => None,
            },
            Self::ToolCall(_) => Some(Move::Call),
            Self::ToolEffect(effect) => match effect.outcome.status {
                EffectStatus::Success => Some(Move::Succeed),
                EffectStatus::Failure | EffectStatus::Denied | EffectStatus::Error => {
                    Some(Move::Fail)
                }
            },
        }
    }
}

/// An artifact as it is stored: its canonical text with the digest as the first member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Which of the four.
    pub kind: Kind,
    /// Its id.
    pub id: ArtifactId,
    /// When it was made.
    pub ts: Timestamp,
    /// SHA-256 of the canonical text without `_digest`.
    pub digest: Digest,
    /// The canonical text.
    pub text: String,
}

impl Sealed {
    fn of<T: Serialize>(kind: Kind, head: Head, artifact: &T) -> Self {
        let body = canonical::text_of(artifact);
        let digest = Digest::of_bytes(body.as_bytes());
        // `_digest` sorts before every other name, so the sealed text is canonical as well.
        let members = body.strip_prefix('{').unwrap_or(&body);
        let text = format!("{{\"_digest\":\"{digest}\",{members}");
        Self { kind, id: head.id, ts: head.ts, digest, text }
    }

    /// Reads a stored text back and proves it: canonical, whole, and with the digest that it names.
    pub fn open(kind: Kind, text: &str) -> Result<(Self, Artifact), StateError> {
        let (digest, artifact) = Self::read(kind, text)?;
        let Head { id, ts, .. } = artifact.head();
        Ok((Self { kind, id, ts, digest, text: text.to_owned() }, artifact))
    }

    /// Like [`Sealed::open`], without a copy of the text.
    pub(super) fn read(kind: Kind, text: &str) -> Result<(Digest, Artifact), StateError> {
        match Self::read_canonical(kind, text) {
            Some(read) => Ok(read),
            None => Self::examine(kind, text),
        }
    }

    /// The fast path: the parsed artifact's canonical form is the text without `_digest`, byte for byte. So
    /// the text is canonical and complete, its digest is that of the bytes, and it must be the named one.
    /// This parses the text once instead of three times.
    fn read_canonical(kind: Kind, text: &str) -> Option<(Digest, Artifact)> {
        let (named, members) = text.strip_prefix("{\"_digest\":\"")?.split_once("\",")?;
        let body = format!("{{{members}");
        let artifact = Artifact::read(kind, &mut serde_json::Deserializer::from_str(&body)).ok()?;
        let digest = Digest::of_bytes(body.as_bytes());
        let is_whole = artifact.has_its_constants()
            && artifact.canonical() == body.as_bytes()
            && named.parse() == Ok(digest);
        is_whole.then_some((digest, artifact))
    }

    /// The slow path: checks step by step, to report what is wrong with a text.
    fn examine(kind: Kind, text: &str) -> Result<(Digest, Artifact), StateError> {
        let mismatch = |why: &str| StateError::checksum(format!("{} {why}", kind.as_str()));
        let value =
            strict::stored(text).map_err(|refusal| mismatch(&format!("is not JSON: {refusal}")))?;
        if canonical::text_of(&value) != text {
            return Err(mismatch("is not in canonical form"));
        }
        let Value::Object(mut members) = value else {
            return Err(mismatch("is not an object"));
        };
        let named = members.remove("_digest");
        let body = Value::Object(members);
        let digest = Digest::of(&body);
        if named != Some(Value::String(digest.to_string())) {
            return Err(mismatch("does not have the digest that it names"));
        }
        let artifact = Artifact::read(kind, body).map_err(|error| mismatch(&error.to_string()))?;
        if !artifact.has_its_constants() {
            return Err(mismatch("names another schema"));
        }
        Ok((digest, artifact))
    }
}
