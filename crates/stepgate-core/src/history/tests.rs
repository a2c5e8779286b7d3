use serde_json::json;

use super::*;
use crate::action::CoreCall;

#[test]
fn the_defaults_that_policy_saw_are_put_back_where_nothing_was_given() {
    let mut args = json!({ "given": 1, "options": {}, "rooms": [{}, { "size": 1 }] });
    let defaults = [
        ("/given", json!(2)),
        ("/more", json!({ "a": 1 })),
        ("/more/b", json!(3)),
        ("/options/a~1b~01", json!(4)),
        ("/rooms/0/size", json!(9)),
        ("/none/x", json!(5)),
    ];
    for (place, default) in &defaults {
        fill(&mut args, place, default);
    }
    let expected = json!({
        "given": 1,
        "more": { "a": 1, "b": 3 },
        "options": { "a/b~1": 4 },
        "rooms": [{ "size": 9 }, { "size": 1 }],
    });
    assert_eq!(args, expected);
}

#[test]
fn a_call_of_the_past_has_the_defaults_that_its_decision_names() {
    let (tool_name, tool_server) = ("FINISH".to_owned(), "core".to_owned());
    let asked = Invocation { args: json!({}), tool_name, tool_server };
    let none = BTreeSet::new();
    let call = |defaults: Option<Value>| call_of(|_| None, &asked, defaults.as_ref(), &none);
    assert!(call(None).is_none(), "without its response it is no call");
    let Some(Call::Core(CoreCall::Finish { response })) = call(Some(json!({ "/response": "x" })))
    else {
        panic!("it has its response by default")
    };
    assert_eq!(response, "x");
}

#[test]
fn what_was_erasable_then_is_still_no_value_to_the_policies_that_are_asked_now() {
    let (tool_name, tool_server) = ("send".to_owned(), "mail".to_owned());
    let asked = Invocation { args: json!({ "body": { "sha256": "…" } }), tool_name, tool_server };
    let erasable = BTreeSet::from(["body".to_owned()]);
    let Some(Call::Server(call)) = call_of(|_| None, &asked, None, &erasable) else {
        panic!("it is a call of a tool")
    };
    assert_eq!(call.tool.redacted, ["body"]);
}
