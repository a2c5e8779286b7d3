//! Streams of those who listen: they end when the gateway leaves, and do not outlive the token that opened
//! them. Streams of calls are not among them: a call that runs is answered first.

use std::sync::Arc;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http_body_util::BodyExt;

use crate::http::Caller;
use crate::service::{Service, is_set};

/// The body, for as long as it may be listened to.
pub(super) fn listened<B>(service: &Arc<Service>, caller: &Caller, body: B) -> Body
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let (service, token_id) = (Arc::clone(service), caller.token_id);
    let pieces = body.into_data_stream();
    let leaving = service.leaving();
    let whole = stream::unfold((pieces, leaving), move |(mut pieces, mut leaving)| {
        let service = Arc::clone(&service);
        async move {
            let piece = tokio::select! {
                piece = pieces.next() => piece?,
                () = is_set(&mut leaving) => return None,
            };
            let is_good = token_id.is_none_or(|token| service.tokens.is_live(token));
            is_good.then_some((piece, (pieces, leaving)))
        }
    });
    Body::from_stream(whole)
}
