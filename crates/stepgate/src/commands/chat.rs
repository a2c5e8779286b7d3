//! `stepgate chat`: a conversation on the terminal. Shows the model's text as it is generated and each call with its
//! outcome. If a call needs approval, asks the person at the keyboard.

mod tell;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use stepgate_agent::turn::TurnId;
use stepgate_core::ids::{ApprovalId, SessionId};
use stepgate_http::sse::{Events, Received};
use stepgate_mcp::bridge::Exchange;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::watch;

use super::confirm::is_yes;
use super::find::{CANDIDATES_MAX, SESSION, Wanted, find};
use super::mcp::keep;
use super::serve::Signals;
use super::{FAULT, WAITING, approvals, text, times};
use crate::cli::{ChatArgs, Named};
use crate::client::{self, Line, Reply};
use crate::data_dir::DataDir;
use crate::show::{self, Times};
use tell::{Failure, Teller};

pub(super) async fn chat(data: &DataDir, args: ChatArgs) -> anyhow::Result<u8> {
    let (stop, stopped) = watch::channel(false);
    let (agent, operator, keeper) = match client::remote(&data.global)? {
        // With --url there is one token, and a principal may not decide on its own requests.
        Some(target) => (Line::of_agent(target), None, None),
        None => {
            let keeper = keep(data, stopped).await?;
            let operator = Line::of_operator(data)?;
            (Line::of_agent(client::socket(data)), Some(operator), Some(keeper))
        }
    };
    let mut chat = Chat {
        agent,
        operator,
        input: BufReader::new(tokio::io::stdin()).lines(),
        teller: Teller::new(data.global.json),
        times: times(&data.global),
        last: None,
        opened: None,
        unanswered: None,
    };
    if let Some(named) = &args.session {
        chat.last = Some(chat.conversation(named).await?);
    }
    let mut signals = Signals::listen()?;
    let (code, is_stopped) = tokio::select! {
        code = chat.run(args.message) => (code, false),
        () = signals.next() => (Ok(0), true),
    };
    if is_stopped {
        chat.give_up().await;
    }
    stop.send_replace(true);
    if let Some(keeper) = keeper {
        keeper.await?;
    }
    if is_stopped {
        // A thread may still block on standard input.
        std::process::exit(0);
    }
    code
}

/// Timeout for cancelling the turn when the user leaves.
const GIVE_UP_WAIT: Duration = Duration::from_secs(2);

struct Chat {
    agent: Line,
    /// Decides on approvals in place, if the person at the keyboard may.
    operator: Option<Line>,
    input: Lines<BufReader<Stdin>>,
    teller: Teller,
    times: Times,
    /// Session and turn of the last answer, or of the last turn that ended without one.
    last: Option<(String, String)>,
    /// Session and turn of the present request, once they are known.
    opened: Option<(String, String)>,
    /// A request whose outcome is not known, with its idempotency key.
    unanswered: Option<(String, Value)>,
}

enum Ended {
    Answered,
    Failed,
    /// It waits for an approval, and the input has ended, so there is no person to ask.
    Waiting,
}

impl Chat {
    /// The session that is meant, and its newest turn: what a request goes on from.
    async fn conversation(&self, named: &Named<SessionId>) -> anyhow::Result<(String, String)> {
        let rows = async |wanted: Wanted<'_>| match wanted {
            Wanted::Newest => {
                let turns = self.listed("/v1/agent/turns?limit=1", "turns").await?;
                let row = |turn: &Value| json!({ "session_id": turn.get("sessionId") });
                Ok(turns.iter().map(row).collect())
            }
            Wanted::Beginning(prefix) => {
                let limit = CANDIDATES_MAX + 1;
                let path = format!("/v1/sessions?limit={limit}&id_prefix={}", prefix.as_str());
                self.listed(&path, "sessions").await
            }
        };
        let session = find(&SESSION, named, rows).await?;
        let path = format!("/v1/agent/turns?limit=1&session={session}");
        let turns = self.listed(&path, "turns").await?;
        let turn = turns.first().and_then(|turn| turn.get("turnId")?.as_str());
        let turn = turn.with_context(|| format!("session {session} has no turn to go on from"))?;
        Ok((session.to_string(), turn.to_owned()))
    }

    /// Rows that the agent may see.
    async fn listed(&self, path: &str, name: &str) -> anyhow::Result<Vec<Value>> {
        let reply = self.agent.ask(Method::GET, path).await?;
        let body = reply.parsed()?;
        match body.get(name).and_then(Value::as_array) {
            Some(rows) if reply.status.is_success() => Ok(rows.clone()),
            Some(_) | None => bail!(
                "the gateway does not list its {name}: {}",
                show::printable(&body.to_string())
            ),
        }
    }

    async fn run(&mut self, message: Option<String>) -> anyhow::Result<u8> {
        if let Some(message) = message {
            return Ok(match self.turn(&message).await? {
                Ended::Answered => 0,
                Ended::Failed => FAULT,
                Ended::Waiting => WAITING,
            });
        }
        loop {
            prompt("> ");
            let Some(line) = self.input.next_line().await.context("cannot read the input")? else {
                return Ok(0);
            };
            if line.trim().is_empty() && self.unanswered.is_none() {
                continue;
            }
            match self.turn(line.trim()).await? {
                Ended::Answered | Ended::Failed => {}
                Ended::Waiting => return Ok(WAITING),
            }
        }
    }

    /// Runs one turn. An empty line repeats the request that has no answer yet, with the same key.
    async fn turn(&mut self, text: &str) -> anyhow::Result<Ended> {
        let (key, body) = match self.unanswered.take() {
            Some(unanswered) if text.is_empty() => unanswered,
            Some(_) | None => (uuid::Uuid::new_v4().to_string(), self.request(text)),
        };
        self.unanswered = Some((key.clone(), body.clone()));
        self.opened = None;
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("accept", "text/event-stream".to_owned()),
            ("idempotency-key", key),
        ];
        let path = "/v1/agent/turns";
        let body = body.to_string().into_bytes();
        let response = self.agent.exchange(Method::POST, path, &headers, body).await?;
        if response.status() != StatusCode::OK {
            return self.failed(&Reply::read(response).await?.parsed()?);
        }
        let mut events = Events::new(response.into_body());
        while let Some(event) = events.next().await? {
            if let Some(ended) = self.heard(&event).await? {
                return Ok(ended);
            }
        }
        bail!("the gateway stopped in the middle of the turn: an empty line asks again")
    }

    /// Cancels the turn under way. Its key is lost with this process, so it could not be continued.
    async fn give_up(&mut self) {
        let opened = self.opened.take().filter(|_| self.unanswered.is_some());
        let Some(Ok(turn_id)) = opened.map(|(_, turn)| turn.parse::<TurnId>()) else { return };
        let path = format!("/v1/agent/turns/{turn_id}/cancel");
        let cancelling = self.agent.exchange(Method::POST, &path, &[], Vec::new());
        match tokio::time::timeout(GIVE_UP_WAIT, cancelling).await {
            Ok(Ok(answer)) if answer.status().is_success() => show::note("the turn is cancelled"),
            Ok(_) | Err(_) => show::note(format!("turn {turn_id} could not be cancelled")),
        }
    }

    fn request(&self, text: &str) -> Value {
        match &self.last {
            None => json!({ "instructions": text }),
            Some((session, turn)) => {
                json!({ "instructions": text, "sessionId": session, "turnId": turn })
            }
        }
    }

    async fn heard(&mut self, event: &Received) -> anyhow::Result<Option<Ended>> {
        let data: Value = serde_json::from_str(&event.data).context("an event is not JSON")?;
        self.teller.event(&event.event_type, &data)?;
        match event.event_type.as_str() {
            "waiting" => self.decide(&data).await,
            "opened" => {
                self.opened = place(&data);
                Ok(None)
            }
            "response" => {
                self.last = place(&data);
                self.unanswered = None;
                Ok(Some(Ended::Answered))
            }
            "error" => self.failed(&data).map(Some),
            _ => Ok(None),
        }
    }

    /// Shows why there is no answer. If the failure is temporary, an empty line repeats the request. A turn that is
    /// over stays part of the conversation: the model must know what it did.
    fn failed(&mut self, result: &Value) -> anyhow::Result<Ended> {
        match self.teller.failure(result)? {
            Failure::Passing => {}
            Failure::Refused => self.unanswered = None,
            Failure::Over => {
                self.unanswered = None;
                self.last = self.opened.take().or(self.last.take());
            }
        }
        Ok(Ended::Failed)
    }

    /// Asks the person at the keyboard, if that person may decide.
    async fn decide(&mut self, waiting: &Value) -> anyhow::Result<Option<Ended>> {
        let Some(approval) = waiting.get("approvalId").and_then(Value::as_str) else {
            return Ok(None);
        };
        // The gateway is not trusted: only a parsed id goes into a path or to the terminal.
        let approval: ApprovalId = approval.parse().context("the approval's id is none")?;
        let Some(operator) = &self.operator else {
            show::note(format!(
                "waiting for a person: `stepgate approve {approval}` or `stepgate deny {approval}`"
            ));
            return Ok(None);
        };
        // What is not seen must not be approved: without the details there is no question.
        let reply = operator.ask(Method::GET, &format!("/v1/approvals/{approval}")).await?;
        let shown = match reply.status.is_success() {
            true => approvals::block(&reply.parsed()?, self.times),
            false => None,
        };
        let Some(card) = shown else {
            show::note(format!(
                "what is asked cannot be shown here: `stepgate approvals`, then `stepgate approve \
                 {approval}` or `stepgate deny {approval}`"
            ));
            return Ok(None);
        };
        show::note(card);
        prompt("approve? [y/N] ");
        let Some(line) = self.input.next_line().await? else {
            show::note(format!("nobody decided: `stepgate approve {approval}` goes on"));
            return Ok(Some(Ended::Waiting));
        };
        let word = if is_yes(&line) { "approve" } else { "deny" };
        let path = format!("/v1/approvals/{approval}/{word}");
        let reply = operator.ask(Method::POST, &path).await?;
        if !reply.status.is_success() {
            show::note(show::printable(text(&reply.parsed()?, "detail")));
        }
        Ok(None)
    }
}

fn place(data: &Value) -> Option<(String, String)> {
    let text = |name: &str| data.get(name).and_then(Value::as_str).map(str::to_owned);
    text("sessionId").zip(text("turnId"))
}

/// Prints a prompt, if standard input is a terminal.
fn prompt(text: &str) {
    if std::io::stdin().is_terminal() {
        let mut out = anstream::stderr().lock();
        let _ = write!(out, "{text}").and_then(|()| out.flush());
    }
}
