//! The servers that a URL names, and which of them a connection leads to.
//!
//! The driver tries them one after the other too, but its timeout ends with the TCP handshake. A server that takes
//! connections and never answers, because it is stopped or cut off, would keep it from ever trying the next one.

use std::cmp::max;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::Connect;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The stream type of TLS connections.
pub(super) type RustlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Connects to one of the servers: first to the one that it connected to last.
#[derive(Clone)]
pub(super) struct Servers {
    tls: MakeRustlsConnect,
    /// For all of them together.
    wait: Duration,
    last: Arc<AtomicUsize>,
}

impl Servers {
    pub(super) fn new(tls: MakeRustlsConnect, wait: Duration) -> Self {
        Self { tls, wait, last: Arc::default() }
    }

    /// A connection, with the future that drives it. Each server but the last one has its share of the time; the
    /// caller's own timeout ends the last try.
    pub(super) async fn connect(
        &self,
        config: &Config,
    ) -> Result<(Client, Connection<Socket, RustlsStream>), Error> {
        let count = max(config.get_hosts().len(), config.get_hostaddrs().len());
        let share = self.wait / u32::try_from(count).unwrap_or(u32::MAX).max(1);
        let first = self.last.load(Ordering::Relaxed);
        for index in (first..first + count.saturating_sub(1)).map(|index| index % count) {
            let one = server(config, index);
            if let Ok(Ok(connected)) =
                tokio::time::timeout(share, one.connect(self.tls.clone())).await
            {
                self.last.store(index, Ordering::Relaxed);
                return Ok(connected);
            }
        }
        let index = (first + count.saturating_sub(1)) % count.max(1);
        let connected = server(config, index).connect(self.tls.clone()).await?;
        self.last.store(index, Ordering::Relaxed);
        Ok(connected)
    }
}

impl Connect for Servers {
    fn connect(&self, config: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        let config = config.clone();
        Box::pin(async move {
            let (client, connection) = Self::connect(self, &config).await?;
            let driving = tokio::spawn(async move {
                // Callers that use the connection are told why it ended.
                let _ended = connection.await;
            });
            Ok((client, driving))
        })
    }
}

/// The same settings, for one server alone.
fn server(config: &Config, index: usize) -> Config {
    let mut one = Config::new();
    match config.get_hosts().get(index) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(index) {
        one.hostaddr(*address);
    }
    let ports = config.get_ports();
    if let Some(port) = ports.get(index).or(ports.first()) {
        one.port(*port);
    }
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    one
}
