//! The request that a task answers: an event that the task writes says where it comes from.

use stepgate_core::event::payload::Request;

tokio::task_local! {
    static CURRENT: Option<Request>;
}

/// Runs `work` for this request.
pub async fn within<T>(request: Option<Request>, work: impl Future<Output = T>) -> T {
    CURRENT.scope(request, work).await
}

/// The request of the current task.
pub fn current() -> Option<Request> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}
