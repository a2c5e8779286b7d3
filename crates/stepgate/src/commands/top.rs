//! `stepgate top`: what waits for a person, live, to approve or deny by key.
//!
//! A decision is made as `stepgate approve` makes it: by the same client, for one approval by its whole id, after
//! everything that is decided on was on the screen. The gateway decides whether this process may decide.

mod feed;
mod screen;
mod view;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::Method;
use serde_json::json;
use stepgate_core::ids::ApprovalId;
use stepgate_core::ports::World;
use stepgate_gateway::world::RealWorld;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::decide::{Decision, standing};
use super::{approvals, text, times};
use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show::Times;
use feed::{Feed, Snapshot};
use screen::Screen;
use view::{Act, View};

const EVERY: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn top(data: &DataDir) -> anyhow::Result<()> {
    let reader = Client::serving(data, Role::Auditor).await?;
    let operator = Client::serving(data, Role::Operator).await?;
    let mut signals = Signals::listen()?;
    let place = data.global.url.clone().unwrap_or_else(|| data.root().display().to_string());
    let mut top = Top { view: View::new(place), operator, times: times(&data.global) };
    let refresh = Arc::new(Notify::new());
    let mut told = begin_feed(reader, Arc::clone(&refresh));
    let mut screen = Screen::open()?;
    loop {
        let (columns, rows) = screen.size();
        screen.draw(&top.view.lines(RealWorld.now(), columns, rows))?;
        tokio::select! {
            keys = screen.keys.recv() => {
                // The terminal is gone.
                let Some(keys) = keys else { return Ok(()) };
                for key in keys {
                    let act = top.view.key(key, rows);
                    match top.act(act).await {
                        Next::Go => {}
                        Next::Leave => return Ok(()),
                        Next::Forget => {
                            refresh.notify_one();
                            // Keys that were pressed before the question was drawn do not answer it.
                            while screen.keys.try_recv().is_ok() {}
                            break;
                        }
                    }
                }
            }
            Some(snapshot) = told.recv() => top.take(snapshot),
            is_over = signals.next() => if is_over { return Ok(()) },
        }
    }
}

enum Next {
    Go,
    Leave,
    /// The screen changes: keys that were typed ahead are dropped.
    Forget,
}

struct Top {
    view: View,
    operator: Client,
    times: Times,
}

impl Top {
    fn take(&mut self, snapshot: anyhow::Result<Snapshot>) {
        match snapshot {
            Ok(snapshot) => self.view.update(snapshot),
            Err(error) => {
                self.view.trouble = Some(format!("cannot read what waits now: {error:#}"));
            }
        }
    }

    async fn act(&mut self, act: Act) -> Next {
        match act {
            Act::Nothing => return Next::Go,
            Act::Leave => return Next::Leave,
            Act::Open(id, decision) => match answered(self.read(id)).await {
                Ok(text) => self.view.open(id, text, decision),
                Err(error) => self.view.said = format!("{error:#}"),
            },
            Act::Decide { id, decision, note } => {
                self.view.close();
                self.view.said = match answered(self.decide(id, decision, &note)).await {
                    Ok(said) => said,
                    Err(error) => format!("refused: {error:#}"),
                };
            }
        }
        Next::Forget
    }

    /// Everything that is decided on.
    async fn read(&mut self, id: ApprovalId) -> anyhow::Result<String> {
        let path = format!("/v1/approvals/{id}");
        let approval = self.operator.get(&path).await?;
        if text(&approval, "status") != "pending" {
            bail!("approval {id} no longer waits");
        }
        let block = approvals::block(&approval, self.times.moved_to(RealWorld.now()));
        block.with_context(|| format!("approval {id} cannot be shown in full"))
    }

    async fn decide(
        &mut self,
        id: ApprovalId,
        decision: Decision,
        note: &str,
    ) -> anyhow::Result<String> {
        let path = format!("/v1/approvals/{id}/{}", decision.as_str());
        let note = Some(note).filter(|note| !note.is_empty());
        let body = json!({ "note": note });
        let decided = self.operator.ask(Method::POST, &path, Some(&body)).await?.json()?;
        let status = standing(text(&decided, "status").to_owned());
        Ok(format!("{status}: {id}, run {}", text(&decided, "tool_run_id")))
    }
}

async fn answered<T>(answer: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    timeout(MAX_WAIT, answer).await.context("the gateway does not answer")?
}

/// Asks the gateway on a task of its own, so that the keys work while it does not answer.
fn begin_feed(reader: Client, refresh: Arc<Notify>) -> mpsc::Receiver<anyhow::Result<Snapshot>> {
    let (tell, told) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut feed = Feed::new(reader);
        while tell.send(answered(feed.read()).await).await.is_ok() {
            // Either is a reason to ask again.
            let _ = timeout(EVERY, refresh.notified()).await;
        }
    });
    told
}

/// The signals that end it, and the one that tells of another size.
struct Signals {
    ends: [Signal; 3],
    resized: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            ends: [
                listen(SignalKind::interrupt())?,
                listen(SignalKind::terminate())?,
                listen(SignalKind::hangup())?,
            ],
            resized: listen(SignalKind::window_change())?,
        })
    }

    /// Waits for a signal: whether it ends the program.
    async fn next(&mut self) -> bool {
        let [interrupt, terminate, hangup] = &mut self.ends;
        tokio::select! {
            _ = interrupt.recv() => true,
            _ = terminate.recv() => true,
            _ = hangup.recv() => true,
            _ = self.resized.recv() => false,
        }
    }
}
