use serde_json::json;

use super::{how_to_go_on, pairs};

#[test]
fn a_value_is_text_for_a_core_action_and_a_scalar_for_a_tool_of_a_server() {
    let rows = [
        ("WRITE_FILE", "content=20", json!({ "content": "20" })),
        ("sonos.set_volume", "volume=20", json!({ "volume": 20 })),
        ("sonos.set_volume", "volume=2.5", json!({ "volume": 2.5 })),
        ("sonos.set_volume", "mute=true", json!({ "mute": true })),
        ("sonos.set_volume", "room=null", json!({ "room": null })),
        ("sonos.set_volume", "room=[1]", json!({ "room": "[1]" })),
        ("sonos.set_volume", "room= 20", json!({ "room": 20 })),
        ("sonos.set_volume", "room=a=b", json!({ "room": "a=b" })),
        ("sonos.set_volume", "room:=[1]", json!({ "room": [1] })),
        ("WRITE_FILE", "content:=20", json!({ "content": 20 })),
        ("FINISH", "response=", json!({ "response": "" })),
    ];
    for (tool, pair, expected) in rows {
        assert_eq!(pairs(tool, &[pair.to_owned()]).unwrap(), expected, "{tool} {pair}");
    }
}

#[test]
fn what_is_no_pair_is_refused() {
    for pair in [&["content"][..], &["a:={"], &["a=1", "a=2"]] {
        let given: Vec<String> = pair.iter().map(|pair| (*pair).to_owned()).collect();
        pairs("sonos.x", &given).unwrap_err();
    }
}

#[test]
fn a_gateway_cannot_play_tricks_on_the_terminal_of_one_who_waits() {
    let waiting = r#"{"outcome":"APPROVAL_REQUIRED","result":{"approval_id":"1\u001b[2J\u202e"}}"#;
    let told = how_to_go_on(waiting).unwrap();
    assert!(told.contains("`stepgate approve 1<U+001B>[2J<U+202E>`"), "{told:?}");
    assert!(!told.contains(['\u{1b}', '\u{202e}']), "{told:?}");
    assert_eq!(how_to_go_on(r#"{"outcome":"SUCCESS"}"#), None);
}
