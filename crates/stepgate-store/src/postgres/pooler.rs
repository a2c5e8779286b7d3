//! Refuses connection poolers that give each transaction another server connection.
//!
//! The settings, prepared statements and subscriptions of a connection belong to one server process. A
//! pooler in transaction mode lends that process to other clients between two transactions, so settings that
//! protect other nodes are lost or leak, and notifications never arrive.

use deadpool_postgres::{ClientWrapper, Object, Pool};

use super::error::{OpenError, while_connecting, while_opening};

/// Which server process answers, and whether it has the settings of our startup packet.
const WHO_ANSWERS: &str = "SELECT pg_backend_pid()::bigint,
    current_setting('idle_in_transaction_session_timeout') = '5s'
    AND current_setting('lock_timeout') = '10s'";

/// Opens two connections and checks whether each keeps its server process and its settings.
///
/// The second connection is in a transaction while the first asks again. So a pooler that reuses the last
/// used server connection shows in the second's answer, and a round-robin pooler in the first's.
pub(super) async fn refuse(pool: &Pool, shown: &str) -> Result<(), OpenError> {
    let (first, second) = (kept(pool, shown).await?, kept(pool, shown).await?);
    let mut of_first = vec![answers(&first, shown).await?];
    let lift = |error: tokio_postgres::Error| while_opening(shown, &error);
    second.batch_execute("BEGIN").await.map_err(lift)?;
    let of_second = answers(&second, shown).await?;
    if of_second.process != of_first.first().map_or(0, |first| first.process) {
        of_first.push(answers(&first, shown).await?);
    }
    second.batch_execute("COMMIT").await.map_err(lift)?;
    for _ in 0..2 {
        of_first.push(answers(&first, shown).await?);
    }
    match judge(&of_first, &of_second) {
        Some(detail) => Err(OpenError::Pooler { shown: shown.to_owned(), detail }),
        None => Ok(()),
    }
}

/// The server process that answered.
#[derive(Clone, Copy, Debug)]
struct ServerProcess {
    process: i64,
    has_our_settings: bool,
}

fn judge(of_first: &[ServerProcess], of_second: &ServerProcess) -> Option<&'static str> {
    let mut all = of_first.iter().chain([of_second]);
    let is_shared = of_first.iter().any(|answer| answer.process == of_second.process);
    let has_moved = of_first.windows(2).any(|pair| match pair {
        [one, next] => one.process != next.process,
        _ => false,
    });
    if is_shared || has_moved {
        Some("gives each transaction another server connection")
    } else if all.any(|answer| !answer.has_our_settings) {
        Some("drops the settings of a connection (`options` in its startup parameters)")
    } else {
        None
    }
}

async fn answers(client: &ClientWrapper, shown: &str) -> Result<ServerProcess, OpenError> {
    let row = client.query_typed_one(WHO_ANSWERS, &[]).await;
    let row = row.map_err(|error| while_opening(shown, &error))?;
    Ok(ServerProcess { process: row.get(0), has_our_settings: row.get(1) })
}

/// A connection that does not go back to the pool, however small the pool is.
async fn kept(pool: &Pool, shown: &str) -> Result<ClientWrapper, OpenError> {
    let connection = pool.get().await.map_err(|error| while_connecting(shown, &error))?;
    Ok(Object::take(connection))
}

#[cfg(test)]
mod tests;
