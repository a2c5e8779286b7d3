//! Asks the person at the terminal for confirmation, if no operator's token is given.
//!
//! The gateway decides whether a person can be at the terminal. The question tells that person what is about to happen,
//! and protects against a key pressed by mistake.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};

use anyhow::{Context, bail};

use crate::cli::Named;
use crate::client::{Client, Role};
use crate::data_dir::DataDir;

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
pub(super) async fn operator(data: &DataDir, question: &str) -> anyhow::Result<Client> {
    let nothing = async |_: &mut Client| Ok(());
    let question = async |client: &mut Client, &(): &()| {
        // Only to let the gateway check whether a person can be here.
        client.list("approvals", "&status=pending", None, 1).await?;
        Ok(question.to_owned())
    };
    let asked = Asked::WithoutToken;
    Ok(operator_about(data, asked, nothing, question).await?.0)
}

/// The same for what the command names, which `find` looks up once. The question is made with the client: what the
/// person sees before it is read first.
pub(super) async fn operator_about<T>(
    data: &DataDir,
    asked: Asked,
    find: impl AsyncFnOnce(&mut Client) -> anyhow::Result<T>,
    question: impl AsyncFnOnce(&mut Client, &T) -> anyhow::Result<String>,
) -> anyhow::Result<(Client, T)> {
    let mut client = Client::of(data, Role::Operator).await?;
    if asked == Asked::WithoutToken && !client.is_at_terminal() {
        let found = find(&mut client).await?;
        return Ok((client, found));
    }
    let mut terminal = terminal(asked)?;
    let found = find(&mut client).await?;
    let question = question(&mut client, &found).await?;
    // Release the directory while the person reads: other processes may need it.
    drop(client);
    if !terminal.agrees(&question)? {
        bail!("nothing was changed");
    }
    Ok((Client::of(data, Role::Operator).await?, found))
}

/// The terminal itself: standard input may be a file, and standard output the file that receives a token.
fn terminal(asked: Asked) -> anyhow::Result<Terminal> {
    match (Terminal::open(), asked) {
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

/// The terminal of a person who answers questions.
pub(super) struct Terminal(BufReader<File>);

impl Terminal {
    pub(super) fn open() -> io::Result<Self> {
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
        Ok(Self(BufReader::new(terminal)))
    }

    /// Asks for a yes; everything else is a no.
    pub(super) fn agrees(&mut self, question: &str) -> anyhow::Result<bool> {
        let line = self.ask(&format!("{question} [y/N] "))?;
        Ok(line.is_some_and(|line| is_yes(&line)))
    }

    pub(super) fn say(&mut self, lines: &str) -> anyhow::Result<()> {
        writeln!(self.0.get_mut(), "{lines}").context("cannot write to the terminal")
    }

    /// Asks for one line; none if the person has closed the input.
    pub(super) fn ask(&mut self, question: &str) -> anyhow::Result<Option<String>> {
        write!(self.0.get_mut(), "{question}").context("cannot write to the terminal")?;
        let mut line = String::new();
        let bytes = self.0.read_line(&mut line).context("cannot read from the terminal")?;
        Ok((bytes > 0).then_some(line))
    }
}

pub(super) fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
