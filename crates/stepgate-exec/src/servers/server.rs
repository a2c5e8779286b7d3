//! One tool server: connects, watches, and restarts it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use stepgate_core::json::Value;
use stepgate_core::lock::{self, locked};
use stepgate_core::tool::ToolName;
use tokio::sync::{Notify, Semaphore, watch};

use super::breaker::Breaker;
use super::catalog::Catalog;
use super::child::Child;
use super::err::StartError;
use super::mcp::{Connection, Endpoint};
use super::off::{self, News, Off, Reason, Tell};
use super::pin::Pins;
use super::spec::{Pinning, RELIST_PAUSE, RESTART_RESET, Secret, ServerSpec, Transport};
use crate::launcher::Launcher;

/// Why a server whose first attempt is not finished cannot be called.
const STARTING: &str = "it is still starting";

pub(super) struct Server {
    pub(super) spec: ServerSpec,
    pub(super) catalog: RwLock<Catalog>,
    pub(super) permits: Arc<Semaphore>,
    pub(super) late_permits: Arc<Semaphore>,
    pins: Pins,
    launcher: Launcher,
    breaker: Mutex<Breaker>,
    state: watch::Sender<ConnectionState>,
    list_changed: Arc<Notify>,
    tell: Tell,
}

/// Whether a server can be called.
#[derive(Clone)]
pub(super) enum ConnectionState {
    Up(Arc<Connection>),
    Down(String),
}

type Connecting<'a> = BoxFuture<'a, Result<Connection, String>>;

/// A connection, and the process behind it if we started it.
struct Link {
    connection: Arc<Connection>,
    child: Option<Child>,
}

impl Server {
    /// Connects to a server and reads its tools. A server that is down, is not as configured, or has not
    /// answered within `wait` is retried in the background, unless it is required.
    pub(super) async fn start(
        spec: ServerSpec,
        launcher: Launcher,
        pins: Pins,
        tell: Tell,
        wait: Duration,
        stop: watch::Receiver<bool>,
    ) -> Result<Arc<Self>, StartError> {
        let limits = &spec.limits;
        let server = Arc::new(Self {
            catalog: RwLock::default(),
            permits: Arc::new(Semaphore::new(limits.concurrency)),
            late_permits: Arc::new(Semaphore::new(limits.late_max)),
            breaker: Mutex::new(Breaker::new(limits.breaker_failures_max, limits.breaker_pause)),
            state: watch::Sender::new(ConnectionState::Down(STARTING.to_owned())),
            list_changed: Arc::new(Notify::new()),
            pins,
            launcher,
            tell,
            spec,
        });
        if server.spec.required {
            let link = server.connect().await?;
            if let Some(error) = lock::read(&server.catalog).first_unusable(&server.spec) {
                return Err(error);
            }
            server.state.send_replace(ConnectionState::Up(Arc::clone(&link.connection)));
            tokio::spawn(Arc::clone(&server).supervise(Some(link), stop));
            return Ok(server);
        }
        let mut state = server.state.subscribe();
        let is_waited_for = Arc::new(AtomicBool::new(true));
        tokio::spawn(Arc::clone(&server).begin(Arc::clone(&is_waited_for), stop));
        let _ = tokio::time::timeout(wait, state.changed()).await;
        is_waited_for.store(false, Ordering::Relaxed);
        Ok(server)
    }

    /// The first try, and everything after it. The result of the try is reported as news once the start has
    /// stopped waiting for it.
    async fn begin(
        self: Arc<Self>,
        is_waited_for: Arc<AtomicBool>,
        mut stop: watch::Receiver<bool>,
    ) {
        let connected = tokio::select! {
            connected = self.connect() => connected,
            () = stopped(&mut stop) => return,
        };
        let is_news = !is_waited_for.load(Ordering::Relaxed);
        let link = match connected {
            Ok(link) => {
                self.state.send_replace(ConnectionState::Up(Arc::clone(&link.connection)));
                if is_news {
                    (self.tell)(News::Up(self.spec.name.clone()));
                    self.tell_beside(&[]);
                }
                Some(link)
            }
            Err(error) if is_news => {
                self.down(error.in_short());
                None
            }
            Err(error) => {
                self.state.send_replace(ConnectionState::Down(error.in_short()));
                None
            }
        };
        self.supervise(link, stop).await;
    }

    /// Connects and reads the list of tools, within the start timeout.
    async fn connect(&self) -> Result<Link, StartError> {
        let limits = &self.spec.limits;
        let (child, connecting) =
            self.open().map_err(|why| StartError::start(&self.spec.name, why))?;
        let speak = async {
            let connection = connecting.await?;
            let list = connection.list().await?;
            Ok((connection, list))
        };
        let spoken = tokio::select! {
            spoken = tokio::time::timeout(limits.start_wait, speak) => {
                spoken.unwrap_or_else(|_| Err(too_slow(limits.start_wait)))
            }
            why = flooded(child.as_ref()) => Err(why),
        };
        match spoken {
            Ok((connection, list)) => {
                self.read(list, connection.instructions()).await?;
                Ok(Link { connection: Arc::new(connection), child })
            }
            Err(why) => {
                let stderr = match child {
                    Some(child) => child.end().await,
                    None => vec![],
                };
                Err(StartError::Start { server: self.spec.name.clone(), why, stderr })
            }
        }
    }

    /// Starts the server's process, or reads its address, with the current values of its secrets. The future
    /// connects to it.
    fn open(&self) -> Result<(Option<Child>, Connecting<'_>), String> {
        let (limits, list_changed) = (&self.spec.limits, Arc::clone(&self.list_changed));
        match &self.spec.transport {
            Transport::Http { url, headers } => {
                let endpoint = Endpoint::read(url, headers)?;
                Ok((None, Connection::over_http(endpoint, limits, list_changed).boxed()))
            }
            Transport::Stdio { command, args, env, directory } => {
                let mut command = self.launcher.command(&self.spec.hidden, command, args);
                if let Some(directory) = directory {
                    command.current_dir(directory);
                }
                let (child, ends) = Child::start(command, exposed(env)?)
                    .map_err(|error| format!("it cannot be launched: {error}"))?;
                Ok((Some(child), Connection::over_stdio(ends, limits, list_changed).boxed()))
            }
        }
    }

    /// Watches the server until it is told to stop.
    async fn supervise(self: Arc<Self>, first: Option<Link>, mut stop: watch::Receiver<bool>) {
        let mut link = first;
        let mut pause = self.spec.limits.restart_pause_min;
        loop {
            if let Some(link) = link.take() {
                let up_since = Instant::now();
                let why = tokio::select! {
                    why = self.attend(&link) => why,
                    () = stopped(&mut stop) => {
                        self.state.send_replace(ConnectionState::Down("it was stopped".to_owned()));
                        return link.leave().await;
                    }
                };
                if link.connection.has_misbehaved() || link.has_flooded() {
                    // After a restart it may do the same at once.
                    self.breaker().trip(Instant::now());
                }
                self.down(why);
                if up_since.elapsed() >= RESTART_RESET {
                    pause = self.spec.limits.restart_pause_min;
                }
            }
            let up = tokio::select! {
                up = self.reconnect(&mut pause) => up,
                () = stopped(&mut stop) => return,
            };
            self.state.send_replace(ConnectionState::Up(Arc::clone(&up.connection)));
            (self.tell)(News::Up(self.spec.name.clone()));
            link = Some(up);
        }
    }

    /// Notes that the server is down, and reports that if it is news.
    fn down(&self, why: String) {
        let is_news = match &*self.state.borrow() {
            ConnectionState::Up(_) => true,
            ConnectionState::Down(before) => *before != why,
        };
        self.state.send_replace(ConnectionState::Down(why.clone()));
        if is_news {
            let (server, reason) = (self.spec.name.clone(), Reason::Down(why));
            (self.tell)(News::Off(Off { server, tool: None, reason }));
        }
    }

    /// Reads the tools again whenever they change, until the connection ends; returns the reason.
    async fn attend(&self, link: &Link) -> String {
        loop {
            tokio::select! {
                why = link.ended() => return why,
                () = self.list_changed.notified() => {
                    let list = link.connection.list();
                    match tokio::time::timeout(self.spec.limits.start_wait, list).await {
                        Ok(Ok(list)) => {
                            let before = off::tools_of(self);
                            if let Err(error) = self.read(list, link.connection.instructions()).await {
                                return error.in_short();
                            }
                            self.tell_beside(&before);
                        }
                        // If the tools cannot be listed, the server cannot be used.
                        Ok(Err(why)) => return why,
                        Err(_) => return too_slow(self.spec.limits.start_wait),
                    }
                    // Rate limit: a list that changes all the time must not keep this task busy.
                    tokio::select! {
                        why = link.ended() => return why,
                        () = tokio::time::sleep(RELIST_PAUSE) => {}
                    }
                }
            }
        }
    }

    /// Reports the tools that are off and were not off before.
    fn tell_beside(&self, before: &[Off]) {
        // The tools of a server that is seen for the first time are accepted without an operator.
        let is_first = !self.pins.has_any_of(&self.spec.name);
        let is_news = |off: &Off| {
            let is_trusted = is_first && off.reason == Reason::New;
            !is_trusted && !before.contains(off)
        };
        let news = off::tools_of(self).into_iter().filter(is_news);
        news.for_each(|off| (self.tell)(News::Off(off)));
    }

    /// Retries with backoff.
    async fn reconnect(&self, pause: &mut Duration) -> Link {
        loop {
            tokio::time::sleep(*pause).await;
            *pause = pause.saturating_mul(2).min(self.spec.limits.restart_pause_max);
            let before = off::tools_of(self);
            match self.connect().await {
                Ok(link) => {
                    self.tell_beside(&before);
                    return link;
                }
                Err(error) => self.down(error.in_short()),
            }
        }
    }

    /// Reads the server's list. Schemas are untrusted programs, so they are compiled on a blocking thread.
    /// Until then the old catalog is used, and the lock is held only to replace it.
    async fn read(&self, list: Vec<Value>, instructions: Option<String>) -> Result<(), StartError> {
        let before = lock::read(&self.catalog).clone();
        let (spec, pins) = (self.spec.clone(), self.pins.clone());
        let read = tokio::task::spawn_blocking(move || before.read(&spec, &list, &pins)).await;
        let mut read = read.unwrap_or_else(|stopped| {
            let why = format!("its list of tools was not read: {stopped}");
            Err(StartError::start(&self.spec.name, why))
        })?;
        let mut catalog = lock::write(&self.catalog);
        // An operator may have accepted a tool meanwhile.
        read.compare(&self.spec, &self.pins);
        read.instructions = instructions;
        *catalog = read;
        Ok(())
    }

    /// Whether this is the `_meta` that was accepted with the tool. Where only names and types are pinned,
    /// any is accepted.
    pub(super) fn accepts_meta(&self, name: &ToolName, meta: &Value) -> bool {
        self.spec.pin == Pinning::NamesAndTypes || self.pins.has_meta(name, meta)
    }

    /// Whether a tool was accepted while the server gave these instructions. Where only names and types are
    /// pinned, any are accepted.
    pub(super) fn accepts_instructions(&self, instructions: &str) -> bool {
        self.spec.pin == Pinning::NamesAndTypes
            || self.pins.has_instructions(&self.spec.name, instructions)
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.state.borrow().clone()
    }

    pub(super) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        locked(&self.breaker)
    }
}

impl Link {
    /// Returns when the connection cannot be used any more, with the reason.
    async fn ended(&self) -> String {
        tokio::select! {
            why = self.connection.closed() => why,
            why = flooded(self.child.as_ref()) => why,
        }
    }

    fn has_flooded(&self) -> bool {
        self.child.as_ref().is_some_and(Child::has_flooded)
    }

    /// Closes the connection, and lets the process end by itself if it can.
    async fn leave(self) {
        self.connection.end();
        if let Some(child) = self.child {
            child.leave().await;
        }
    }
}

fn too_slow(wait: Duration) -> String {
    format!("it did not answer within {} ms", wait.as_millis())
}

/// The current values of a server's environment.
fn exposed(env: &BTreeMap<String, Secret>) -> Result<BTreeMap<String, String>, String> {
    let read = env.iter().map(|(name, secret)| match secret.read() {
        Ok(value) => Ok((name.clone(), value)),
        Err(why) => Err(format!("the secret `{name}`: {why}")),
    });
    read.collect()
}

/// Returns when the process has written too much to its standard error, with the reason.
async fn flooded(child: Option<&Child>) -> String {
    match child {
        Some(child) => child.flooded().await,
        None => std::future::pending().await,
    }
}

/// Returns when the servers must stop, or when the sender of that signal is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
