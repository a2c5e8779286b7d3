//! `stepgate step`: proposals in, responses out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use stepgate_core::ids::{RunId, SessionId};
use stepgate_core::run::Payload;
use stepgate_gateway::service::Service;
use stepgate_http::SESSION_HEADER;

use super::{exit_code, exit_code_of, find, reason, text};
use crate::cli::{Named, StepArgs};
use crate::client::{Client, Reply, Role};
use crate::data_dir::DataDir;
use crate::start::{self, Held};

pub(super) async fn step(data: &DataDir, args: StepArgs) -> anyhow::Result<u8> {
    let (mut input, length) = open(&args.file)?;
    let mut taker = Taker::of(data, args.session.as_ref()).await?;
    let (bytes_max, progress) = match &taker {
        Taker::Here { held, .. } => (held.gate.limits.payload_bytes_max, progress(length)),
        Taker::Elsewhere { .. } => (sent_bytes_max(data)?, ProgressBar::hidden()),
    };
    if args.lines {
        return lines(&mut taker, &mut *input, bytes_max, &progress).await;
    }
    let payload = read(&mut *input, End::Input, bytes_max).context("cannot read the proposal")?;
    let taken = taker.take(payload.unwrap_or_else(|| Payload::whole([]))).await?;
    taken.print()?;
    taker.tell_reason(data, &taken).await;
    Ok(taken.code)
}

/// The gate records the beginning of a payload that is too long, and counts the rest up to the limit on bodies. So a
/// longer one is cut here at that limit, and the gate still refuses it as too long.
fn sent_bytes_max(data: &DataDir) -> anyhow::Result<usize> {
    let config = data.load_config()?;
    let most = usize::try_from(config.serve.body_bytes_max)?;
    let is_too_long = most > config.limits().payload_bytes_max;
    Ok(if is_too_long { most } else { most.saturating_add(1) })
}

/// What takes the steps of a command: the gateway that serves, or the same service in this process.
pub(super) enum Taker {
    Elsewhere { client: Client, session: Option<SessionId> },
    Here { held: Box<Held>, service: Arc<Service>, session: SessionId },
}

impl Taker {
    /// With the session that the steps join.
    pub(super) async fn of(
        data: &DataDir,
        named: Option<&Named<SessionId>>,
    ) -> anyhow::Result<Self> {
        if let Some(mut client) = Client::elsewhere(data, Role::Agent).await? {
            let session = find::session(&mut client, named).await?;
            return Ok(Self::Elsewhere { client, session });
        }
        let held = start::hold_recovered(data).await?;
        held.tell().await;
        let agent = start::local_agent()?;
        let named = find::session_in(&*held.gate.store, named, Some(&agent)).await?;
        let session = held.session(&agent, named).await?.session_id;
        let service = held.service().await?;
        Ok(Self::Here { held: Box::new(held), service, session })
    }

    pub(super) async fn take(&mut self, payload: Payload) -> anyhow::Result<Taken> {
        match self {
            Self::Elsewhere { client, session } => send(client, *session, payload).await,
            Self::Here { held: _, service, session } => {
                let agent = start::local_agent()?;
                let answer = service.submit(agent, Some(*session), payload, Duration::ZERO).await?;
                Ok(Taken {
                    response: answer.body(),
                    code: exit_code(answer.word()),
                    run_id: Some(answer.run_id),
                    what: format!("run {}", answer.run_id),
                })
            }
        }
    }

    pub(super) async fn tell_reason(&self, data: &DataDir, taken: &Taken) {
        let Some(run_id) = taken.run_id else { return };
        let record = match self {
            Self::Elsewhere { .. } => reason::from_gateway(data, run_id).await.ok().flatten(),
            Self::Here { held, .. } => reason::from_store(&*held.gate.store, run_id).await,
        };
        reason::tell(run_id, record);
    }
}

pub(super) struct Taken {
    pub(super) response: String,
    pub(super) code: u8,
    run_id: Option<RunId>,
    /// What was recorded, for people.
    what: String,
}

impl Taken {
    pub(super) fn read(reply: Reply) -> anyhow::Result<Self> {
        let response = String::from_utf8(reply.body.to_vec()).context("the answer is not text")?;
        let parsed: Value = serde_json::from_str(&response).unwrap_or_default();
        let code = exit_code_of(text(&parsed, "outcome")).ok_or_else(|| reply.refusal())?;
        Ok(Self { response, code, run_id: reply.run_id, what: "the step".to_owned() })
    }

    /// Prints the response. Unlike everywhere else, a closed standard output is an error: the step is done, and the
    /// caller must learn that its response was lost.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", self.response).and_then(|()| out.flush()).with_context(|| {
            format!("{} is recorded, and its response cannot be written", self.what)
        })
    }
}

async fn send(
    client: &mut Client,
    session: Option<SessionId>,
    payload: Payload,
) -> anyhow::Result<Taken> {
    let mut headers = vec![("content-type", "application/json".to_owned())];
    headers.extend(session.map(|session| (SESSION_HEADER, session.to_string())));
    let body = payload.bytes.to_vec();
    Taken::read(client.send(Method::POST, "/v1/steps", &headers, body).await?)
}

/// Every line is one payload, even an empty one, so that line n of the output answers line n of the input.
async fn lines(
    taker: &mut Taker,
    input: &mut (dyn BufRead + Send),
    bytes_max: usize,
    progress: &ProgressBar,
) -> anyhow::Result<u8> {
    while let Some(line) =
        read(input, End::Line, bytes_max).context("cannot read the next proposal")?
    {
        progress.inc(line.length.saturating_add(1));
        // Written at once, so that every printed response is recorded, and a recorded one is printed soon.
        taker.take(line).await?.print()?;
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

#[derive(Clone, Copy)]
enum End {
    Line,
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
