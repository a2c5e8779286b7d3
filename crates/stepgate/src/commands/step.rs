//! `stepgate step`: proposals in, responses out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use stepgate_core::run::Payload;
use stepgate_core::session::Session;
use stepgate_core::step::{self, Answer, Submission};
use stepgate_http::SESSION_HEADER;

use axum::http::Method;
use serde_json::Value;
use stepgate_core::ids::{RunId, SessionId};

use super::{find, reason};
use crate::cli::{Global, Named, StepArgs};
use crate::client::{As, Client};
use crate::commands::{exit_code, exit_code_of};
use crate::data_dir::DataDir;
use crate::start::{self, Held};

pub(super) async fn step(global: &Global, data: &DataDir, args: StepArgs) -> anyhow::Result<u8> {
    let (mut input, length) = open(&args.file)?;
    if let Some(client) = Client::elsewhere(global, data, As::Agent).await? {
        return elsewhere(global, client, data, &args, &mut *input).await;
    }
    let held = start::hold_recovered(data).await?;
    held.tell().await;
    let session = session(&held, args.session.as_ref()).await?;
    if args.lines {
        return lines(&held, &session, input, length).await;
    }
    let payload = read(&mut *input, End::Input, held.gate.limits.payload_bytes_max)
        .context("cannot read the proposal")?;
    let payload = payload.unwrap_or_else(|| Payload::whole([]));
    let answered = submit(&held, &session, payload).await?;
    answer(&answered)?;
    reason::tell_from(&*held.gate.store, answered.run_id).await;
    Ok(exit_code(answered.word()))
}

/// The session that a step of the local agent joins.
pub(super) async fn session(
    held: &Held,
    named: Option<&Named<SessionId>>,
) -> anyhow::Result<Session> {
    let agent = start::local_agent()?;
    let session_id = find::session_in(&*held.gate.store, named, Some(&agent)).await?;
    Ok(held.session(session_id).await?)
}

/// Takes a payload through the gate. The step runs in its own task: dropping this future does not stop it.
pub(super) async fn submit(
    held: &Held,
    session: &Session,
    payload: Payload,
) -> anyhow::Result<Answer> {
    let gate = held.gate.clone();
    let submission = Submission {
        session_id: session.session_id,
        principal_id: session.principal_id.clone(),
        payload,
    };
    Ok(tokio::spawn(async move { step::run(&gate, submission).await }).await??)
}

/// The same, if another process executes the steps.
async fn elsewhere(
    global: &Global,
    mut client: Client,
    data: &DataDir,
    args: &StepArgs,
    input: &mut (dyn BufRead + Send),
) -> anyhow::Result<u8> {
    // The gate records the beginning of a payload that is too long, and counts the rest up to the limit on bodies.
    // So a longer one is cut here at that limit, and the gate still refuses it as too long.
    let config = data.load_config()?;
    let most = usize::try_from(config.serve_limits().body_bytes_max)?;
    let is_too_long = most > config.limits().payload_bytes_max;
    let bytes_max = if is_too_long { most } else { most.saturating_add(1) };
    let end = if args.lines { End::Line } else { End::Input };
    let session = find::session(&mut client, args.session.as_ref()).await?;
    let mut last = None;
    while let Some(payload) = read(input, end, bytes_max).context("cannot read the proposal")? {
        let sent = send(&mut client, session, payload.bytes.to_vec()).await?;
        print(&sent.response)?;
        last = Some(sent);
    }
    if args.lines {
        return Ok(0);
    }
    let sent = match last {
        Some(sent) => sent,
        None => {
            let sent = send(&mut client, session, Vec::new()).await?;
            print(&sent.response)?;
            sent
        }
    };
    if let Some(run_id) = sent.run_id {
        reason::tell_elsewhere(global, data, run_id).await;
    }
    Ok(sent.code)
}

/// The answer of a gateway to a proposal.
pub(super) struct Sent {
    pub(super) response: String,
    /// The exit code.
    pub(super) code: u8,
    pub(super) run_id: Option<RunId>,
}

/// Sends a proposal to the gateway.
pub(super) async fn send(
    client: &mut Client,
    session: Option<SessionId>,
    payload: Vec<u8>,
) -> anyhow::Result<Sent> {
    let mut headers = vec![("content-type", "application/json".to_owned())];
    headers.extend(session.map(|session| (SESSION_HEADER, session.to_string())));
    let reply = client.send(Method::POST, "/v1/steps", &headers, payload).await?;
    let response = String::from_utf8(reply.body.to_vec()).context("the answer is not text")?;
    let parsed: Value = serde_json::from_str(&response).unwrap_or_default();
    match parsed.get("outcome").and_then(Value::as_str).and_then(exit_code_of) {
        Some(code) => Ok(Sent { response, code, run_id: reply.run_id }),
        None => Err(reply.refusal()),
    }
}

/// Prints a response received from a gateway.
pub(super) fn print(response: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{response}")
        .and_then(|()| out.flush())
        .context("the step is recorded, and its response cannot be written")
}

/// Prints a response. Unlike everywhere else, a closed standard output is an error: the step is done, and the caller
/// must learn that its response was lost.
pub(super) fn answer(answer: &Answer) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", answer.body()).and_then(|()| out.flush()).with_context(|| {
        format!("run {} is recorded, and its response cannot be written", answer.run_id)
    })
}

/// Every line is one payload, even an empty one, so that line n of the output answers line n of the input.
async fn lines(
    held: &Held,
    session: &Session,
    mut input: Box<dyn BufRead + Send>,
    length: Option<u64>,
) -> anyhow::Result<u8> {
    let progress = progress(length);
    let bytes_max = held.gate.limits.payload_bytes_max;
    while let Some(line) =
        read(&mut *input, End::Line, bytes_max).context("cannot read the next proposal")?
    {
        progress.inc(line.length.saturating_add(1));
        // Written at once, so that every printed response is recorded, and a recorded one is printed soon.
        answer(&submit(held, session, line).await?)?;
    }
    progress.finish_and_clear();
    Ok(0)
}

/// A progress bar, if standard error is a terminal and the responses do not go to a terminal.
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

/// Where a payload ends.
#[derive(Clone, Copy)]
enum End {
    /// At the end of the line.
    Line,
    /// At the end of the input.
    Input,
}

/// Reads one payload; none at the end of the input.
///
/// Bytes above the limit are counted and dropped: the payload will be refused, and recorded with its beginning and its
/// true length. It never uses more memory than a valid payload.
fn read(input: &mut dyn BufRead, end: End, bytes_max: usize) -> io::Result<Option<Payload>> {
    let mut kept = Vec::new();
    let mut length: u64 = 0;
    let mut is_over = true;
    loop {
        let buffer = match input.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            break;
        }
        is_over = false;
        let part = match end {
            End::Line => buffer.split(|byte| *byte == b'\n').next().unwrap_or_default(),
            End::Input => buffer,
        };
        let room = bytes_max.saturating_sub(kept.len());
        kept.extend_from_slice(part.get(..room).unwrap_or(part));
        length = length.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        let has_ended = part.len() < buffer.len();
        let consumed = part.len() + usize::from(has_ended);
        input.consume(consumed);
        if has_ended {
            break;
        }
    }
    Ok((!is_over).then(|| Payload { bytes: kept.into(), length }))
}

#[cfg(test)]
mod tests;
