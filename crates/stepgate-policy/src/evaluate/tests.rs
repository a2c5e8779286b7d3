use std::collections::HashSet;

use cedar_policy::{
    AuthorizationError, Authorizer, Context, Decision, Entities, Entity, EntityUid, Request,
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::answer::{CedarAnswer, Verdict};
use crate::directory::{Kind, SourceFile};
use crate::rule::{self, Rule};

fn uid(text: &str) -> EntityUid {
    text.parse().unwrap()
}

/// A request of one of two principals, of whom the first is in a group.
fn question(principal: usize, tool: usize, level: i64, has_note: bool) -> CedarQuestion {
    let principals = [uid(r#"Principal::"ann""#), uid(r#"Principal::"ben""#)];
    let tools = [uid(r#"Tool::"s.one""#), uid(r#"Tool::"t.two""#)];
    let servers = [uid(r#"Server::"s""#), uid(r#"Server::"t""#)];
    let actions = [uid(r#"Action::"s.one""#), uid(r#"Action::"t.two""#)];
    let mut context = json!({
        "level": level,
        "amount": { "__extn": { "fn": "decimal", "arg": "12.5" } },
        "labels": [{ "__entity": { "type": "Label", "id": "secret" } }],
        "session": { "steps": level, "name": "a*b" },
    });
    if has_note {
        context["note"] = json!("paid");
    }
    let entities = Entities::from_entities(
        [
            Entity::new_no_attrs(principals[0].clone(), HashSet::from([uid(r#"Group::"staff""#)])),
            Entity::new_no_attrs(tools[tool].clone(), HashSet::from([servers[tool].clone()])),
            Entity::new_no_attrs(actions[tool].clone(), HashSet::from([uid(r#"Action::"draft""#)])),
        ],
        None,
    );
    let context = Context::from_json_value(context, None).unwrap();
    let request = Request::new(
        principals[principal].clone(),
        actions[tool].clone(),
        tools[tool].clone(),
        context,
        None,
    );
    CedarQuestion {
        request: request.unwrap(),
        entities: entities.unwrap(),
        resource: tools[tool].clone(),
    }
}

fn any_condition() -> impl Strategy<Value = String> {
    let leaf = proptest::sample::select(vec![
        "true",
        "false",
        "context.level > 3",
        "context.level * 4611686018427387904 > 0",
        "context.missing",
        "context.level",
        "context has note",
        "context.note == \"paid\"",
        "context.session has steps",
        "context has session.steps && context.session.steps <= 5",
        "context.session.name like \"a\\**\"",
        "context.amount.lessThan(decimal(\"12.6\"))",
        "context.labels.contains(Label::\"secret\")",
        "context.labels.containsAny([Label::\"secret\", Label::\"other\"])",
        "[1, 2].containsAll([context.level])",
        "principal in Group::\"staff\"",
        "resource in [Server::\"s\", Server::\"u\"]",
        "principal is Principal",
        "{ a: context.level }.a == 4",
        "Principal::\"ann\" == principal",
    ]);
    leaf.prop_map(|leaf| format!("({leaf})")).prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} && {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
            inner.clone().prop_map(|a| format!("(!{a})")),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| format!("(if {a} then {b} else {c})")),
        ]
    })
}

fn any_policy() -> impl Strategy<Value = String> {
    let one_of = |texts: &[&'static str]| proptest::sample::select(texts.to_vec());
    (
        one_of(&["permit", "permit", "forbid"]),
        one_of(&[
            "principal",
            "principal == Principal::\"ann\"",
            "principal in Group::\"staff\"",
            "principal is Principal",
            "principal is Principal in Group::\"staff\"",
        ]),
        one_of(&[
            "action",
            "action == Action::\"s.one\"",
            "action in Action::\"draft\"",
            "action in [Action::\"t.two\", Action::\"off\"]",
        ]),
        one_of(&["resource", "resource == Tool::\"t.two\"", "resource in Server::\"s\""]),
        proptest::collection::vec((one_of(&["when", "unless"]), any_condition()), 0..3),
    )
        .prop_map(|(effect, principal, action, resource, conditions)| {
            let conditions: String =
                conditions.iter().map(|(kind, it)| format!(" {kind} {{ {it} }}")).collect();
            format!("{effect} ({principal}, {action}, {resource}){conditions};\n")
        })
}

fn rules(text: &str) -> Vec<Rule> {
    let file = SourceFile {
        name: "p.cedar".into(),
        shown: "p.cedar".into(),
        kind: Kind::Policies,
        text: text.into(),
    };
    let mut findings = Vec::new();
    let rules = rule::read(&file, &mut findings);
    assert_eq!(findings, vec![], "{text}");
    rules
}

/// What Cedar's authorizer says about one policy.
fn authorized(rule: &Rule, question: &CedarQuestion) -> Outcome {
    let alone = cedar_policy::PolicySet::from_policies([rule.policy.clone()]).unwrap();
    let CedarQuestion { request, entities, .. } = question;
    let response = Authorizer::new().is_authorized(request, &alone, entities);
    let mut errors = response.diagnostics().errors();
    match errors.next() {
        Some(AuthorizationError::PolicyEvaluationError(error)) => {
            Outcome::Errored(one_line(&error.inner().to_string()))
        }
        None if response.diagnostics().reason().next().is_some() => Outcome::Matched,
        None => Outcome::NotMatched,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn policies_match_and_fail_where_cedars_authorizer_says_so(
        policies in proptest::collection::vec(any_policy(), 1..5),
        (principal, tool, level, has_note) in (0..2_usize, 0..2_usize, 0..7_i64, any::<bool>()),
    ) {
        let text: String = policies.concat();
        let mut rules = rules(&text);
        Condition::number(rules.iter_mut().map(|rule| &mut rule.condition));
        prop_assert_eq!(rules.len(), policies.len());
        let question = question(principal, tool, level, has_note);
        let mut evaluation = Evaluation::of(&question);
        for rule in &rules {
            let expected = authorized(rule, &question);
            let alone = rule.condition.outcome(&mut Evaluation::of(&question));
            let after_others = rule.condition.outcome(&mut evaluation);
            prop_assert_eq!((alone, after_others), (expected.clone(), expected), "{}", &text);
        }
        let all = cedar_policy::PolicySet::from_policies(rules.iter().map(|rule| rule.policy.clone()));
        let response =
            Authorizer::new().is_authorized(&question.request, &all.unwrap(), &question.entities);
        let answer =
            CedarAnswer::of(rules.iter().map(|rule| (rule, rule.condition.outcome(&mut evaluation))));
        let has_errors = response.diagnostics().errors().next().is_some();
        let is_permitted = response.decision() == Decision::Allow && !has_errors;
        prop_assert_eq!(answer.verdict == Verdict::Permit, is_permitted, "{}", &text);
    }
}
