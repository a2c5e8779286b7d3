//! `--watch`: what happens from now on, as the gateway tells it.

use serde_json::Value;
use stepgate_core::event::EventType;
use stepgate_http::sse::{Events, Received};

use crate::client::{Client, Role};
use crate::data_dir::DataDir;
use crate::show;

/// The events of a gateway, and a second connection to ask it about them.
pub(super) struct Watch {
    events: Events,
    /// Keeps the connection of the stream open.
    _stream: Client,
    pub(super) client: Client,
}

impl Watch {
    pub(super) async fn begin(data: &DataDir) -> anyhow::Result<Self> {
        let mut stream = Client::serving(data, Role::Auditor).await?;
        let client = Client::serving(data, Role::Auditor).await?;
        Ok(Self { events: stream.events("latest").await?, _stream: stream, client })
    }

    /// The next event; none when the gateway has ended the stream, or no process reads our output any more.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Received>> {
        if !show::has_reader() {
            return Ok(None);
        }
        let event = self.events.next().await?;
        if event.is_none() {
            show::note("the gateway has ended the stream");
        }
        Ok(event)
    }

    /// The next event of one of these types, as JSON.
    pub(super) async fn next_of(&mut self, types: &[EventType]) -> anyhow::Result<Option<Value>> {
        while let Some(event) = self.next().await? {
            if types.iter().any(|wanted| wanted.as_str() == event.event_type) {
                return Ok(Some(serde_json::from_str(&event.data)?));
            }
        }
        Ok(None)
    }
}
