//! `stepgate step`: proposals in, responses out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use stepgate_core::limits::Limits;
use stepgate_core::run::Payload;
use stepgate_core::session::Session;
use stepgate_core::step::{self, Answer, Submission};

use crate::cli::StepArgs;
use crate::commands::{exit_code, recover};
use crate::data_dir::{DataDir, Held};

pub(super) async fn step(data: &DataDir, args: StepArgs) -> anyhow::Result<u8> {
    let (input, length) = open(&args.file)?;
    let held = data.hold().await?;
    recover::tell(&held.recovered);
    let session = held.session(args.session).await?;
    if args.lines {
        return lines(&held, &session, input, length).await;
    }
    let payload = bounded(input, |reader, payload| reader.read_to_end(payload))?;
    let answer = submit(&held, &session, payload).await?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", answer.response)?;
    Ok(exit_code(answer.word))
}

/// Takes a payload through the gate. The step is a task of its own: an impatient caller never stops
/// it.
pub(super) async fn submit(
    held: &Held,
    session: &Session,
    payload: Vec<u8>,
) -> anyhow::Result<Answer> {
    let gate = held.gate.clone();
    let submission = Submission {
        session_id: session.session_id,
        principal_id: session.principal_id.clone(),
        payload: Payload::whole(payload),
    };
    Ok(tokio::spawn(async move { step::run(&gate, submission).await }).await??)
}

/// Every line is one payload, also an empty one, so that line n of the output answers line n of the
/// input.
async fn lines(
    held: &Held,
    session: &Session,
    mut input: Box<dyn BufRead + Send>,
    length: Option<u64>,
) -> anyhow::Result<u8> {
    let progress = progress(length);
    loop {
        let mut line = bounded(&mut input, |reader, line| reader.read_until(b'\n', line))?;
        if line.is_empty() {
            break;
        }
        progress.inc(u64::try_from(line.len())?);
        if line.ends_with(b"\n") {
            line.pop();
        }
        let answer = submit(held, session, line).await?;
        // Written at once: what is printed is recorded, and what is recorded is printed soon.
        let mut out = io::stdout().lock();
        writeln!(out, "{}", answer.response)?;
        out.flush()?;
    }
    progress.finish_and_clear();
    Ok(0)
}

/// A bar on a terminal that the responses do not go to; nothing otherwise.
fn progress(length: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() || io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    match length {
        Some(length) => ProgressBar::new(length).with_style(
            ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        ),
        None => ProgressBar::new_spinner(),
    }
}

fn open(file: &Path) -> anyhow::Result<(Box<dyn BufRead + Send>, Option<u64>)> {
    if file == Path::new("-") {
        return Ok((Box::new(BufReader::new(io::stdin())), None));
    }
    let open = File::open(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let length = open.metadata()?.len();
    Ok((Box::new(BufReader::new(open)), Some(length)))
}

/// Reads no more than the largest payload that could ever be configured, and one byte.
fn bounded(
    mut input: impl BufRead,
    read: impl FnOnce(&mut io::Take<&mut dyn BufRead>, &mut Vec<u8>) -> io::Result<usize>,
) -> anyhow::Result<Vec<u8>> {
    const READ_BYTES_MAX: u64 = Limits::PAYLOAD_BYTES_CEILING as u64 + 1;
    let mut bytes = Vec::new();
    let input: &mut dyn BufRead = &mut input;
    read(&mut input.take(READ_BYTES_MAX), &mut bytes).context("cannot read the proposal")?;
    if u64::try_from(bytes.len())? == READ_BYTES_MAX && !bytes.ends_with(b"\n") {
        bail!("a proposal of more than {} bytes", Limits::PAYLOAD_BYTES_CEILING);
    }
    Ok(bytes)
}
