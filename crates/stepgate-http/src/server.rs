//! Listens: TCP and the data directory's socket, with a limit on everything that a peer can take.

mod first_start;
mod head;
mod peer;
mod tls;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context, bail};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use stepgate_gateway::service::is_set;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt;
use tracing::{error, warn};

use crate::{App, OpenConnection, Peer, Scheme};

pub use first_start::make_tokens;
pub use tls::{PairFiles, Tls};
use wire::Wire;

/// Longest request head: more is 431. The HTTP library's own limit is on what it has buffered, and lets heads of
/// twice the size pass; `head.rs` has the exact one.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most headers of a request: more is 431.
const HEADERS_MAX: usize = 100;

/// Most connections of the owner at one time. They have places of their own: whoever takes all of the
/// others must not lock the operator out.
const LOCAL_CONNECTIONS_MAX: usize = 256;

/// An address, and how it is spoken with there.
pub struct Endpoint {
    /// Address and port.
    pub bind: String,
    /// In the clear without one.
    pub tls: Option<Arc<Tls>>,
}

impl Endpoint {
    /// Whether it is encrypted.
    pub fn scheme(&self) -> Scheme {
        match self.tls {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        }
    }
}

/// Everything that is listened on.
pub struct Listeners {
    tcp: Option<TcpListener>,
    tls: Option<Arc<Tls>>,
    socket: UnixListener,
    socket_path: PathBuf,
}

impl Listeners {
    /// Listens on the data directory's socket and, where one is named, on an address. Whoever holds the directory may
    /// replace a socket that is there: nobody else can be behind it.
    pub async fn open(endpoint: Option<&Endpoint>, socket_path: &Path) -> anyhow::Result<Self> {
        let (tcp, tls) = match endpoint {
            Some(Endpoint { bind, tls }) => {
                let bound = TcpListener::bind(bind).await;
                (Some(bound.map_err(|error| cannot_listen(bind, error))?), tls.clone())
            }
            None => (None, None),
        };
        match std::fs::remove_file(socket_path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                bail!("cannot replace `{}`: {error}", socket_path.display());
            }
            Ok(()) | Err(_) => {}
        }
        let socket = UnixListener::bind(socket_path)
            .with_context(|| format!("cannot listen on `{}`", socket_path.display()))?;
        // The directory is the owner's alone already; the mode is the second lock on the same door.
        std::fs::set_permissions(socket_path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { tcp, tls, socket, socket_path: socket_path.to_owned() })
    }

    /// The address, with the port that was given.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        self.tcp.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// The next connection over the network; never one, where there is no address.
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.tcp {
            Some(tcp) => tcp.accept().await,
            None => std::future::pending().await,
        }
    }

    /// Answers until it is told to stop, then until nobody should send any more, and then lets what is under
    /// way finish, for as long as it may.
    pub async fn serve(self, app: &Arc<App>, router: Router, stop: impl Future<Output = ()>) {
        let connections = Connections {
            app: Arc::clone(app),
            router,
            places: Arc::new(Semaphore::new(app.limits.connections_max)),
            local_places: Arc::new(Semaphore::new(LOCAL_CONNECTIONS_MAX)),
            graceful: GracefulShutdown::new(),
            tls: self.tls.clone(),
        };
        let renewing = self.tls.clone().map(|tls| tokio::spawn(tls::keep_renewing(tls)));
        let service = &app.service;
        self.accept_until(&connections, stop).await;
        service.drain();
        if !*service.broken().borrow() {
            self.accept_until(&connections, tokio::time::sleep(app.limits.drain)).await;
        }
        if let Some(Ok(tcp)) = self.tcp.map(TcpListener::into_std) {
            connections.begin_waiting(&tcp);
        }
        drop(self.socket);
        let _ = std::fs::remove_file(&self.socket_path);
        service.leave();
        let finish = async {
            connections.graceful.shutdown().await;
            service.idle().await;
        };
        if tokio::time::timeout(app.limits.shutdown, finish).await.is_err() {
            let count = service.running();
            warn!("{count} step(s) did not finish in time and are left to recovery");
        }
        if let Some(renewing) = renewing {
            renewing.abort();
        }
    }

    async fn accept_until(&self, connections: &Connections, end: impl Future<Output = ()>) {
        let mut end = pin!(end);
        loop {
            tokio::select! {
                biased;
                () = &mut end => return,
                accepted = self.accept() => match accepted {
                    Ok((stream, address)) => connections.begin_tcp(stream, address),
                    Err(error) => refused(&error).await,
                },
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, _)) => {
                        if let Some(process) = peer::owner(&stream) {
                            connections.begin(stream, Peer::Local(process));
                        }
                    }
                    Err(error) => refused(&error).await,
                },
            }
        }
    }
}

/// Too many open files, most likely: a moment later there may be one.
async fn refused(error: &io::Error) {
    error!("cannot accept a connection: {error}");
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
}

fn cannot_listen(bind: &str, error: io::Error) -> anyhow::Error {
    let way_out = if error.kind() == io::ErrorKind::AddrInUse {
        "another process listens there: stop it, or name another address with --bind"
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "ports below 1024 need a privilege: name a higher one"
    } else {
        "name an address of this machine with --bind"
    };
    anyhow::Error::new(error).context(format!("cannot listen on `{bind}`: {way_out}"))
}

struct Connections {
    app: Arc<App>,
    router: Router,
    places: Arc<Semaphore>,
    local_places: Arc<Semaphore>,
    graceful: GracefulShutdown,
    tls: Option<Arc<Tls>>,
}

impl Connections {
    fn begin_tcp(&self, stream: TcpStream, address: SocketAddr) {
        // Answers are one write; waiting for more to send would only delay them.
        let _ = stream.set_nodelay(true);
        let peer = Peer::Address(address.ip());
        match &self.tls {
            Some(tls) => self.begin_tls(Arc::clone(tls), stream, peer),
            None => self.begin(stream, peer),
        }
    }

    /// Takes those who are connected already, as they see it, although nobody has accepted them.
    fn begin_waiting(&self, listener: &std::net::TcpListener) {
        // It does not block: where nobody waits any more, that is an error.
        while let Ok((stream, address)) = listener.accept() {
            let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = stream {
                self.begin_tcp(stream, address);
            }
        }
    }

    fn begin<S>(&self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match self.seat(peer) {
            Some(seat) => drop(tokio::spawn(seat.serve(stream))),
            None => drop(tokio::spawn(turn_away(stream))),
        }
    }

    /// INVARIANT: the handshake is the connection's own affair. It has a place and a deadline, and nobody
    /// who comes next waits for it.
    fn begin_tls(&self, tls: Arc<Tls>, stream: TcpStream, peer: Peer) {
        // A word to one too many would cost the very handshake that there is no place for.
        let Some(seat) = self.seat(peer) else { return };
        let mut leaving = self.app.service.leaving();
        tokio::spawn(async move {
            let handshake = tokio::time::timeout(seat.app.limits.head_timeout, tls.accept(stream));
            let shaken = tokio::select! {
                shaken = handshake => shaken,
                // Nobody has asked anything yet, so nobody is waited for.
                () = is_set(&mut leaving) => return,
            };
            match shaken {
                Ok(Ok(Some(stream))) => seat.serve(stream).await,
                Ok(Ok(None)) => {}
                Ok(Err(_)) | Err(_) => seat.app.metrics.malformed(),
            }
        });
    }

    /// A place for one more, where there is one.
    fn seat(&self, peer: Peer) -> Option<Seat> {
        let places = match peer {
            Peer::Address(_) => &self.places,
            Peer::Local(_) => &self.local_places,
        };
        Some(Seat {
            peer,
            place: Arc::clone(places).try_acquire_owned().ok()?,
            open: self.app.metrics.connection(),
            app: Arc::clone(&self.app),
            router: self.router.clone(),
            watcher: self.graceful.watcher(),
        })
    }
}

/// What one connection takes, and needs.
struct Seat {
    peer: Peer,
    place: OwnedSemaphorePermit,
    open: OpenConnection,
    app: Arc<App>,
    router: Router,
    watcher: Watcher,
}

impl Seat {
    async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { peer, place, open, app, router, watcher } = self;
        let counted = Arc::clone(&app);
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let mut request: Request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            let (router, app) = (router.clone(), Arc::clone(&counted));
            async move {
                match head::check(&request) {
                    Ok(()) => router.oneshot(request).await,
                    Err(problem) => {
                        app.metrics.malformed();
                        Ok(problem.closing().into_response())
                    }
                }
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(app.limits.head_timeout)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(Wire::new(stream)), service);
        if let Err(error) = watcher.watch(connection).await
            && (error.is_parse() || error.is_timeout())
        {
            app.metrics.malformed();
        }
        drop((place, open));
    }
}

/// Too many are here. A word instead of silence, as far as the peer takes one.
async fn turn_away<S: AsyncWrite + Unpin>(mut stream: S) {
    let _ = stream.write_all(wire::too_many_connections().as_bytes()).await;
    let _ = stream.shutdown().await;
}
