//! Asks the person at the terminal for confirmation, if no operator's token is given.
//!
//! The gateway decides whether a person can be at the terminal. The question tells that person what is about to happen,
//! and protects against a key pressed by mistake.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};

use anyhow::{Context, bail};

use crate::cli::{Global, Named};
use crate::client::{As, Client};
use crate::data_dir::DataDir;

/// When the person at the terminal is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Unless an operator's token is given.
    WithoutToken,
    /// Also with a token: the command names something as `last`, and that may have changed since the person looked.
    Always,
}

impl Asked {
    pub(super) fn about<T: PartialEq>(names: &[Named<T>]) -> Self {
        if names.contains(&Named::Last) { Self::Always } else { Self::WithoutToken }
    }
}

/// A client that acts for the operator: with a token, or after the person at the terminal has agreed.
pub(super) async fn operator(
    global: &Global,
    data: &DataDir,
    question: &str,
) -> anyhow::Result<Client> {
    operator_shown(global, data, Asked::WithoutToken, async |client: &mut Client| {
        // Only to let the gateway check whether a person can be here.
        client.list("approvals", "&status=pending", None, 1).await?;
        Ok(question.to_owned())
    })
    .await
}

/// The same, but the question is made with the client: what the person sees before it is read first.
pub(super) async fn operator_shown(
    global: &Global,
    data: &DataDir,
    asked: Asked,
    question: impl AsyncFnOnce(&mut Client) -> anyhow::Result<String>,
) -> anyhow::Result<Client> {
    let mut client = Client::of(global, data, As::Operator).await?;
    if asked == Asked::WithoutToken && !client.is_at_terminal() {
        return Ok(client);
    }
    let terminal = terminal(asked)?;
    let question = question(&mut client).await?;
    // Release the directory while the person reads: other processes may need it.
    drop(client);
    if !agrees(terminal, &question)? {
        bail!("nothing was changed");
    }
    Client::of(global, data, As::Operator).await
}

/// The terminal itself: standard input may be a file, and standard output the file that receives a token.
fn terminal(asked: Asked) -> anyhow::Result<File> {
    match (OpenOptions::new().read(true).write(true).open("/dev/tty"), asked) {
        (Ok(terminal), _) => Ok(terminal),
        (Err(_), Asked::Always) => bail!(
            "`last` is shown at a terminal before anything is decided, and there is none: name the id"
        ),
        (Err(_), Asked::WithoutToken) => bail!(
            "this needs an operator: do it at a terminal, or give an operator's token with \
             --token-file FILE (the first `stepgate serve` makes `operator.token` in the data \
             directory)"
        ),
    }
}

fn agrees(mut terminal: File, question: &str) -> anyhow::Result<bool> {
    write!(terminal, "{question} [y/N] ").context("cannot write to the terminal")?;
    let mut line = String::new();
    BufReader::new(terminal).read_line(&mut line).context("cannot read from the terminal")?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
