use serde_json::json;

use super::ResultPointer;

#[test]
fn a_pointer_names_parts_of_a_result() {
    let result = json!({
        "items": [{ "id": 1, "a/b": 2 }, { "id": 3 }, "text"],
        "by~name": { "x": 4, "y": [5] },
    });
    let rows = [
        ("", vec![result.clone()]),
        ("/items/*/id", vec![json!(1), json!(3)]),
        ("/items/0/id", vec![json!(1)]),
        ("/items/*/a~1b", vec![json!(2)]),
        ("/by~0name/*", vec![json!(4), json!([5])]),
        ("/items/*/*", vec![json!(1), json!(2), json!(3)]),
        ("/items/9", vec![]),
        ("/id", vec![]),
        ("/items/id", vec![]),
    ];
    for (text, expected) in rows {
        let pointer: ResultPointer = text.parse().unwrap();
        let found: Vec<_> = pointer.parts_of(&result).into_iter().cloned().collect();
        assert_eq!(found, expected, "{text}");
        assert_eq!(pointer.to_string(), text);
    }
    assert!("items/*".parse::<ResultPointer>().is_err());
}
