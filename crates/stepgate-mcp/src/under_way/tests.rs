use serde_json::json;

use super::*;

#[test]
fn an_id_is_claimed_once_in_a_session_until_it_is_let_go() {
    let under_way = Arc::new(UnderWay::default());
    assert!(!under_way.is_in_use("one"));
    let first = under_way.claim("one", &json!(1));
    assert!(first.is_some());
    assert!(under_way.claim("one", &json!(1)).is_none());
    let second = under_way.claim("one", &json!("1"));
    assert!(second.is_some());
    assert!(under_way.claim("other", &json!(1)).is_some());
    assert!(!under_way.is_in_use("other"));
    drop(first);
    assert!(under_way.is_in_use("one"));
    assert!(under_way.claim("one", &json!(1)).is_some());
    drop(second);
    assert!(!under_way.is_in_use("one"));
    assert!(lock::locked(&under_way.0).is_empty());
}
