//! VALIDATE_SCHEMA: exactly five fields, and a version that this runtime speaks.

use std::sync::Arc;

use tracing::instrument;

use super::p2_parse::ProposalObject;
use super::p8_record::Trail;
use crate::failure::Failure;
use crate::gate::Gate;
use crate::ids::ProposalId;
use crate::journal::StateError;
use crate::json::{Map, Value, strict};
use crate::limits::Limits;
use crate::ports::{OriginalPayload, PolicyErasable};
use crate::run::Payload;
use crate::spans::PHASE;
use crate::tool::{Tool, ToolName, is_written_as};

/// The versions that this runtime speaks.
pub(super) const SUPPORTED_VERSION_RANGE: &str = "1.x.x";
const SUPPORTED_MAJOR: &str = "1";
/// Most digits of each number of a version.
const VERSION_DIGITS_MAX: usize = 9;
const FIELDS: [&str; 5] = ["schema_version", "id", "reasoning", "action", "args"];

/// A valid proposal. Reasoning is left out: it is in the trail.
pub(super) struct ValidatedProposal {
    pub(super) id: ProposalId,
    pub(super) action: String,
    pub(super) args: Map<String, Value>,
    /// What is redacted of them.
    pub(super) redacted: Option<Redacted>,
}

/// Arguments of which some are redacted or erasable.
pub(super) struct Redacted {
    /// The tool, with the arguments that policies make erasable.
    pub(super) tool: Arc<Tool>,
    /// The arguments as they are stored.
    pub(super) written: Map<String, Value>,
}

/// Spec 000, VALIDATE_SCHEMA: "MUST reject any unknown top-level fields".
#[instrument(target = PHASE, name = "VALIDATE_SCHEMA", level = "debug", skip_all)]
pub(super) fn validate_schema(
    gate: &Gate,
    trail: &mut Trail,
    object: ProposalObject,
) -> Result<ValidatedProposal, Failure> {
    let fields = fields(trail, object)?;
    // Before any check can refuse the proposal: a refused proposal is stored too.
    let redacted = redacted(gate, &fields);
    if let Some((Redacted { written, .. }, erasable)) = &redacted {
        trail.seal(&fields, written, erasable.as_ref());
    }
    proposal(fields, redacted.map(|(redacted, _)| redacted))
}

/// A proposal that was accepted before, from its stored form.
pub(super) fn recall_schema(
    trail: &mut Trail,
    object: ProposalObject,
) -> Result<ValidatedProposal, Failure> {
    proposal(fields(trail, object)?, None)
}

fn fields(trail: &mut Trail, object: ProposalObject) -> Result<Map<String, Value>, Failure> {
    let Value::Object(fields) = object.0 else {
        return Err(Failure::InvalidProposal("not an object".into()));
    };
    trail.note_proposal(Readable::of(&fields));
    Ok(fields)
}

/// The arguments with redaction applied, and those that the store keeps apart; none where nothing is redacted. The
/// configuration of the tool says which, and policies, by what they say about every call of it.
fn redacted(
    gate: &Gate,
    fields: &Map<String, Value>,
) -> Option<(Redacted, Option<Map<String, Value>>)> {
    let name = ToolName::parse(fields.get("action")?.as_str()?).ok()?;
    let args = fields.get("args")?.as_object()?;
    let tool = gate.tools.tool(&name)?;
    let tool = match gate.policy.erasable(&tool) {
        PolicyErasable::Named(names) if names.is_empty() => tool,
        PolicyErasable::Named(names) => Arc::new(tool.erasing(&names)),
        PolicyErasable::Every => Arc::new(tool.erasing(args.keys())),
    };
    let written = tool.redact(args);
    let erasable = tool.erasable_of(args);
    (written != *args).then(|| (Redacted { tool, written }, erasable))
}

fn proposal(
    mut fields: Map<String, Value>,
    redacted: Option<Redacted>,
) -> Result<ValidatedProposal, Failure> {
    let readable = Readable::of(&fields);
    check_version(fields.get("schema_version"))?;
    if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        let unknown: String = unknown.chars().take(64).collect();
        return Err(Failure::InvalidProposal(format!("{unknown}: unknown field")));
    }
    let id = readable.id.ok_or_else(|| broken("id", "not a UUID with hyphens"))?;
    match fields.get("reasoning") {
        Some(Value::String(text)) if !text.is_empty() => {}
        Some(Value::String(_)) => return Err(broken("reasoning", "empty")),
        Some(_) => return Err(broken("reasoning", "not a string")),
        None => return Err(broken("reasoning", "missing")),
    }
    let action = match (readable.action, fields.get("action")) {
        (Some(action), _) => action,
        (None, Some(Value::String(_))) => {
            let rule = format!("longer than {} bytes", Limits::ACTION_BYTES_MAX);
            return Err(broken("action", &rule));
        }
        (None, _) => return Err(broken("action", "missing or not a string")),
    };
    match fields.remove("args") {
        Some(Value::Object(args)) => Ok(ValidatedProposal { id, action, args, redacted }),
        Some(_) => Err(broken("args", "not an object")),
        None => Err(broken("args", "missing")),
    }
}

/// The fields that could be read from a payload, whether or not it is a valid proposal.
#[derive(Default)]
pub(crate) struct Readable {
    pub(crate) schema_version: Option<String>,
    pub(crate) id: Option<ProposalId>,
    pub(crate) reasoning: Option<String>,
    pub(crate) action: Option<String>,
    pub(crate) args: Option<Value>,
}

impl Readable {
    /// The fields that can be read from stored bytes, whatever the limits were at that time.
    pub(crate) fn of_payload(bytes: &[u8]) -> Option<Self> {
        match strict::parse(bytes, strict::DEPTH_MAX, strict::Integers::Exact) {
            Ok(Value::Object(mut fields)) => {
                let args = fields.remove("args").filter(Value::is_object);
                Some(Self { args, ..Self::of(&fields) })
            }
            Ok(_) | Err(_) => None,
        }
    }

    /// The arguments of the original payload, which is stored apart where the row has some of them as
    /// digests. An error where it does not match what the row has.
    pub(crate) fn unsealed(
        sealed: Option<&OriginalPayload>,
        payload: &Payload,
        written: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, StateError> {
        let is_redacted = u64::try_from(payload.bytes.len()).ok() != Some(payload.length);
        let args = match sealed {
            None => None,
            Some(OriginalPayload::Known(bytes)) => {
                Some(Self::of_payload(bytes).and_then(|readable| readable.args))
            }
            Some(OriginalPayload::Locked { key }) => {
                let why = format!(
                    "the original payload is encrypted under the key {key}, which this process does not \
                     have: see store.payload_key_file"
                );
                return Err(StateError::checksum(why));
            }
        };
        match (is_redacted, args) {
            (false, None) => Ok(None),
            (true, Some(Some(Value::Object(args)))) if is_written_as(&args, written) => {
                Ok(Some(args))
            }
            (true, None) => Err(StateError::checksum("the sealed payload is gone")),
            (true | false, Some(_)) => {
                Err(StateError::checksum("the sealed payload is not what was asked"))
            }
        }
    }

    fn of(fields: &Map<String, Value>) -> Self {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        Self {
            schema_version: text("schema_version").map(str::to_owned),
            id: text("id").and_then(|id| ProposalId::parse(id).ok()),
            reasoning: text("reasoning").map(str::to_owned),
            action: text("action").filter(|name| is_name(name)).map(str::to_owned),
            args: fields.get("args").filter(|args| args.is_object()).cloned(),
        }
    }
}

/// Whether a text is short enough to name an action: rows, events and answers repeat it.
fn is_name(action: &str) -> bool {
    action.len() <= Limits::ACTION_BYTES_MAX
}

fn broken(field: &str, rule: &str) -> Failure {
    Failure::InvalidProposal(format!("{field}: {rule}"))
}

/// The version is checked first (decision 3), and never repaired.
///
/// Spec 001: "Silent fallback between schema versions is not permitted".
fn check_version(version: Option<&Value>) -> Result<(), Failure> {
    let Some(version) = version else {
        return Err(broken("schema_version", "missing"));
    };
    let Value::String(version) = version else {
        return Err(broken("schema_version", "not a string"));
    };
    let is_number = |group: &str| {
        (1..=VERSION_DIGITS_MAX).contains(&group.len()) && group.bytes().all(|b| b.is_ascii_digit())
    };
    let groups: Vec<&str> = version.splitn(4, '.').collect();
    match groups.as_slice() {
        [major, minor, patch] if [major, minor, patch].iter().all(|group| is_number(group)) => {
            match *major {
                SUPPORTED_MAJOR => Ok(()),
                // `01` is not another MAJOR; it is not a valid MAJOR.
                _ if major.parse() == SUPPORTED_MAJOR.parse::<u32>() => {
                    Err(broken("schema_version", "a MAJOR with leading zeros"))
                }
                _ => Err(Failure::SchemaVersionIncompatible(version.clone())),
            }
        }
        _ => Err(broken("schema_version", "not three groups of at most 9 digits")),
    }
}

#[cfg(test)]
mod tests;
