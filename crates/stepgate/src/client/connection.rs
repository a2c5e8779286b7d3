//! One connection, kept for as long as the other side keeps it.

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

/// Where a connection goes.
#[derive(Clone)]
pub(crate) enum Target {
    /// The socket of a data directory.
    Socket(PathBuf),
    /// A gateway somewhere, with the token that it asks for.
    Http { authority: String, token: String },
}

impl Target {
    /// The gateway of a URL.
    pub(crate) fn url(url: &str, token: &str) -> anyhow::Result<Self> {
        let Some(rest) = url.strip_prefix("http://") else {
            bail!("`{url}` does not begin with `http://`: TLS is for a proxy in front of Stepgate");
        };
        let authority = rest.trim_end_matches('/');
        if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
            bail!("`{url}` is not an address: write it like `http://127.0.0.1:7420`");
        }
        let has_port =
            authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        if token.is_empty() {
            bail!("`--url` needs a token: set STEPGATE_TOKEN, or name a file with --token-file");
        }
        Ok(Self::Http { authority, token: token.to_owned() })
    }
}

pub(crate) struct Connection {
    target: Target,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    pub(crate) async fn open(target: Target) -> anyhow::Result<Self> {
        let sender = connect(&target).await?;
        Ok(Self { target, sender })
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Asks; the body of the answer is still to come. A connection that was closed meanwhile is opened
    /// again before anything is sent.
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
        Target::Http { authority, .. } => {
            let stream = TcpStream::connect(authority.as_str())
                .await
                .with_context(|| format!("cannot connect to `{authority}`: is it serving?"))?;
            stream.set_nodelay(true)?;
            handshake(stream).await
        }
    }
}

async fn handshake<S>(stream: S) -> anyhow::Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender, and what goes wrong is told by the request that it goes wrong for.
    tokio::spawn(connection);
    Ok(sender)
}
