//! `/live`: tells an open page that something changed. It carries no data: the page fetches itself again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::{Stream, stream};
use stepgate_gateway::service::wait_until_set;
use tokio::sync::watch;

use super::{Visit, Visitor};
use crate::App;

/// Shortest time between two messages: under load a page is refreshed so often and not more.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A stream ends after this time and the browser opens a new one, which is checked like any request.
const LIFE_MAX: Duration = Duration::from_secs(300);

pub(super) async fn follow(
    Visit(app, visitor): Visit,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let following = Following {
        pulse: app.service.hub.pulse(),
        leaving: app.service.leaving(),
        end: tokio::time::Instant::now() + LIFE_MAX,
        app,
        visitor,
    };
    let changes = stream::unfold(following, |mut following| async move {
        following.next().await?;
        Some((Ok(Event::default().data("changed")), following))
    });
    Sse::new(changes).keep_alive(KeepAlive::new().interval(HEARTBEAT))
}

struct Following {
    app: Arc<App>,
    visitor: Visitor,
    pulse: watch::Receiver<u64>,
    leaving: watch::Receiver<bool>,
    end: tokio::time::Instant,
}

impl Following {
    /// Waits for the next change. None ends the stream: the login has ended, the stream is `LIFE_MAX` old, or the process shuts
    /// down.
    async fn next(&mut self) -> Option<()> {
        tokio::select! {
            changed = self.pulse.changed() => changed.ok()?,
            () = wait_until_set(&mut self.leaving) => return None,
            () = tokio::time::sleep_until(self.end) => return None,
        }
        tokio::time::sleep(PAUSE).await;
        self.pulse.borrow_and_update();
        let app = &self.app;
        app.logins.is_open(&self.visitor, |token_id| app.service.is_live(token_id)).then_some(())
    }
}
