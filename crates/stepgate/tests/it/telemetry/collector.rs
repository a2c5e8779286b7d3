//! A collector: HTTP/1.1 or gRPC, with or without TLS. It keeps every message that it is sent.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, HeaderValue, Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// How it is spoken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Grpc,
}

impl Protocol {
    /// As the configuration has it.
    pub(super) fn configured(self) -> &'static str {
        match self {
            Self::Http => "protocol = \"http/protobuf\"",
            Self::Grpc => "protocol = \"grpc\"",
        }
    }

    /// Where messages of this signal are sent.
    pub(super) fn path(self, signal: &str) -> String {
        match self {
            Self::Http => format!("/v1/{signal}"),
            Self::Grpc => {
                let service = match signal {
                    "traces" => "trace.v1.TraceService",
                    "logs" => "logs.v1.LogsService",
                    "metrics" => "metrics.v1.MetricsService",
                    other => panic!("{other}"),
                };
                format!("/opentelemetry.proto.collector.{service}/Export")
            }
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) message: Vec<u8>,
}

type Calls = Arc<Mutex<Vec<Call>>>;

/// It ends with this value.
pub(super) struct Collector {
    pub(super) address: SocketAddr,
    protocol: Protocol,
    calls: Calls,
    _runtime: tokio::runtime::Runtime,
}

impl Collector {
    pub(super) fn start(protocol: Protocol) -> Self {
        Self::begin(protocol, None)
    }

    /// With the certificate and the key in this directory, as an authority of these tests issues them.
    pub(super) fn with_tls(protocol: Protocol, directory: &Path) -> Self {
        let certificate = CertificateDer::from_pem_file(directory.join("gate.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(directory.join("gate.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = match protocol {
            Protocol::Http => vec![b"http/1.1".to_vec()],
            Protocol::Grpc => vec![b"h2".to_vec()],
        };
        Self::begin(protocol, Some(TlsAcceptor::from(Arc::new(config))))
    }

    fn begin(protocol: Protocol, tls: Option<TlsAcceptor>) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Calls::default();
        let kept = Arc::clone(&calls);
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, calls) = (tls.clone(), Arc::clone(&kept));
                tokio::spawn(async move {
                    match tls {
                        None => serve(protocol, stream, calls).await,
                        // One that does not trust the certificate leaves here.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(protocol, stream, calls).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, protocol, calls, _runtime: runtime }
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The messages of a signal.
    pub(super) fn messages(&self, signal: &str) -> Vec<Vec<u8>> {
        let path = self.protocol.path(signal);
        let calls = self.calls().into_iter().filter(|call| call.path == path);
        calls.map(|call| call.message).collect()
    }
}

async fn serve<S>(protocol: Protocol, stream: S, calls: Calls)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = TokioIo::new(stream);
    // The gateway ends the connection when it ends.
    let _ = match protocol {
        Protocol::Http => {
            let service = service_fn(|request| answer(request, Arc::clone(&calls)));
            http1::Builder::new().serve_connection(stream, service).await
        }
        Protocol::Grpc => {
            let service = service_fn(|request| answer_grpc(request, Arc::clone(&calls)));
            http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await
        }
    };
}

async fn answer(
    request: Request<Incoming>,
    calls: Calls,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    keep(request, &calls, |body| body).await;
    Ok(Response::new(Full::default()))
}

/// The status of a call stands behind the body.
async fn answer_grpc(
    request: Request<Incoming>,
    calls: Calls,
) -> Result<Response<impl Body<Data = Bytes, Error = Infallible>>, Infallible> {
    assert_eq!(request.headers()["content-type"], "application/grpc");
    keep(request, &calls, |body| {
        let (prefix, message) = body.split_at(5);
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        assert_eq!(prefix, [&[0], length.as_slice()].concat());
        message
    })
    .await;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from_static(&[0; 5])).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

async fn keep(request: Request<Incoming>, calls: &Calls, message: impl Fn(&[u8]) -> &[u8]) {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let message = message(&body).to_vec();
    let path = head.uri.path().to_owned();
    calls.lock().unwrap().push(Call { path, headers: head.headers, message });
}
