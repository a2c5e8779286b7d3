//! Progress notifications to the client: that a person must decide, and what the tool reports.

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{RequestContext, RoleServer};
use stepgate_exec::servers::CallProgress;
use stepgate_gateway::hub::RunWatch;

/// Progress added by each waiting notice. Small, because progress must grow and the tool's own values follow.
const WAITING_STEP: f64 = 1e-6;

/// The progress of one call, for clients that asked for notifications.
pub(super) struct Relay<'a> {
    context: &'a RequestContext<RoleServer>,
    token: Option<ProgressToken>,
    /// The last value sent. None at first, because a tool may begin with 0.
    last: Option<f64>,
}

impl<'a> Relay<'a> {
    pub(super) fn to(context: &'a RequestContext<RoleServer>) -> Self {
        Self { context, token: context.meta.get_progress_token(), last: None }
    }

    /// Runs a future, and forwards the tool's progress meanwhile.
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

    /// Forwards a progress report of the tool, if its value is greater than the last one sent.
    pub(super) async fn tool(&mut self, said: CallProgress) {
        if self.last.is_none_or(|last| said.progress > last) {
            self.tell(said.progress, said.total, said.message).await;
        }
    }

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
        // A failed notification is ignored: the call is answered anyway.
        let _ = self.context.peer.notify_progress(word).await;
    }
}
