//! Statements on a connection, sent all at once: one round trip for as many as there are.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use super::error::{is_aftermath, is_outdated};

/// How statements by keys are done: each is planned once, and finds its rows by an index whatever the
/// server believes about the size of a table. A plan that was made for an empty table would read all of
/// it ever after.
pub(super) const BY_KEYS: &str =
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

/// Fails where the commit would be acknowledged before it is durable, and keeps whoever reloads the server's
/// settings from making it so until the commit. The condition of what a node believes after the answer.
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
}

/// The transaction around statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Around {
    /// None of their own: one statement, or a transaction that goes on.
    Nothing,
    /// One that reads, so that everything is of one moment.
    Snapshot,
    /// One that begins, and stays open.
    Begin,
    /// One that began before, and ends in a commit.
    Commit,
    /// One that begins and ends in a commit.
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

/// Why statements were not done.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server, or the connection to it, says so.
    Told(Error),
    /// Nobody says anything.
    Silent(Duration),
}

/// Sends all statements without waiting in between, and answers the rows of each.
///
/// After one that fails the server does none of the others, and ends the transaction without a commit:
/// so the answer is whole or an error. Nothing is left open where the caller leaves, because everything
/// was sent at the first poll.
pub(super) async fn send(
    client: &ClientWrapper,
    around: Around,
    queries: &[Query],
    patience: Duration,
) -> Result<Vec<Vec<Row>>, Failed> {
    let sending = async {
        match prepared(client, around, queries).await {
            // The tables are others than when the statements were prepared, or somebody made the server
            // forget them. It has done nothing, so it is asked again.
            Err(error) if is_outdated(&error) => {
                client.statement_cache.clear();
                match around {
                    Around::Nothing | Around::Snapshot | Around::Whole => {
                        prepared(client, around, queries).await
                    }
                    // What began before is over.
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
    // What was refused first is the reason; what came after it could only fail.
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

/// Polls all in the order in which they stand, so that they are sent in that order.
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
