use serde_json::{Value, json};

use super::is_lowered;
use crate::journal::artifact::Invocation;

#[test]
fn a_cap_that_does_not_lower_what_was_asked_explains_no_call() {
    let asked = |args: Value| Invocation {
        args,
        tool_name: "set_volume".into(),
        tool_server: "sonos".into(),
    };
    let rows = [
        (json!({ "volume": 90 }), None, Some(json!({ "volume": 90 }))),
        (json!({ "volume": 90 }), Some(json!({ "volume": 30 })), Some(json!({ "volume": 30 }))),
        (json!({ "volume": 30.5 }), Some(json!({ "volume": 30 })), Some(json!({ "volume": 30 }))),
        (json!({ "volume": 30 }), Some(json!({ "volume": 30 })), None),
        (json!({ "volume": 20 }), Some(json!({ "volume": 30 })), None),
        (json!({ "volume": "90" }), Some(json!({ "volume": 30 })), None),
        (json!({ "volume": 90 }), Some(json!({ "volume": 30.5 })), None),
        (json!({}), Some(json!({ "volume": 30 })), None),
    ];
    for (args, cap, expected) in rows {
        for call in [json!({ "volume": 90 }), json!({ "volume": 30 }), args.clone()] {
            let follows = is_lowered(&asked(args.clone()), cap.as_ref(), &asked(call.clone()));
            assert_eq!(follows, expected.as_ref() == Some(&call), "{args} {cap:?} {call}");
        }
    }
}
