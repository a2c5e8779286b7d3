use futures_util::FutureExt;

use super::*;

fn run() -> RunId {
    RunId::new(uuid::Uuid::now_v7())
}

fn said(run_id: RunId, progress: f64) -> CallProgress {
    CallProgress { run_id, progress, total: None, message: Some("on its way".to_owned()) }
}

#[test]
fn a_watcher_hears_the_latest_that_a_tool_said_and_each_word_once() {
    let (hub, run_id) = (Hub::new(), run());
    let mut watch = hub.watch(run_id);
    assert_eq!(watch.progressed().now_or_never(), None);
    hub.progress(said(run_id, 1.0));
    hub.progress(said(run_id, 2.0));
    hub.progress(said(run(), 3.0));
    assert_eq!(watch.progressed().now_or_never(), Some(said(run_id, 2.0)));
    assert_eq!(watch.progressed().now_or_never(), None);
    // Other changes of the run are not progress reports, and drop none.
    hub.progress(said(run_id, 4.0));
    hub.announce(Announcement::Ended(run_id));
    assert_eq!(watch.finished().now_or_never(), Some(()));
    assert_eq!(watch.progressed().now_or_never(), Some(said(run_id, 4.0)));
    assert_eq!(watch.progressed().now_or_never(), None);
}

#[test]
fn every_watcher_hears_for_itself_and_one_that_joins_hears_the_latest() {
    let (hub, run_id) = (Hub::new(), run());
    let mut first = hub.watch(run_id);
    hub.progress(said(run_id, 1.0));
    let mut second = hub.watch(run_id);
    for watch in [&mut first, &mut second] {
        assert_eq!(watch.progressed().now_or_never(), Some(said(run_id, 1.0)));
    }
}

#[test]
fn what_nobody_watches_is_kept_by_nobody() {
    let (hub, run_id) = (Hub::new(), run());
    hub.progress(said(run_id, 1.0));
    assert_eq!(hub.watched_runs().len(), 0);
    let mut watch = hub.watch(run_id);
    assert_eq!(watch.progressed().now_or_never(), None);
}

#[tokio::test]
async fn a_watcher_is_woken_by_what_its_tool_says() {
    let (hub, run_id) = (Hub::new(), run());
    let mut watch = hub.watch(run_id);
    let waiting = tokio::spawn(async move { watch.progressed().await });
    tokio::task::yield_now().await;
    hub.progress(said(run_id, 1.0));
    assert_eq!(waiting.await.unwrap(), said(run_id, 1.0));
    assert_eq!(hub.watched_runs().len(), 0);
}
