//! How connections are opened, and with what settings.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts,
};
use rustls::{ClientConfig, RootCertStore};
use stepgate_core::ports::StoreError;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{OpenError, while_connecting, while_open, while_opening, while_waiting};
use super::link::BY_KEYS;
use super::point::Durability;
use super::pooler;
use super::schema;
use super::servers::{RustlsStream, Servers};
use crate::Result;
use crate::locks::LOCK_WAIT_DEFAULT;
use crate::tables::SchemaState;

/// The oldest PostgreSQL version that is tested.
const SERVER_VERSION_MIN: (i64, &str) = (150_000, "15");

/// The limits of a [`super::PostgresStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// This node's name.
    pub node_id: String,
    /// Limit of the write queue; further callers wait for a place in it.
    pub queue_jobs_max: usize,
    /// Most writes in one commit.
    pub batch_jobs_max: usize,
    /// How many connections read at a time. Four more write, look up keys, renew the lease and listen. A
    /// fifth asks for the result of a commit whose answer was lost.
    pub readers_max: usize,
    /// How long a caller waits for a trace's lock.
    pub lock_wait: Duration,
    /// Timeout for opening a connection, and for waiting for a free one.
    pub connect_wait: Duration,
    /// Timeout for an answer of the server; after it the connection is closed.
    pub answer_wait: Duration,
    /// How long a node's lease is valid without a renewal.
    pub lease: Duration,
    /// How much of the lease must be left to send a call.
    pub dispatch_margin: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            node_id: "node".into(),
            queue_jobs_max: 4096,
            batch_jobs_max: 256,
            readers_max: 8,
            lock_wait: LOCK_WAIT_DEFAULT,
            connect_wait: Duration::from_secs(5),
            answer_wait: Duration::from_secs(30),
            lease: Duration::from_secs(6),
            dispatch_margin: Duration::from_secs(2),
        }
    }
}

/// The address of a store, and how to connect to it.
#[derive(Clone)]
pub(super) struct Address {
    config: Config,
    servers: Servers,
    /// Timeout for opening a connection.
    wait: Duration,
    /// The URL without its password.
    pub(super) shown: String,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.shown)
    }
}

impl Address {
    /// Reads a URL. Without `sslmode`, another machine is connected to with TLS only, and this machine
    /// without TLS.
    pub(super) fn of(url: &str, options: &PostgresOptions) -> Result<Self, OpenError> {
        let shown = without_password(url);
        let wrong = |detail: String| OpenError::Url { shown: shown.clone(), detail };
        // TLS here always verifies the server fully, but the driver knows only the name `require`.
        let spelled = url.replace("sslmode=verify-full", "sslmode=require");
        let mut config: Config = spelled.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            wrong(cause.unwrap_or_else(|| error.to_string()))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(wrong("it names no host".into()));
        }
        if !url.contains("sslmode=") {
            let mode = if is_local(&config) { SslMode::Disable } else { SslMode::Require };
            config.ssl_mode(mode);
        }
        config
            .application_name(format!("stepgate {}", options.node_id))
            .connect_timeout(options.connect_wait)
            .tcp_user_timeout(options.answer_wait)
            .keepalives_idle(Duration::from_secs(10));
        let wait = options.connect_wait;
        let servers = Servers::new(MakeRustlsConnect::new(tls().map_err(wrong)?), wait);
        Ok(Self { config, servers, wait, shown })
    }

    /// A connection outside the pool, with the future that drives it; none if no server answers in time.
    pub(super) async fn connect(&self) -> Option<(Client, Connection<Socket, RustlsStream>)> {
        let connecting = self.servers.connect(&self.config);
        tokio::time::timeout(self.wait, connecting).await.ok()?.ok()
    }

    /// A pool of connections with the store's settings; none is open yet.
    ///
    /// They are not read-only by default: with `target_session_attrs=read-write` in the URL, the driver would take
    /// every server for one that does not write. What only reads says so in its transaction.
    pub(super) fn pool(&self, options: &PostgresOptions) -> Pool {
        let mut config = self.config.clone();
        let given = config.get_options().unwrap_or_default();
        // A node that stops in the middle of a transaction holds locks on rows that other nodes need, so
        // there are timeouts. Statements wait for such rows and then see their new state, whatever isolation
        // level the database has by default. To compile a query would take longer than the query.
        config.options(format!(
            "{given} -c jit=off -c idle_in_transaction_session_timeout=5s -c lock_timeout=10s \
             -c default_transaction_isolation=read\\ committed"
        ));
        let fast = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(config, self.servers.clone(), fast);
        let pool = Pool::builder(manager)
            .max_size(options.readers_max.max(1))
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(options.connect_wait),
                create: Some(options.connect_wait),
                recycle: Some(options.connect_wait),
            });
        // It only fails without a runtime, which is named above.
        #[expect(clippy::expect_used, reason = "the one error is that no runtime is named")]
        pool.build().expect("a runtime is named")
    }
}

/// Opens connections that their owner keeps.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    pub(super) pool: Pool,
    shown: Arc<str>,
    wait: Duration,
}

impl Lines {
    /// They come from a pool of their own, which never gets them back: so the writer never waits behind
    /// readers, and readers do not take the places of the kept connections.
    pub(super) fn new(address: &Address, options: &PostgresOptions) -> Self {
        let pool = address.pool(options);
        Self { pool, shown: address.shown.as_str().into(), wait: options.connect_wait }
    }

    /// A connection for statements by key. For writes that must be durable before the answer, the server's
    /// settings are checked: it may be another server than at the start, or configured differently.
    pub(super) async fn open(&self, durability: Durability) -> Result<ClientWrapper> {
        let opening = async {
            let fresh = self.pool.get().await.map_err(|error| while_waiting(&error))?;
            let fresh = Object::take(fresh);
            let set = match durability {
                Durability::Before => {
                    let checked = check_server(&fresh, &self.shown, false).await;
                    checked.map_err(|error| StoreError::Unavailable(error.to_string()))?;
                    BY_KEYS.to_owned()
                }
                Durability::After => format!("{BY_KEYS}; SET synchronous_commit = off"),
            };
            fresh.batch_execute(&set).await.map_err(|error| while_open(&error))?;
            Ok(fresh)
        };
        let slow = |_| StoreError::Unavailable("PostgreSQL is too slow, or away".into());
        tokio::time::timeout(self.wait, opening).await.map_err(slow)?
    }
}

/// The first connection of a store: checks the server and the database.
pub(super) async fn first(
    pool: &Pool,
    shown: &str,
    is_read_only: bool,
) -> Result<Object, OpenError> {
    if !is_read_only {
        // Before anything is written through it.
        drop(connected(pool, shown, false).await?);
        pooler::refuse(pool, shown).await?;
    }
    let mut connection = connected(pool, shown, is_read_only).await?;
    if is_read_only {
        let supported = schema::supported_version();
        return match schema::state(&connection, shown).await? {
            SchemaState::Store(found) if found == supported => Ok(connection),
            SchemaState::Store(found) => {
                Err(OpenError::OlderVersion { shown: shown.to_owned(), found, supported })
            }
            SchemaState::Empty => Err(OpenError::Missing { shown: shown.to_owned() }),
        };
    }
    schema::migrate(&mut connection, shown).await?;
    Ok(connection)
}

/// A connection to a server that meets the requirements, whatever the database contains.
pub(super) async fn connected(
    pool: &Pool,
    shown: &str,
    is_read_only: bool,
) -> Result<Object, OpenError> {
    let connection = pool.get().await.map_err(|error| while_connecting(shown, &error))?;
    check_server(&connection, shown, is_read_only).await?;
    Ok(connection)
}

async fn check_server(client: &Client, shown: &str, is_read_only: bool) -> Result<(), OpenError> {
    let lift = |error: tokio_postgres::Error| while_opening(shown, &error);
    let sql = "SELECT current_setting('server_version_num')::bigint,
                      current_setting('server_version'), current_setting('server_encoding'),
                      current_setting('fsync'), current_setting('transaction_read_only'),
                      current_setting('synchronous_commit')";
    let row = client.query_typed_one(sql, &[]).await.map_err(lift)?;
    let (number, needed) = SERVER_VERSION_MIN;
    let text = |column: usize| row.get::<_, String>(column);
    let shown = shown.to_owned();
    if row.get::<_, i64>(0) < number {
        return Err(OpenError::OldServer { shown, found: text(1), needed });
    }
    if !is_read_only && text(4) == "on" {
        return Err(OpenError::ReadOnly { shown });
    }
    let lost = "on, or a crash loses what was acknowledged";
    let wrong = match (text(2).as_str(), text(3).as_str(), text(5).as_str()) {
        ("UTF8", _, _) if is_read_only => None,
        ("UTF8", "on", "off") => Some(("synchronous_commit", "off".to_owned(), lost)),
        ("UTF8", "on", _) => None,
        ("UTF8", fsync, _) => Some(("fsync", fsync.to_owned(), lost)),
        (encoding, _, _) => Some(("server_encoding", encoding.to_owned(), "UTF8")),
    };
    match wrong {
        None => Ok(()),
        Some((setting, found, needed)) => Err(OpenError::Setting { shown, setting, found, needed }),
    }
}

/// The system's certificates, with aws-lc as everywhere else in this program.
fn tls() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for certificate in found.certs {
        // A certificate that cannot be parsed is skipped.
        let _added = roots.add(certificate);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Whether every host is this machine.
fn is_local(config: &Config) -> bool {
    let is_loopback = |name: &str| {
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let hosts = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => is_loopback(name),
        Host::Unix(_) => true,
    });
    hosts && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

/// The URL for messages.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return "a text that is no URL".into();
    };
    let rest = match rest.rsplit_once('@') {
        Some((user, place)) => {
            let name = user.split(':').next().unwrap_or_default();
            format!("{name}@{place}")
        }
        None => rest.to_owned(),
    };
    // Parameters can contain a password too.
    let place = rest.split('?').next().unwrap_or_default();
    format!("{scheme}://{place}")
}

#[cfg(test)]
mod tests;
