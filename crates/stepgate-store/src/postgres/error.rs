//! How PostgreSQL's errors are mapped for callers of the store.

use deadpool_postgres::PoolError;
use stepgate_core::journal::StateCode;
use stepgate_core::ports::StoreError;
use tokio_postgres::error::SqlState;

use crate::plan::refusal;

/// A statement changed another number of rows than the writer expected.
pub(super) const UNEXPECTED: &str = "SG001";
/// One of our triggers refused.
const REFUSED: &str = "SG002";

/// Why a store could not be opened. Each message gives the remedy.
#[derive(Debug, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "`shown` is the URL without its password, and the messages say what the rest is"
)]
pub enum OpenError {
    /// The URL cannot be read.
    #[error(
        "`{shown}` is not the URL of a PostgreSQL database ({detail}); write it as postgres://USER@HOST:PORT/DATABASE"
    )]
    Url { shown: String, detail: String },
    /// The server does not answer.
    #[error(
        "PostgreSQL at `{shown}` does not answer ({detail}); check that the server runs, and the host and port"
    )]
    Away { shown: String, detail: String },
    /// There is no TLS, or the server's certificate is not trusted.
    #[error(
        "PostgreSQL at `{shown}` cannot be trusted ({detail}); name the file with its certificate in SSL_CERT_FILE, or write sslmode=disable where nobody can listen"
    )]
    Untrusted { shown: String, detail: String },
    /// The server refuses the credentials.
    #[error(
        "PostgreSQL at `{shown}` refuses these credentials ({detail}); check user, password and pg_hba.conf"
    )]
    Credentials { shown: String, detail: String },
    /// The server has no such database.
    #[error("there is no database at `{shown}`; make it first, for example with `createdb`")]
    NoDatabase { shown: String },
    /// The role may not make or use the tables.
    #[error(
        "the role of `{shown}` may not do what a store needs ({detail}); let it own the database, or grant it CREATE on the schema"
    )]
    Permission { shown: String, detail: String },
    /// The server is a standby, or set to read-only.
    #[error("PostgreSQL at `{shown}` is read-only; name the primary, or end its read-only mode")]
    ReadOnly { shown: String },
    /// The disk is full.
    #[error("the disk of PostgreSQL at `{shown}` is full; free some space and start again")]
    DiskFull { shown: String },
    /// Rows of an older version cannot be brought into the present layout.
    #[error(
        "the store at `{shown}` cannot be brought up to date ({detail}); verify it with the version that wrote it, or restore a backup"
    )]
    Unmoved { shown: String, detail: String },
    /// The server is too old.
    #[error("PostgreSQL {found} at `{shown}` is too old; {needed} or newer is needed")]
    OldServer { shown: String, found: String, needed: &'static str },
    /// The server is configured so that it can lose acknowledged commits, or change what is written.
    #[error("PostgreSQL at `{shown}` has {setting} = {found}, and a store needs {needed}")]
    Setting { shown: String, setting: &'static str, found: String, needed: &'static str },
    /// The settings of a connection do not stay with it.
    #[error(
        "PostgreSQL at `{shown}` is behind a connection pooler that {detail}; name PostgreSQL itself, or a pooler that keeps one server connection for each client (PgBouncer: pool_mode = session) with the settings that docs/nodes.md names"
    )]
    Pooler { shown: String, detail: &'static str },
    /// The store was written by a newer Stepgate.
    #[error(
        "the store at `{shown}` has schema version {found}, and this Stepgate knows {supported}; use the newer Stepgate that wrote it"
    )]
    NewerVersion { shown: String, found: i64, supported: i64 },
    /// The store needs a migration, but it was opened for reading only.
    #[error(
        "the store at `{shown}` has schema version {found}, older than {supported}; run a command that writes once, and it is brought up to date"
    )]
    OlderVersion { shown: String, found: i64, supported: i64 },
    /// The schema has tables of the same names from another program.
    #[error(
        "the schema at `{shown}` has a table `{table}` of another program; name another database or schema"
    )]
    Foreign { shown: String, table: String },
    /// There is no store to read.
    #[error("there is no store at `{shown}` yet; a command that writes makes it")]
    Missing { shown: String },
    /// Anything else that PostgreSQL reports.
    #[error("the store at `{shown}` cannot be opened: {detail}")]
    Other { shown: String, detail: String },
}

/// The meaning of an error while a store is opened.
pub(super) fn while_opening(shown: &str, error: &tokio_postgres::Error) -> OpenError {
    let (shown, detail) = (shown.to_owned(), told(error));
    let Some(code) = error.code() else {
        // The driver distinguishes these errors only by their text.
        return match detail.contains("TLS") {
            true => OpenError::Untrusted { shown, detail },
            false if error.is_closed() || has_io(error) => OpenError::Away { shown, detail },
            false => OpenError::Other { shown, detail },
        };
    };
    match code.code() {
        "3D000" => OpenError::NoDatabase { shown },
        "25006" => OpenError::ReadOnly { shown },
        "42501" => OpenError::Permission { shown, detail },
        "53100" => OpenError::DiskFull { shown },
        "57P01" | "57P02" | "57P03" | "53300" => OpenError::Away { shown, detail },
        code if code.starts_with("28") => OpenError::Credentials { shown, detail },
        _ => OpenError::Other { shown, detail },
    }
}

/// The meaning of an error of the pool while a store is opened.
pub(super) fn while_connecting(shown: &str, error: &PoolError) -> OpenError {
    match error {
        PoolError::Backend(error) => while_opening(shown, error),
        PoolError::Timeout(_)
        | PoolError::Closed
        | PoolError::NoRuntimeSpecified
        | PoolError::PostCreateHook(_) => {
            OpenError::Away { shown: shown.to_owned(), detail: error.to_string() }
        }
    }
}

/// The meaning of an error for a caller of the store. Nothing was written.
pub(super) fn while_open(error: &tokio_postgres::Error) -> StoreError {
    let said = told(error);
    let Some(code) = error.code() else {
        return StoreError::Unavailable(format!("the connection to PostgreSQL failed: {said}"));
    };
    match code.code() {
        "25006" => StoreError::Unavailable(
            "PostgreSQL is read-only: a standby, or set so; name the primary".into(),
        ),
        "53100" => StoreError::Unavailable(
            "the disk of PostgreSQL is full; free some space and try again".into(),
        ),
        "53300" => StoreError::Unavailable(
            "PostgreSQL has too many connections; raise max_connections, or lower the pool".into(),
        ),
        "57P01" | "57P02" | "57P03" => {
            StoreError::Unavailable(format!("PostgreSQL is stopping or starting: {said}"))
        }
        "XX001" | "XX002" => StoreError::Broken(format!(
            "the database is damaged ({said}); stop, restore a backup and verify it"
        )),
        code if code.starts_with("28") => {
            StoreError::Unavailable(format!("PostgreSQL refuses the credentials: {said}"))
        }
        // The server was restored, or a standby took over without the last commits, and lost the node's row.
        UNEXPECTED if said.starts_with("nodes:") => StoreError::Unavailable(
            "PostgreSQL does not know this node any more; it registers again in a moment".into(),
        ),
        UNEXPECTED if said.starts_with("synchronous_commit:") => StoreError::Unavailable(
            "PostgreSQL has synchronous_commit = off, and a crash would lose what it acknowledges; \
             set it to on"
                .into(),
        ),
        code if code.starts_with("23") || code == UNEXPECTED || code == REFUSED => {
            refusal(StateCode::InvalidTransition, format!("the database refused a row: {said}"))
        }
        _ => StoreError::Unavailable(said),
    }
}

/// The meaning of an error of the pool. Nothing was written.
pub(super) fn while_waiting(error: &PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => while_open(error),
        PoolError::Timeout(_) => StoreError::Unavailable(
            "PostgreSQL is too slow, or away: no connection was free in time".into(),
        ),
        PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            StoreError::Unavailable(error.to_string())
        }
    }
}

/// Whether the server itself refused, so that nothing of the transaction can be durable.
pub(super) fn is_refusal(error: &tokio_postgres::Error) -> bool {
    // A server that is shutting down also reports that on connections whose commit may have succeeded.
    error.code().is_some_and(|code| !code.code().starts_with("57P"))
}

/// Whether the server does not write: a standby, as the primary is after a failover, or set so.
pub(super) fn is_read_only(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Whether the server would refuse every other write as well.
pub(super) fn takes_nothing(error: &tokio_postgres::Error) -> bool {
    let is_lossy = |said: String| said.starts_with("synchronous_commit:");
    error.code().is_some_and(|code| match code.code() {
        // Read-only, disk full, out of connections, statement timeout, or synchronous_commit off.
        "25006" | "53100" | "53300" | "57014" => true,
        UNEXPECTED => is_lossy(told(error)),
        code => code.starts_with("58"),
    })
}

/// Whether the server no longer has the prepared statement as it was.
pub(super) fn is_outdated(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::FEATURE_NOT_SUPPORTED || *code == SqlState::INVALID_SQL_STATEMENT_NAME
    })
}

/// Whether the statement failed only because an earlier one did.
pub(super) fn is_aftermath(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
}

/// The error with its causes.
fn told(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => match std::error::Error::source(error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    }
}

fn has_io(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<std::io::Error>() {
            return true;
        }
        cause = error.source();
    }
    error.to_string().contains("connect") || error.to_string().contains("timeout")
}

#[cfg(test)]
mod tests;
