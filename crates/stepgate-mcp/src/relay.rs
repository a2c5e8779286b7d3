//! Tells a client how its call goes: that a person is asked, and what the tool says of its progress.

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{RequestContext, RoleServer};
use stepgate_exec::servers::CallProgress;
use stepgate_gateway::hub::RunWatch;

/// How far a word about waiting goes: next to nothing, since progress must grow and the tool's own
/// follows.
const WAITING_STEP: f64 = 1e-6;

/// The progress of one call, for clients that asked to hear of it.
pub(super) struct Relay<'a> {
    context: &'a RequestContext<RoleServer>,
    token: Option<ProgressToken>,
    /// What was told last; nothing yet, and a tool may begin with nothing done.
    last: Option<f64>,
}

impl<'a> Relay<'a> {
    pub(super) fn to(context: &'a RequestContext<RoleServer>) -> Self {
        Self { context, token: context.meta.get_progress_token(), last: None }
    }

    /// Does something, and tells meanwhile what the run's tool says.
    pub(super) async fn during<T>(
        &mut self,
        mut watch: RunWatch,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                said = watch.progressed() => self.tool(said).await,
            }
        }
    }

    /// What the tool says, as far as it goes on from what was told before.
    pub(super) async fn tool(&mut self, said: CallProgress) {
        if self.last.is_none_or(|last| said.progress > last) {
            self.tell(said.progress, said.total, said.message).await;
        }
    }

    /// That it still waits.
    pub(super) async fn waiting(&mut self, for_what: &str) {
        let progress = self.last.unwrap_or_default() + WAITING_STEP;
        self.tell(progress, None, Some(for_what.to_owned())).await;
    }

    async fn tell(&mut self, progress: f64, total: Option<f64>, message: Option<String>) {
        self.last = Some(progress);
        let Some(token) = self.token.clone() else { return };
        let mut word = ProgressNotificationParam::new(token, progress);
        word.total = total;
        word.message = message;
        // Whoever does not listen any more is answered all the same.
        let _ = self.context.peer.notify_progress(word).await;
    }
}
