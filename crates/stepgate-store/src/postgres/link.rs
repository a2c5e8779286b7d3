//! Sends the statements of a connection in a pipeline: one round trip for any number of statements.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use super::error::{is_aftermath, is_outdated, is_read_only};
use crate::select::Select;
use crate::tables::Cell;

/// Settings for statements by key: each is planned once, and uses an index whatever the server believes
/// about the size of a table. A plan that was made for an empty table would otherwise scan the whole table
/// from then on.
pub(super) const BY_KEYS: &str =
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

/// Fails if the commit would be acknowledged before it is durable. It also fixes the setting for this
/// transaction, so that a reload of the server's settings cannot change it before the commit. A node may
/// rely on the answer only under this condition.
pub(super) const IS_KEPT: &str = "stepgate_expect('synchronous_commit',
    (set_config('synchronous_commit', current_setting('synchronous_commit'), true) <> 'off')
    ::int::bigint, 1)";

/// A value of a statement.
pub(super) type Value = Box<dyn ToSql + Sync + Send>;

/// One statement with its values.
pub(super) struct Query {
    pub(super) sql: Cow<'static, str>,
    pub(super) values: Vec<Value>,
}

impl Query {
    pub(super) fn new(sql: impl Into<Cow<'static, str>>, values: Vec<Value>) -> Self {
        Self { sql: sql.into(), values }
    }

    pub(super) fn of(
        sql: impl Into<Cow<'static, str>>,
        values: impl IntoIterator<Item = Cell<'static>>,
    ) -> Self {
        Self::new(sql, values.into_iter().map(value).collect())
    }
}

impl<T> From<Select<T>> for Query {
    fn from(select: Select<T>) -> Self {
        Self::of(select.sql, select.values)
    }
}

fn value(cell: Cell<'static>) -> Value {
    match cell {
        Cell::Nothing => Box::new(None::<String>),
        Cell::Number(number) => Box::new(number),
        Cell::Text(text) => Box::new(text.into_owned()),
        Cell::Bytes(bytes) => Box::new(bytes.into_owned()),
    }
}

/// The transaction around statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Around {
    /// No transaction of their own: a single statement, or a transaction that is open already.
    Nothing,
    /// A read-only transaction, so that all statements see one snapshot.
    Snapshot,
    /// Begins a transaction and leaves it open.
    Begin,
    /// Commits a transaction that is open already.
    Commit,
    /// Begins and commits a transaction.
    Whole,
}

impl Around {
    fn before(self) -> Option<&'static str> {
        match self {
            Self::Nothing | Self::Commit => None,
            Self::Snapshot => Some("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
            Self::Begin | Self::Whole => Some("BEGIN ISOLATION LEVEL READ COMMITTED"),
        }
    }

    fn after(self) -> Option<&'static str> {
        match self {
            Self::Nothing | Self::Begin => None,
            Self::Snapshot | Self::Commit | Self::Whole => Some("COMMIT"),
        }
    }
}

/// Why statements failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server, or the connection to it, reported an error.
    Told(Error),
    /// The server did not answer in time.
    Silent(Duration),
}

impl Failed {
    /// Whether another connection may do better: this one has not answered, or leads to a server that does not write any
    /// more.
    pub(super) fn is_of_connection(&self) -> bool {
        match self {
            Self::Told(error) => is_read_only(error),
            Self::Silent(_) => true,
        }
    }
}

/// Sends all statements without waiting in between, and returns the rows of each.
///
/// After one statement fails, the server skips the others and rolls the transaction back: so the answer is
/// complete or an error. If the caller is dropped, nothing is left open, because everything was sent at the
/// first poll.
pub(super) async fn send(
    client: &ClientWrapper,
    around: Around,
    queries: &[Query],
    patience: Duration,
) -> Result<Vec<Vec<Row>>, Failed> {
    let sending = async {
        match prepared(client, around, queries).await {
            // The tables have changed since the statements were prepared, or the server's prepared
            // statements were discarded. The server has done nothing, so the statements are sent again.
            Err(error) if is_outdated(&error) => {
                client.statement_cache.clear();
                match around {
                    Around::Nothing | Around::Snapshot | Around::Whole => {
                        prepared(client, around, queries).await
                    }
                    // The transaction that was open is lost.
                    Around::Begin | Around::Commit => Err(error),
                }
            }
            answer => answer,
        }
    };
    match tokio::time::timeout(patience, sending).await {
        Ok(answer) => answer.map_err(Failed::Told),
        Err(_) => Err(Failed::Silent(patience)),
    }
}

async fn prepared(
    client: &ClientWrapper,
    around: Around,
    queries: &[Query],
) -> Result<Vec<Vec<Row>>, Error> {
    let mut statements = Vec::with_capacity(queries.len());
    for query in queries {
        statements.push(client.prepare_cached(&query.sql).await?);
    }
    all_in_order(client, around, queries, &statements).await
}

type Answering<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

async fn all_in_order(
    client: &ClientWrapper,
    around: Around,
    queries: &[Query],
    statements: &[Statement],
) -> Result<Vec<Vec<Row>>, Error> {
    let bare = |sql: &'static str| -> Answering<'_> {
        Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) })
    };
    let mut answering: Vec<Answering<'_>> = Vec::with_capacity(queries.len() + 2);
    answering.extend(around.before().map(bare));
    for (query, statement) in queries.iter().zip(statements) {
        answering.push(Box::pin(async move {
            let values: Vec<_> = query.values.iter().map(|value| value.as_ref() as _).collect();
            client.query(statement, &values).await
        }));
    }
    answering.extend(around.after().map(bare));
    let mut answers = joined(answering).await;
    if around.before().is_some() {
        answers.remove(0)?;
    }
    // The first error is the reason; the statements after it could only fail.
    let is_reason =
        |answer: &Result<Vec<Row>, Error>| answer.as_ref().is_err_and(|error| !is_aftermath(error));
    if let Some(reason) = answers.iter().position(is_reason) {
        answers.swap(0, reason);
        answers.truncate(1);
    }
    answers.truncate(queries.len().max(1));
    let answered: Result<Vec<_>, _> = answers.into_iter().collect();
    answered
}

/// Polls all futures in order, so that their statements are sent in that order.
async fn joined(mut answering: Vec<Answering<'_>>) -> Vec<Result<Vec<Row>, Error>> {
    let mut answers: Vec<Option<_>> = answering.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_over = true;
        for (answering, answer) in answering.iter_mut().zip(&mut answers) {
            if answer.is_some() {
                continue;
            }
            match answering.as_mut().poll(context) {
                Poll::Ready(ready) => *answer = Some(ready),
                Poll::Pending => is_over = false,
            }
        }
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}
