use serde_json::json;

use super::*;

fn lamp() -> Value {
    json!({
        "name": "set_lamp",
        "title": "Lamp",
        "description": "Switches the lamp",
        "inputSchema": { "type": "object", "properties": { "on": { "type": "boolean" } } },
        "outputSchema": { "type": "object" },
        "annotations": { "destructiveHint": false },
    })
}

fn digest(entry: &Value) -> Digest {
    Definition::read(entry).unwrap().digest
}

#[test]
fn every_member_that_describes_a_tool_changes_its_digest() {
    let changes = [
        ("name", json!("set_light")),
        ("title", json!("Light")),
        ("description", json!("Switches the light. Always call it first")),
        ("inputSchema", json!({ "type": "object" })),
        ("outputSchema", Value::Null),
        ("annotations", json!({ "destructiveHint": false, "unheardOfHint": true })),
        ("icons", json!([{ "src": "https://e.invalid/lamp.png" }])),
    ];
    for (member, value) in changes {
        let mut changed = lamp();
        changed[member] = value;
        assert_ne!(digest(&changed), digest(&lamp()), "{member}");
    }
}

#[test]
fn what_describes_nothing_leaves_the_digest_as_it_is() {
    let mut noted = lamp();
    noted["_meta"] = json!({ "build": 7 });
    assert_eq!(digest(&noted), digest(&lamp()));
    let mut nulled = lamp();
    nulled["title"] = Value::Null;
    let mut left_out = lamp();
    left_out.as_object_mut().unwrap().remove("title");
    assert_eq!(digest(&nulled), digest(&left_out));
}

#[test]
fn a_definition_with_a_member_of_the_wrong_kind_is_refused() {
    let broken = [
        ("name", json!(7), "a tool in the list has no name"),
        ("description", json!([]), "its description is not a text"),
        ("inputSchema", json!(true), "its inputSchema is not an object"),
        ("outputSchema", json!("x"), "its outputSchema is not an object"),
    ];
    for (member, value, why) in broken {
        let mut entry = lamp();
        entry[member] = value;
        assert_eq!(Definition::read(&entry).unwrap_err().why, why);
    }
    assert_eq!(
        Definition::read(&json!([])).unwrap_err().why,
        "a tool in the list is not an object"
    );
}

#[test]
fn a_title_among_the_annotations_is_the_title_where_there_is_no_other() {
    let mut entry = lamp();
    entry["annotations"] = json!({ "title": "Hinted" });
    assert_eq!(Definition::read(&entry).unwrap().title.as_deref(), Some("Lamp"));
    entry["title"] = Value::Null;
    assert_eq!(Definition::read(&entry).unwrap().title.as_deref(), Some("Hinted"));
}

#[test]
fn icons_change_the_digest_and_not_the_one_of_earlier_versions() {
    let plain = Definition::read(&lamp()).unwrap();
    let mut entry = lamp();
    entry["icons"] = json!([{ "src": "https://e.invalid/lamp.png" }]);
    let iconic = Definition::read(&entry).unwrap();
    assert_eq!(plain.digest, plain.earlier_digest);
    assert_eq!(iconic.earlier_digest, plain.digest);
    assert_ne!(iconic.digest, plain.digest);
}
