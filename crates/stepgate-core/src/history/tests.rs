use serde_json::json;

use super::*;

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
