use super::*;
use crate::hub::Hub;

#[tokio::test]
async fn a_watch_leaves_nothing_behind() {
    let hub = Hub::new();
    let run_id = RunId::new(uuid::Uuid::now_v7());
    let (first, second) = (hub.watch(run_id), hub.watch(run_id));
    assert_eq!(hub.watched(), 1);
    drop(first);
    assert_eq!(hub.watched(), 1);
    drop(second);
    assert_eq!(hub.watched(), 0);
}
