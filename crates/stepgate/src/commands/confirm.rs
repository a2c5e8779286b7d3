//! Asks the person at the terminal for confirmation, if no operator's token is given.
//!
//! The gateway decides whether a person can be at the terminal. The question tells that person what is about to happen,
//! and protects against a key pressed by mistake.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};

use anyhow::{Context, bail};

use crate::cli::Global;
use crate::client::{As, Client};
use crate::data_dir::DataDir;

/// A client that acts for the operator: with a token, or after the person at the terminal has agreed.
pub(super) async fn operator(
    global: &Global,
    data: &DataDir,
    question: &str,
) -> anyhow::Result<Client> {
    operator_shown(global, data, question, async |client: &mut Client| {
        // Only to let the gateway check whether a person can be here.
        client.list("approvals", "&status=pending", None, 1).await?;
        Ok(String::new())
    })
    .await
}

/// The same, but shows the person something before the question.
pub(super) async fn operator_shown(
    global: &Global,
    data: &DataDir,
    question: &str,
    shown: impl AsyncFnOnce(&mut Client) -> anyhow::Result<String>,
) -> anyhow::Result<Client> {
    let mut client = Client::of(global, data, As::Operator).await?;
    if !client.is_at_terminal() {
        return Ok(client);
    }
    let terminal = terminal()?;
    let shown = shown(&mut client).await?;
    // Release the directory while the person reads: other processes may need it.
    drop(client);
    if !agrees(terminal, &shown, question)? {
        bail!("nothing was changed");
    }
    Client::of(global, data, As::Operator).await
}

/// The terminal itself: standard input may be a file, and standard output the file that receives a token.
fn terminal() -> anyhow::Result<File> {
    match OpenOptions::new().read(true).write(true).open("/dev/tty") {
        Ok(terminal) => Ok(terminal),
        Err(_) => bail!(
            "this needs an operator: do it at a terminal, or give an operator's token with \
             --token-file FILE (the first `stepgate serve` makes `operator.token` in the data \
             directory)"
        ),
    }
}

fn agrees(mut terminal: File, shown: &str, question: &str) -> anyhow::Result<bool> {
    let end = if shown.is_empty() { "" } else { "\n" };
    write!(terminal, "{shown}{end}{question} [y/N] ").context("cannot write to the terminal")?;
    let mut line = String::new();
    BufReader::new(terminal).read_line(&mut line).context("cannot read from the terminal")?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
