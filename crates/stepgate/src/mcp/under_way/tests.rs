use serde_json::json;

use super::*;

#[test]
fn an_id_is_claimed_once_in_a_session_until_it_is_let_go() {
    let under_way = Arc::new(UnderWay::default());
    let first = under_way.claim("one", &json!(1));
    assert!(first.is_some());
    assert!(under_way.claim("one", &json!(1)).is_none());
    assert!(under_way.claim("one", &json!("1")).is_some());
    assert!(under_way.claim("other", &json!(1)).is_some());
    drop(first);
    assert!(under_way.claim("one", &json!(1)).is_some());
    assert!(under_way.0.lock().unwrap().is_empty());
}
