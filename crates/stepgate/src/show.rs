//! Output: tables, colour on a terminal, and stable JSON.

pub(crate) mod attention;
mod table;
pub(crate) mod timeline;
mod times;

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use serde::Serialize;

pub(crate) use stepgate_gateway::text::{printable, printable_lines, shortened};
pub(crate) use table::{Cell, Table, cut, status};
pub(crate) use times::{Times, span};

pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Style of what waits.
pub(crate) const WAITING: Style = AnsiColor::Yellow.on_default().bold();
/// Style of what matters less.
pub(crate) const DIM: Style = Style::new().dimmed();

/// Set once standard output has no reader any more (broken pipe).
static READER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// Prints one JSON value on one line, byte for byte.
pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    plain(serde_json::to_string(value)?)
}

/// Prints one or more lines for a program, byte for byte.
///
/// INVARIANT: output for a program never passes a terminal filter. The filter drops control characters, and a digest
/// over the rest would not match.
pub(crate) fn plain(text: impl Display) -> anyhow::Result<()> {
    written(writeln_to(io::stdout().lock(), text))
}

/// Prints one or more lines for a person. Styles are removed if standard output is not a terminal.
pub(crate) fn say(text: impl Display) -> anyhow::Result<()> {
    written(writeln_to(anstream::stdout().lock(), text))
}

pub(crate) fn say_piece(text: impl Display) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    written(write!(out, "{text}").and_then(|()| out.flush()))
}

fn writeln_to(mut out: impl Write, text: impl Display) -> io::Result<()> {
    writeln!(out, "{text}")?;
    out.flush()
}

/// A reader that closes the pipe early, such as `head`, is not an error and does not change the exit code. The response
/// of a step is not written with this function: a caller that does not get it must be told.
fn written(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            READER_IS_GONE.store(true, Ordering::Relaxed);
            Ok(())
        }
        written => written.context("cannot write the output"),
    }
}

/// Whether standard output still has a reader, as far as known. Commands that run forever stop when it has none.
pub(crate) fn has_reader() -> bool {
    !READER_IS_GONE.load(Ordering::Relaxed)
}

/// Prints a line about the progress of the work to standard error.
pub(crate) fn note(text: impl Display) {
    // If standard error is closed, the note is not wanted.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests;
