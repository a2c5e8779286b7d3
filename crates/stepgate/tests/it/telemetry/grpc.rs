//! The same over gRPC: a server of HTTP/2 that reads the official messages and answers with a status behind the body.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, HeaderValue, Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::{assert_chain, look, scene, spans_of, trace, traceparent};
use crate::http_client::Gateway;

const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

type Messages = Arc<Mutex<Vec<Vec<u8>>>>;

/// Keeps the message of a call, and says that it is fine.
async fn answer(
    request: Request<Incoming>,
    messages: Messages,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    assert_eq!(request.headers()["content-type"], "application/grpc");
    let is_trace = request.uri().path() == TRACES;
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let (prefix, message) = body.split_at(5);
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    assert_eq!(prefix, [&[0], length.as_slice()].concat());
    if is_trace {
        messages.lock().unwrap().push(message.to_vec());
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from_static(&[0; 5])).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

fn serve(messages: Messages) -> (tokio::runtime::Runtime, SocketAddr) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let messages = Arc::clone(&messages);
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(request, Arc::clone(&messages)));
                let connection = http2::Builder::new(TokioExecutor::new());
                // The gateway ends it when it ends.
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (runtime, address)
}

#[test]
fn a_trace_comes_over_grpc_too() {
    let messages = Messages::default();
    let (_runtime, address) = serve(Arc::clone(&messages));
    let scene = scene(&format!("http://{address}"), "protocol = \"grpc\"");
    let gateway = Gateway::start(&scene.place);
    look(&gateway, &[("traceparent", &traceparent())]);
    let spans = trace(|| spans_of(messages.lock().unwrap().clone()), "POST /v1/steps");
    assert_chain(&spans, &["tools/call fixture.look", "EXECUTE", "step", "POST /v1/steps"]);
}
