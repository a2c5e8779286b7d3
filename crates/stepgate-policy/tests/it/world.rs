//! Directories of policies, tools and calls for the tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use stepgate_core::action::{Action, InvalidArgs};
use stepgate_core::call::{Call, ServerCall};
use stepgate_core::digest::Digest;
use stepgate_core::facts::Facts;
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::Flow;
use stepgate_core::ports::{Policy, PolicyDecision, PolicyRequest};
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};
use stepgate_policy::{LoadError, PolicySet, ToolShape, Verdict};
use tempfile::TempDir;

/// A directory with these files.
pub(crate) fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

/// A set of one file, for the tools of [`tools`].
pub(crate) fn load(policies: &str) -> Result<PolicySet, LoadError> {
    PolicySet::load(directory(&[("p.cedar", policies)]).path(), &tools())
}

/// A set of one file that must load.
pub(crate) fn set(policies: &str) -> PolicySet {
    match load(policies) {
        Ok(set) => set,
        Err(error) => panic!("{error}\n{policies}"),
    }
}

/// The errors of one file that must not load, with the directory taken away.
pub(crate) fn errors(policies: &str) -> Vec<String> {
    let directory = directory(&[("p.cedar", policies)]);
    errors_in(directory.path(), &tools())
}

/// The errors of a directory that must not load, with the directory taken away.
pub(crate) fn errors_in(directory: &Path, tools: &[ToolShape]) -> Vec<String> {
    let prefix = format!("{}", directory.display());
    let error = PolicySet::load(directory, tools).unwrap_err();
    let shorten = |text: String| text.replace(&prefix, "DIR");
    error.findings.iter().map(|finding| shorten(finding.to_string())).collect()
}

/// A music box that changes the world, a calendar that is looked at, a mailbox for drafts.
pub(crate) fn tools() -> Vec<ToolShape> {
    vec![
        shape("sonos.set_volume", Mode::ExecuteGated, music_schema()),
        shape(
            "calendar.get_agenda",
            Mode::ReadOnly,
            json!({ "type": "object", "properties": { "day": { "type": "string" } } }),
        ),
        shape(
            "mail.draft",
            Mode::Draft,
            json!({
                "type": "object",
                "properties": {
                    "to": { "type": "array", "items": { "type": "string" } },
                    "subject": { "type": ["string", "null"] },
                    "options": {
                        "type": "object",
                        "properties": {
                            "urgent": { "type": "boolean" },
                            "priority": { "type": "number" },
                        },
                        "required": ["urgent"],
                    },
                    "anything": {},
                },
                "required": ["to"],
            }),
        ),
    ]
}

fn music_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "volume": { "type": "integer" },
            "balance": { "type": "number" },
            "room": { "type": "string" },
        },
        "required": ["volume"],
    })
}

/// What policies know of a tool.
pub(crate) fn shape(name: &str, mode: Mode, input_schema: Value) -> ToolShape {
    let name = ToolName::parse(name).unwrap();
    let definition_digest = Digest::of(&input_schema);
    ToolShape {
        name,
        mode,
        input_schema,
        redacted: vec![],
        flow: Flow::default(),
        definition_digest,
        is_accepted: true,
    }
}

/// A call as a proposal makes it: a core action, or a tool of [`tools`].
pub(crate) fn call(name: &str, args: Value) -> Call {
    let Value::Object(args) = args else { panic!("not an object") };
    match Action::parse(name) {
        Some(action) => Call::Core(action.call(&args).unwrap()),
        None => {
            let shape = tools().into_iter().find(|tool| tool.name.as_str() == name).unwrap();
            server_call(&shape, args)
        }
    }
}

/// A call of a tool.
pub(crate) fn server_call(shape: &ToolShape, args: Map<String, Value>) -> Call {
    redacting_call(shape, args, &[])
}

/// A call of a tool some of whose arguments are journalled as digests.
pub(crate) fn redacting_call(
    shape: &ToolShape,
    args: Map<String, Value>,
    redacted: &[&str],
) -> Call {
    struct Anything;
    impl Contract for Anything {
        fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
            Ok(())
        }
    }
    let tool = Tool {
        name: shape.name.clone(),
        mode: shape.mode,
        delivery: Delivery::HonoursKey,
        definition_digest: shape.definition_digest,
        standing: Standing::Accepted,
        redacted: redacted.iter().map(|name| (*name).to_owned()).collect(),
        erasable: Vec::new(),
        flow: Flow::default(),
        contract: Arc::new(Anything),
    };
    Call::Server(ServerCall { tool: Arc::new(tool), args })
}

/// A principal.
pub(crate) fn principal(name: &str) -> PrincipalId {
    PrincipalId::parse(name).unwrap()
}

/// What a set decides on a call of the agent's.
pub(crate) fn decide(set: &dyn Policy, call: &Call) -> PolicyDecision {
    decide_for(set, "agent", call)
}

/// What a set decides on a call.
pub(crate) fn decide_for(set: &dyn Policy, name: &str, call: &Call) -> PolicyDecision {
    set.decide(PolicyRequest { principal_id: &principal(name), call, facts: &Facts::default() })
}

/// The answer and the policies that gave it.
pub(crate) fn brief(decision: &PolicyDecision) -> (Verdict, Vec<&str>) {
    let policies = decision.policies.iter().map(String::as_str).collect();
    (Verdict::of(decision), policies)
}

/// Asserts answers of one set: who, action, args, answer, and the policies that decided.
pub(crate) fn check(policies: &str, rows: &[(&str, &str, Value, Verdict, &[&str])]) {
    let set = set(policies);
    for (name, action, args, verdict, deciding) in rows {
        let decision = decide_for(&set, name, &call(action, args.clone()));
        assert_eq!(brief(&decision), (*verdict, deciding.to_vec()), "{name} {action} {args}");
        assert_eq!(decision.policy_hash, set.digest());
        // What was permitted once could be permitted.
        let could = set.prospect(&principal(name), &BTreeSet::new(), action).could_permit;
        assert!(could || *verdict == Verdict::Deny, "{name} {action}");
    }
}
