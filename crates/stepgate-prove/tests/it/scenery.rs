//! A bank, a shop, mail, the web, music, notes and a vault; and a solver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use stepgate_core::approvers::Groups;
use stepgate_core::digest::Digest;
use stepgate_core::facts::FactNames;
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::{Flow, Label};
use stepgate_core::tool::{Mode, ToolName};
use stepgate_policy::symbolic::World;
use stepgate_policy::{Nameable, PolicySet, ToolShape};
use stepgate_prove::{Claim, ClaimKind, Prover, Solver, SolverSettings, Who, on_thread};

pub(crate) struct Scenery {
    pub(crate) tools: Vec<ToolShape>,
    pub(crate) names: FactNames,
    pub(crate) groups: Groups,
}

impl Scenery {
    /// A world with the budgets of these sets.
    pub(crate) fn world(&self, sets: &[&PolicySet]) -> World<'_> {
        let nameable = Nameable { tools: &self.tools, facts: &self.names };
        let sandbox = Flow { reads: labels(&["personal"]), ..Flow::default() };
        let contract = stepgate_exec::servers::contract;
        World::new(nameable, &self.groups, sandbox, sets, contract).unwrap()
    }

    pub(crate) fn set(&self, policies: &str) -> PolicySet {
        self.set_with(policies, "")
    }

    /// Policies and budgets.
    pub(crate) fn set_with(&self, policies: &str, budgets: &str) -> PolicySet {
        let nameable = Nameable { tools: &self.tools, facts: &self.names };
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("p.cedar"), policies).unwrap();
        std::fs::write(directory.path().join("budgets.toml"), budgets).unwrap();
        match PolicySet::load(directory.path(), nameable) {
            Ok(set) => set,
            Err(error) => panic!("{error}\n{policies}"),
        }
    }
}

/// The solver that is installed: what `CVC5` names, or `cvc5`.
pub(crate) fn settings() -> SolverSettings {
    let program = std::env::var_os("CVC5").unwrap_or_else(|| "cvc5".into());
    SolverSettings { program: program.into(), timeout: Duration::from_secs(60) }
}

/// What a proof with the installed solver gives.
pub(crate) fn with_prover<T: Send>(proof: impl AsyncFnOnce(&mut Prover) -> T + Send) -> T {
    let proven = on_thread(async || {
        let solver = Solver::start(settings()).await.unwrap_or_else(|error| panic!("{error}"));
        proof(&mut Prover::new(solver)).await
    });
    proven.unwrap()
}

pub(crate) fn labels(names: &[&str]) -> BTreeSet<Label> {
    names.iter().map(|name| Label::parse(name).unwrap()).collect()
}

/// A claim about all calls of these tools.
pub(crate) fn claim(kind: ClaimKind, tools: &[&str]) -> Claim {
    Claim {
        kind,
        who: Who::default(),
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        servers: vec![],
        args: vec![],
        when: None,
    }
}

pub(crate) fn scenery() -> Scenery {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let member = |names: &[&str]| -> BTreeSet<PrincipalId> {
        names.iter().map(|name| PrincipalId::parse(name).unwrap()).collect()
    };
    Scenery {
        tools: tools(),
        names: FactNames {
            directories: BTreeSet::new(),
            groups: texts(&["admins", "finance", "interns"]),
            labels: labels(&["untrusted", "secret", "personal", "egress", "money"]),
            windows: texts(&["office"]),
        },
        groups: Groups::new(BTreeMap::from([
            ("admins".to_owned(), member(&["root"])),
            ("finance".to_owned(), member(&["ann", "bob"])),
            ("interns".to_owned(), member(&["ivy"])),
        ])),
    }
}

#[expect(clippy::too_many_lines, reason = "a table: one tool after the other")]
fn tools() -> Vec<ToolShape> {
    let object = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let mut transfer = shape(
        "bank.transfer",
        Mode::ExecuteGated,
        object(
            json!({
                "amount": { "type": "number", "minimum": 0, "maximum": 1_000_000 },
                "to": { "type": "string", "minLength": 1 },
                "urgent": { "type": "boolean" },
                "options": {
                    "type": "object",
                    "properties": { "priority": { "type": "integer" } },
                },
            }),
            json!(["amount", "to"]),
        ),
    );
    transfer.flow.sends = labels(&["money"]);
    let mut send = shape(
        "mail.send",
        Mode::ExecuteGated,
        object(
            json!({
                "to": { "type": "array", "items": { "type": "string" } },
                "subject": { "type": ["string", "null"] },
            }),
            json!(["to"]),
        ),
    );
    send.flow.sends = labels(&["egress"]);
    let mut fetch = shape(
        "web.fetch",
        Mode::ReadOnly,
        object(
            json!({ "url": { "type": "string", "format": "uri" }, "method": { "enum": ["GET", "POST"], "default": "GET" } }),
            json!(["url"]),
        ),
    );
    fetch.flow =
        Flow { reads: labels(&["untrusted"]), sends: labels(&["egress"]), ..Flow::default() };
    let mut note = shape(
        "notes.add",
        Mode::Draft,
        object(json!({ "text": { "type": "string" } }), json!(["text"])),
    );
    note.flow.memory = Some("notes".into());
    let mut vault = shape(
        "vault.store",
        Mode::ExecuteGated,
        object(
            json!({ "secret": { "type": "string" }, "name": { "type": "string" }, "extra": {} }),
            json!(["secret", "name"]),
        ),
    );
    vault.redacted = vec!["secret".into()];
    vec![
        transfer,
        shape("bank.balance", Mode::ReadOnly, object(json!({}), json!([]))),
        send,
        fetch,
        shape(
            "music.set_volume",
            Mode::ExecuteGated,
            object(
                json!({ "volume": { "type": "integer", "minimum": 0, "maximum": 100 }, "room": { "enum": ["kitchen", "hall"] } }),
                json!(["volume"]),
            ),
        ),
        shape(
            "shop.order",
            Mode::ExecuteGated,
            object(
                json!({
                    "price": { "type": "integer" },
                    "quantity": { "type": "integer" },
                    "sku": { "type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$", "examples": ["ABC-1234"] },
                }),
                json!(["price", "quantity", "sku"]),
            ),
        ),
        note,
        vault,
    ]
}

/// What policies know of a tool.
pub(crate) fn shape(name: &str, mode: Mode, input_schema: Value) -> ToolShape {
    ToolShape {
        name: ToolName::parse(name).unwrap(),
        mode,
        definition_digest: Digest::of(&input_schema),
        input_schema,
        redacted: vec![],
        flow: Flow::default(),
        is_accepted: true,
    }
}
