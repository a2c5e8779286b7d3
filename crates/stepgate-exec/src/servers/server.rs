//! One tool server: connected, watched, started again when it dies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use stepgate_core::json::Value;
use tokio::sync::{Notify, Semaphore, watch};

use super::breaker::Breaker;
use super::catalog::{Catalog, Pins};
use super::child::{Child, Start};
use super::err::StartError;
use super::mcp::{Connection, Endpoint};
use super::spec::{ServerSpec, Transport};
use crate::launcher::Launcher;

/// One tool server.
pub(super) struct Server {
    pub(super) spec: ServerSpec,
    pub(super) catalog: RwLock<Catalog>,
    pub(super) permits: Arc<Semaphore>,
    pub(super) late_permits: Arc<Semaphore>,
    pins: Pins,
    endpoint: Option<Endpoint>,
    launcher: Launcher,
    breaker: Mutex<Breaker>,
    line: watch::Sender<Line>,
    list_changed: Arc<Notify>,
}

/// Whether a server can be spoken to.
#[derive(Clone)]
pub(super) enum Line {
    Up(Arc<Connection>),
    Down(String),
}

/// A connection, and the process behind it where it is ours.
struct Link {
    connection: Arc<Connection>,
    child: Option<Child>,
}

/// A server that could not be connected to.
struct Refusal {
    why: String,
    stderr: Vec<String>,
}

impl Server {
    /// Connects to a server and reads its tools; everything must be as configured.
    pub(super) async fn start(
        spec: ServerSpec,
        launcher: Launcher,
        pins: Pins,
        stop: watch::Receiver<bool>,
    ) -> Result<Arc<Self>, StartError> {
        let endpoint = match &spec.transport {
            Transport::Stdio { .. } => None,
            Transport::Http { url, headers } => Some(
                Endpoint::read(url, headers)
                    .map_err(|why| StartError::Address { server: spec.name.clone(), why })?,
            ),
        };
        let limits = &spec.limits;
        let mut server = Self {
            catalog: RwLock::default(),
            permits: Arc::new(Semaphore::new(limits.concurrency)),
            late_permits: Arc::new(Semaphore::new(limits.late_max)),
            breaker: Mutex::new(Breaker::new(limits.breaker_failures_max, limits.breaker_pause)),
            line: watch::Sender::new(Line::Down("it is being started".to_owned())),
            list_changed: Arc::new(Notify::new()),
            pins,
            endpoint,
            launcher,
            spec,
        };
        let (link, list) = server.connect().await.map_err(|Refusal { why, stderr }| {
            StartError::Start { server: server.spec.name.clone(), why, stderr }
        })?;
        server.catalog = RwLock::new(server.read(list).await?);
        server.line.send_replace(Line::Up(Arc::clone(&link.connection)));
        let server = Arc::new(server);
        tokio::spawn(Arc::clone(&server).supervise(link, stop));
        Ok(server)
    }

    /// Connects, and asks for the list of tools, within the time that a start may take.
    async fn connect(&self) -> Result<(Link, Vec<Value>), Refusal> {
        let (child, ends) = match self.child() {
            Ok(Some((child, ends))) => (Some(child), Some(ends)),
            Ok(None) => (None, None),
            Err(error) => {
                let why = format!("it cannot be launched: {error}");
                return Err(Refusal { why, stderr: vec![] });
            }
        };
        let limits = &self.spec.limits;
        let speak = async {
            let news = Arc::clone(&self.list_changed);
            let connection = match (ends, &self.endpoint) {
                (Some(ends), _) => {
                    Connection::over_stdio(ends.stdin, ends.stdout, limits, news).await?
                }
                (None, Some(endpoint)) => Connection::over_http(endpoint, limits, news).await?,
                (None, None) => return Err("it has neither a process nor a URL".to_owned()),
            };
            let list = connection.list().await?;
            Ok((connection, list))
        };
        let spoken = tokio::time::timeout(limits.start_wait, speak).await;
        match spoken.unwrap_or_else(|_| Err(too_slow(limits.start_wait))) {
            Ok((connection, list)) => Ok((Link { connection: Arc::new(connection), child }, list)),
            Err(why) => {
                let stderr = match child {
                    Some(child) => child.end().await,
                    None => vec![],
                };
                Err(Refusal { why, stderr })
            }
        }
    }

    fn child(&self) -> std::io::Result<Option<(Child, super::child::Ends)>> {
        match &self.spec.transport {
            Transport::Http { .. } => Ok(None),
            Transport::Stdio { command, args, env, directory } => Child::start(&Start {
                launcher: &self.launcher,
                hidden: &self.spec.hidden,
                command,
                args,
                env,
                directory: directory.as_ref(),
            })
            .map(Some),
        }
    }

    /// Watches the server until it shall stop.
    async fn supervise(self: Arc<Self>, first: Link, mut stop: watch::Receiver<bool>) {
        let mut link = first;
        let mut pause = self.spec.limits.restart_pause_min;
        loop {
            let up_since = Instant::now();
            let why = tokio::select! {
                why = self.attend(&link) => why,
                () = stopped(&mut stop) => {
                    self.line.send_replace(Line::Down("it was stopped".to_owned()));
                    return link.leave(self.spec.limits.end_wait).await;
                }
            };
            self.line.send_replace(Line::Down(why));
            drop(link);
            if up_since.elapsed() >= self.spec.limits.restart_reset {
                pause = self.spec.limits.restart_pause_min;
            }
            link = tokio::select! {
                link = self.reconnect(&mut pause) => link,
                () = stopped(&mut stop) => return,
            };
            self.line.send_replace(Line::Up(Arc::clone(&link.connection)));
        }
    }

    /// Looks at the tools again whenever they change, until the connection ends; gives the reason.
    async fn attend(&self, link: &Link) -> String {
        loop {
            tokio::select! {
                why = link.connection.closed() => return why,
                () = self.list_changed.notified() => {
                    let list = link.connection.list();
                    match tokio::time::timeout(self.spec.limits.start_wait, list).await {
                        Ok(Ok(list)) => self.refresh(list).await,
                        // Tools that cannot be known cannot be used.
                        Ok(Err(why)) => return why,
                        Err(_) => return too_slow(self.spec.limits.start_wait),
                    }
                    // A list that never stays the same keeps nobody busy.
                    tokio::select! {
                        why = link.connection.closed() => return why,
                        () = tokio::time::sleep(self.spec.limits.relist_pause) => {}
                    }
                }
            }
        }
    }

    /// Tries again and again, each time after a longer pause.
    async fn reconnect(&self, pause: &mut Duration) -> Link {
        loop {
            tokio::time::sleep(*pause).await;
            *pause = pause.saturating_mul(2).min(self.spec.limits.restart_pause_max);
            match self.connect().await {
                Ok((link, list)) => {
                    self.refresh(list).await;
                    return link;
                }
                Err(Refusal { why, stderr }) => {
                    let why = stderr.last().map_or(why.clone(), |last| format!("{why}: {last}"));
                    self.line.send_replace(Line::Down(why));
                }
            }
        }
    }

    /// Reads the first list of the server. Schemas are somebody else's programs: they are compiled where
    /// nobody waits.
    async fn read(&self, list: Vec<Value>) -> Result<Catalog, StartError> {
        let (spec, pins) = (self.spec.clone(), self.pins.clone());
        let read = tokio::task::spawn_blocking(move || Catalog::read(&spec, &list, &pins)).await;
        read.unwrap_or_else(|stopped| {
            let why = format!("its list of tools was not read: {stopped}");
            Err(StartError::Start { server: self.spec.name.clone(), why, stderr: vec![] })
        })
    }

    /// Reads the list of the server again. The tools are looked at as they were until it is read, and the
    /// lock is held for a moment only.
    async fn refresh(&self, list: Vec<Value>) {
        let before = self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (spec, pins) = (self.spec.clone(), self.pins.clone());
        let read = tokio::task::spawn_blocking(move || before.refreshed(&spec, &list, &pins)).await;
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        *catalog = match read {
            Ok(catalog) => catalog,
            // Tools that cannot be known cannot be used.
            Err(_) => std::mem::take(&mut *catalog).refreshed(&self.spec, &[], &self.pins),
        };
        // An operator may have accepted a tool meanwhile.
        catalog.compare_all(&self.pins);
    }

    pub(super) fn line(&self) -> Line {
        self.line.borrow().clone()
    }

    pub(super) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Says goodbye: the connection ends, and the process by itself if it can.
    async fn leave(self, wait: Duration) {
        let Self { connection, child } = self;
        connection.end();
        if let Some(child) = child {
            child.leave(wait).await;
        }
    }
}

fn too_slow(wait: Duration) -> String {
    format!("it did not answer within {} ms", wait.as_millis())
}

/// Returns when the servers shall stop, or nobody is left who could say so.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
