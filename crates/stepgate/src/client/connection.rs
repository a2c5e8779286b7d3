//! One connection, reused until the server closes it.

use std::path::PathBuf;

use anyhow::{Context, bail};
use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use stepgate_gateway::tls::Tls;

/// Where a connection goes.
#[derive(Clone)]
pub(crate) enum Target {
    /// The socket of a data directory.
    Socket(PathBuf),
    /// A remote gateway with its token, with or without TLS.
    Http { authority: String, token: String, tls: Option<Tls> },
}

impl Target {
    pub(crate) fn url(url: &str, token: &str) -> anyhow::Result<Self> {
        let (rest, is_encrypted) = match url.split_once("://") {
            Some(("http", rest)) => (rest, false),
            Some(("https", rest)) => (rest, true),
            Some(_) | None => bail!("`{url}` begins with neither `http://` nor `https://`"),
        };
        let authority = rest.trim_end_matches('/');
        if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
            bail!("`{url}` is not an address: write it like `http://127.0.0.1:7420`");
        }
        let with_port = authority.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let (host, authority) = match (with_port, is_encrypted) {
            (Some((host, _)), _) => (host, authority.to_owned()),
            (None, true) => (authority, format!("{authority}:443")),
            (None, false) => (authority, format!("{authority}:80")),
        };
        if token.is_empty() {
            bail!("`--url` needs a token: set STEPGATE_TOKEN, or name a file with --token-file");
        }
        let tls = is_encrypted.then(|| Tls::to(host, &[b"http/1.1"])).transpose()?;
        Ok(Self::Http { authority, token: token.to_owned(), tls })
    }
}

pub(crate) struct Connection {
    pub(super) target: Target,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    pub(crate) async fn open(target: Target) -> anyhow::Result<Self> {
        let sender = connect(&target).await?;
        Ok(Self { target, sender })
    }

    /// Sends a request. The body of the response arrives later. If the connection was closed meanwhile, reconnects
    /// before anything is sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<Bytes>,
    ) -> anyhow::Result<Response<Incoming>> {
        if self.sender.ready().await.is_err() {
            self.sender = connect(&self.target).await?;
        }
        let response = self.sender.send_request(request.map(Full::new)).await;
        response.context("the gateway did not answer: ask again with the same id")
    }
}

async fn connect(target: &Target) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    match target {
        Target::Socket(path) => {
            let stream = UnixStream::connect(path)
                .await
                .with_context(|| format!("cannot connect to `{}`", path.display()))?;
            handshake(stream).await
        }
        Target::Http { authority, token: _, tls } => {
            let stream = TcpStream::connect(authority.as_str())
                .await
                .with_context(|| format!("cannot connect to `{authority}`: is it serving?"))?;
            stream.set_nodelay(true)?;
            match tls {
                Some(tls) => handshake(tls.connect(stream).await?).await,
                None => handshake(stream).await,
            }
        }
    }
}

async fn handshake<S>(stream: S) -> anyhow::Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task ends with the sender. Errors are reported by the request that fails.
    tokio::spawn(connection);
    Ok(sender)
}
