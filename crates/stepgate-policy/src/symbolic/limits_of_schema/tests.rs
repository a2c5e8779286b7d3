use serde_json::json;

use super::*;
use crate::shape::of_args;

/// What is said of one argument that is required.
fn rules(property: Value) -> Vec<Expr> {
    let schema = json!({ "type": "object", "properties": { "x": property }, "required": ["x"] });
    rules_of(&schema, &of_args(&schema), true)
}

fn x() -> Expr {
    Expr::context("args").attribute("x")
}

#[test]
fn every_value_that_policies_see_is_allowed() {
    let largest = json!(9_007_199_254_740_991_i64);
    let listed = rules(json!({ "type": "integer", "enum": [1, largest, 1e17] }));
    let is_one = Expr::any([1, LONG_MAX].map(|number| x().equals(Expr::long(number))));
    assert!(listed.contains(&is_one), "{listed:?}");
    assert_eq!(literal(&Shape::Long, &largest), Some(Expr::long(LONG_MAX)));
    assert_eq!(literal(&Shape::Long, &json!(1e17)), None);
    // A bound that no value that policies see has says nothing about those.
    let unbounded = rules(json!({ "type": "integer" }));
    assert_eq!(rules(json!({ "type": "integer", "minimum": -1e17, "maximum": 0.5 })), unbounded);
    let referred = json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/n" } },
        "required": ["x"], "$defs": { "n": { "type": "integer", "exclusiveMinimum": 3 } } });
    let referred = rules_of(&referred, &of_args(&referred), true);
    assert!(referred.contains(&Expr::long(3).less(x())), "{referred:?}");
}
