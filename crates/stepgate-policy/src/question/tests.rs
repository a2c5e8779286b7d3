use std::collections::HashMap;
use std::sync::Arc;

use cedar_policy::Schema;
use proptest::prelude::*;
use serde_json::json;
use stepgate_core::action::{Action, InvalidArgs};
use stepgate_core::call::ServerCall;
use stepgate_core::decimal::Decimal;
use stepgate_core::digest::Digest;
use stepgate_core::facts::FactNames;
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::Flow;
use stepgate_core::tool::{Contract, Delivery, Mode, Standing, Tool, ToolName};

use super::*;
use crate::budget_file;
use crate::compile::index;
use crate::directory::{self, SourceFile};
use crate::literal::Known;
use crate::schema::of_tools;
use crate::set::Entry;
use crate::shape::{self, ToolShape};

/// A tool without required arguments, so that any unseen argument still conforms to the schema.
fn tool() -> ToolShape {
    let input_schema = json!({ "type": "object", "properties": {
        "text": { "type": "string" },
        "level": { "type": "number" },
        "flag": { "type": "boolean" },
        "list": { "type": "array", "items": { "type": "integer" } },
        "lists": { "type": "array", "items": { "type": "array", "items": { "type": "string" } } },
        "nested": { "type": "object", "properties": {
            "text": { "type": ["string", "null"] },
            "items": { "type": "array", "items": {
                "type": "object", "properties": { "flag": { "type": "boolean" } },
            } },
        } },
    } });
    ToolShape {
        name: ToolName::parse("s.t").unwrap(),
        mode: Mode::Draft,
        input_schema,
        redacted: vec![],
        flow: Flow::default(),
        definition_digest: Digest::ZERO,
        is_accepted: true,
    }
}

/// Two budgets about the tool: one counts its calls, one adds up an argument that many calls do not have.
fn budgets(tools: &[ToolShape]) -> Vec<Budget> {
    let text = "[budget.calls]\nlimit = 3\nper = 'all'\nwindow = 'day'\n\
                [budget.levels]\nargument = 'level'\nlimit = '0.5'\nper = 'tool'\nwindow = 'ever'";
    let file = SourceFile {
        name: "budgets.toml".into(),
        shown: "budgets.toml".into(),
        kind: directory::Kind::Budgets,
        text: text.into(),
    };
    let mut findings = Vec::new();
    let budgets =
        budget_file::read(&[file], &Known::new(tools, &FactNames::default()), &mut findings);
    assert_eq!((budgets.len(), findings), (2, vec![]));
    budgets
}

type Prepared = (Schema, HashMap<String, Entry>, Vec<Budget>);

fn prepared() -> Prepared {
    let tools = [tool()];
    let shapes = vec![shape::of_args(&tools[0].input_schema)];
    let budgets = budgets(&tools);
    let schema = of_tools(&tools, &shapes, &budgets).unwrap();
    let entries = index(&[], &tools, shapes).unwrap();
    (schema, entries, budgets)
}

/// Every fact there is.
fn facts() -> Facts {
    let labels = || BTreeSet::from([Label::parse("untrusted").unwrap()]);
    let origins = || BTreeSet::from([Origin::parse("user").unwrap()]);
    Facts {
        addresses: origins(),
        as_of: None,
        groups: ["staff".to_owned()].into(),
        labels: labels(),
        opened: Some(["office".to_owned()].into()),
        reads: labels(),
        schedule: ["office".to_owned()].into(),
        sends: labels(),
        steps: Some(3),
        targets: origins(),
        used: [("calls".to_owned(), Decimal::ONE), ("levels".to_owned(), Decimal::MAX)].into(),
    }
}

/// Asserts that Cedar accepts the questions under the schema.
fn assert_kept(call: &Call) {
    thread_local!(static PREPARED: Prepared = prepared());
    PREPARED.with(|(schema, entries, budgets)| {
        let principal_id = PrincipalId::parse("agent").unwrap();
        let Entry { action, subject, .. } = &entries[call.name()];
        let facts = facts();
        let needs = FactNeeds { origins: true, opened: true, steps: true };
        let (targets, origins) = (&facts.targets, &BTreeSet::new());
        let beside = Beside { facts: &facts, targets, needs, origins, budgets };
        let who = Who::of(&principal_id, &facts.groups);
        let asked = asked(action, subject, &who, call, beside);
        let Asked { questions, .. } = asked.unwrap();
        assert!(!questions.is_empty());
        for CedarQuestion { request, entities, resource } in questions {
            let context = request.context().unwrap().clone();
            let principal = request.principal().unwrap().clone();
            let action = request.action().unwrap().clone();
            Request::new(principal, action, resource, context, Some(schema)).unwrap();
            Entities::from_entities(entities.iter().cloned(), Some(schema)).unwrap();
        }
    });
}

fn server_call(args: Map<String, Value>) -> Call {
    struct Anything;
    impl Contract for Anything {
        fn check(&self, _: &Map<String, Value>) -> Result<(), InvalidArgs> {
            Ok(())
        }
    }
    let ToolShape { name, mode, .. } = tool();
    let tool = Tool {
        name,
        mode,
        delivery: Delivery::Ask,
        definition_digest: Digest::ZERO,
        standing: Standing::Accepted,
        redacted: vec![],
        erasable: Vec::new(),
        flow: Flow::default(),
        contract: Arc::new(Anything),
    };
    Call::Server(ServerCall { tool: Arc::new(tool), args })
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            any_args(inner).prop_map(Value::Object),
        ]
    })
}

fn any_args(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let names = ["text", "level", "flag", "list", "lists", "nested", "items", "other"];
    let member = (proptest::sample::select(names.to_vec()).prop_map(str::to_owned), value);
    proptest::collection::vec(member, 0..6).prop_map(|members| members.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_cedar_is_asked_about_a_tool_keeps_the_schema(args in any_args(any_value())) {
        assert_kept(&server_call(args));
    }
}

#[test]
fn what_cedar_is_asked_about_a_core_action_keeps_the_schema() {
    for action in Action::ALL {
        let args = match action {
            Action::Think => json!({}),
            Action::Finish => json!({ "response": "done" }),
            Action::ReadFile | Action::DeleteFile => json!({ "path": "/sandbox/a/b\"c.txt" }),
            Action::ListFiles => json!({ "path": "/sandbox/" }),
            Action::CreateDirectory => json!({ "path": "/sandbox/a/" }),
            Action::WriteFile => json!({ "path": "/sandbox/a.txt", "content": "x" }),
            Action::RenameFile => {
                json!({ "source": "/sandbox/a.txt", "destination": "/sandbox/b/c.txt" })
            }
        };
        assert_kept(&Call::Core(action.call(args.as_object().unwrap()).unwrap()));
    }
}
