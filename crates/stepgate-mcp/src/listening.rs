//! Streams of clients that only listen: they end when the gateway shuts down, or when the token that opened them
//! becomes invalid. Streams of calls are handled elsewhere: a running call is answered first.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Method;
use axum::http::request::Parts;
use futures_util::stream::{self, StreamExt};
use serde_json::Value;
use stepgate_gateway::service::{Service, wait_until_set};
use stepgate_http::Caller;

use super::http::resumed_stream;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    Session,
    /// A client without a session. Its request is answered when the gateway shuts down, which ends the stream.
    Subscriber,
}

impl Listener {
    pub(super) fn of(parts: &Parts, message: Option<&Value>) -> Option<Self> {
        match message.map(|message| message.get("method").and_then(Value::as_str)) {
            Some(Some("subscriptions/listen")) => Some(Self::Subscriber),
            Some(Some(_) | None) => None,
            None if parts.method == Method::GET && resumed_stream(parts).is_none() => {
                Some(Self::Session)
            }
            None => None,
        }
    }

    /// The body, ended at shutdown or when the token becomes invalid.
    pub(super) fn body(self, service: &Arc<Service>, caller: &Caller, body: Body) -> Body {
        let (service, token_id) = (Arc::clone(service), caller.token_id);
        let pieces = body.into_data_stream();
        let leaving = service.leaving();
        let whole = stream::unfold((pieces, leaving), move |(mut pieces, mut leaving)| {
            let service = Arc::clone(&service);
            async move {
                let left = async {
                    match self {
                        Self::Session => wait_until_set(&mut leaving).await,
                        Self::Subscriber => std::future::pending().await,
                    }
                };
                let piece = tokio::select! {
                    piece = pieces.next() => piece?,
                    () = left => return None,
                };
                let is_good = token_id.is_none_or(|token| service.is_live(token));
                is_good.then_some((piece, (pieces, leaving)))
            }
        });
        Body::from_stream(whole)
    }
}
