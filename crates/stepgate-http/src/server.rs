//! The listeners: TCP and the data directory's socket, with a limit on everything that a peer can use.

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
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use stepgate_gateway::service::wait_until_set;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinSet;
use tower::ServiceExt;
use tracing::warn;

use crate::connections::{Connection, Full, OpenConnection};
use crate::network::Network;
use crate::refusals::Limit;
use crate::{App, CountedConnection, Peer, Scheme};

pub use first_start::make_tokens;
pub use tls::{PairFiles, Tls};
use wire::Wire;

/// Longest request head: more is 431. The HTTP library limits its buffer, and lets heads of twice that size pass;
/// `head.rs` enforces the exact limit.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most headers of a request: more is 431.
const HEADERS_MAX: usize = 100;

/// A listen address, and its TLS settings.
pub struct Endpoint {
    /// Address and port.
    pub bind: String,
    /// None means no encryption.
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

/// All listeners.
pub struct Listeners {
    tcp: Option<TcpListener>,
    tls: Option<Arc<Tls>>,
    socket: UnixListener,
    socket_path: PathBuf,
}

impl Listeners {
    /// Listens on the data directory's socket and, if given, on an address. The caller holds the lock of the directory,
    /// so it may replace an existing socket: no other process can be behind it.
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
        // Only the owner can enter the directory; the mode of the socket is a second barrier.
        std::fs::set_permissions(socket_path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { tcp, tls, socket, socket_path: socket_path.to_owned() })
    }

    /// The address, with the port that the system assigned if the setting was 0.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        self.tcp.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// The next connection over the network; pending forever if there is no address.
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.tcp {
            Some(tcp) => tcp.accept().await,
            None => std::future::pending().await,
        }
    }

    /// Answers requests until `stop` completes, then for the drain time, then lets requests and steps under way finish
    /// until the shutdown timeout.
    pub async fn serve(self, app: &Arc<App>, router: Router, stop: impl Future<Output = ()>) {
        let connections = Starter {
            app: Arc::clone(app),
            router,
            graceful: GracefulShutdown::new(),
            tls: self.tls.clone(),
        };
        let mut background = JoinSet::new();
        if let Some(tls) = self.tls.clone() {
            background.spawn(tls::keep_renewing(tls));
        }
        let measured = Arc::clone(app);
        background.spawn(async move {
            measured.metrics.keep_measuring(&*measured.service.gate.store).await;
        });
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
        background.shutdown().await;
    }

    async fn accept_until(&self, connections: &Starter, end: impl Future<Output = ()>) {
        let mut end = pin!(end);
        loop {
            // In random order: a flood at one listener must not keep the other waiting.
            tokio::select! {
                () = &mut end => return,
                accepted = self.accept() => match accepted {
                    Ok((stream, address)) => connections.begin_tcp(stream, address),
                    Err(error) => connections.not_accepted(&error).await,
                },
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, _)) => {
                        if let Some(process) = peer::owner(&stream) {
                            connections.begin(stream, Peer::Local(process));
                        }
                    }
                    Err(error) => connections.not_accepted(&error).await,
                },
            }
        }
    }
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

/// Starts a task for each connection.
struct Starter {
    app: Arc<App>,
    router: Router,
    graceful: GracefulShutdown,
    tls: Option<Arc<Tls>>,
}

impl Starter {
    fn begin_tcp(&self, stream: TcpStream, address: SocketAddr) {
        // A response is one write: Nagle's algorithm would only delay it.
        let _ = stream.set_nodelay(true);
        let peer = Peer::Address(address.ip());
        match &self.tls {
            Some(tls) => self.begin_tls(Arc::clone(tls), stream, peer),
            None => self.begin(stream, peer),
        }
    }

    /// Accepts connections that are still in the listen queue: for the clients they are already established.
    fn begin_waiting(&self, listener: &std::net::TcpListener) {
        // The listener is non-blocking: an empty queue is an error.
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
        match self.slot(peer) {
            Some(slot) => start(slot.open.connection(), slot.serve(stream)),
            None => drop(tokio::spawn(refuse_over_limit(stream))),
        }
    }

    /// INVARIANT: the handshake runs in the connection's own task, with a place and a timeout. No later connection
    /// waits for it.
    fn begin_tls(&self, tls: Arc<Tls>, stream: TcpStream, peer: Peer) {
        // Over the connection limit: close before the TLS handshake, because an answer would need one.
        let Some(slot) = self.slot(peer) else { return };
        let mut leaving = self.app.service.leaving();
        start(slot.open.connection(), async move {
            let handshake = tokio::time::timeout(slot.app.limits.head_timeout, tls.accept(stream));
            let shaken = tokio::select! {
                shaken = handshake => shaken,
                // The client has sent no request yet, so shutdown need not wait.
                () = wait_until_set(&mut leaving) => return,
            };
            match shaken {
                Ok(Ok(Some(stream))) => slot.serve(stream).await,
                Ok(Ok(None)) => {}
                Ok(Err(_)) | Err(_) => slot.app.metrics.malformed(),
            }
        });
    }

    /// Takes a place for one more connection. At the limit another one gives way; none if all are in use.
    fn slot(&self, peer: Peer) -> Option<ConnectionSlot> {
        let network = match peer {
            Peer::Address(address) => Some(Network::of(address)),
            Peer::Local(_) => None,
        };
        let refused = |limit| match network {
            Some(network) => self.app.metrics.refusals.count(limit, &network),
            None => self.app.metrics.refusals.count(limit, &"the socket"),
        };
        let Ok((open, gave_way)) = self.app.listener(peer).connections.add(network) else {
            refused(Limit::Connections);
            return None;
        };
        gave_way.into_iter().for_each(refused);
        Some(ConnectionSlot {
            peer,
            open,
            counted: self.app.metrics.connection(),
            app: Arc::clone(&self.app),
            router: self.router.clone(),
            watcher: self.graceful.watcher(),
        })
    }

    /// After a failed accept: most likely too many files are open. One that is not in use is closed; where there is
    /// none, a pause may help.
    async fn not_accepted(&self, error: &io::Error) {
        self.app.metrics.refusals.count(Limit::OpenFiles, error);
        let pause = match self.app.network.connections.make_room() {
            // The task that was ended closes its file when it runs. Without a pause, a busy process would end
            // every other connection meanwhile.
            Ok(()) => Duration::from_millis(5),
            Err(Full) => Duration::from_millis(100),
        };
        tokio::time::sleep(pause).await;
    }
}

/// Runs a connection in a task of its own, which ends when the connection has to give way.
fn start(connection: Connection, task: impl Future<Output = ()> + Send + 'static) {
    connection.runs_in(tokio::spawn(task).abort_handle());
}

/// The place of one connection, and what it needs to be served.
struct ConnectionSlot {
    peer: Peer,
    open: OpenConnection,
    counted: CountedConnection,
    app: Arc<App>,
    router: Router,
    watcher: Watcher,
}

impl ConnectionSlot {
    async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { peer, open, counted, app, router, watcher } = self;
        let (known, checked) = (open.connection(), Arc::clone(&app));
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let mut request: Request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(known.clone());
            let (router, app) = (router.clone(), Arc::clone(&checked));
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
        drop((open, counted));
    }
}

/// Over the connection limit: sends a short refusal, then closes.
async fn refuse_over_limit<S: AsyncWrite + Unpin>(mut stream: S) {
    let _ = stream.write_all(wire::too_many_connections().as_bytes()).await;
    let _ = stream.shutdown().await;
}
