//! Each engine announces what it has written, and nothing else.

use std::sync::{Arc, Mutex};

use stepgate_core::ports::{Announce, Announcement, Store};
use stepgate_store::{MemoryStore, PostgresStore, SqliteStore};

use crate::desk::Desk;
use crate::server;

#[derive(Default)]
struct Heard(Mutex<Vec<Announcement>>);

impl Announce for Heard {
    fn announce(&self, announcement: Announcement) {
        self.0.lock().unwrap().push(announcement);
    }
}

impl Heard {
    fn take(&self) -> Vec<Announcement> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

async fn check(store: Arc<dyn Store>, heard: &Heard) {
    let desk = Desk::open(store).await;
    assert_eq!(heard.take(), [Announcement::More, Announcement::More], "two sessions");

    let mut step = desk.step();
    let opening = step.opening();
    desk.store.commit(opening.clone()).await.unwrap();
    assert_eq!(heard.take(), [Announcement::More]);
    desk.store.commit(opening).await.unwrap_err();
    assert_eq!(heard.take(), [], "what is refused is not announced");
    desk.store.commit(step.closing()).await.unwrap();
    assert_eq!(heard.take(), [Announcement::Ended(step.id())]);

    let mut step = desk.step();
    let (pausing, asked) = step.pausing();
    desk.store.commit(pausing).await.unwrap();
    assert_eq!(heard.take(), [Announcement::Asked(Box::new(asked.clone()))]);
    desk.store.commit(step.granting(&asked).0).await.unwrap();
    assert_eq!(heard.take(), [Announcement::Decided(step.id())]);

    desk.store.append_event(desk.loose_event()).await.unwrap();
    assert_eq!(heard.take(), [Announcement::More]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_engine_announces_what_it_has_written() {
    let heard = Arc::new(Heard::default());
    check(Arc::new(MemoryStore::new().announcing_to(heard.clone())), &heard).await;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stepgate.db");
    let sqlite = SqliteStore::open(&path, Default::default()).unwrap();
    check(Arc::new(sqlite.announcing_to(heard.clone())), &heard).await;

    let postgres = PostgresStore::open(&server::fresh_url(), Default::default()).await.unwrap();
    check(Arc::new(postgres.announcing_to(heard.clone())), &heard).await;
}
