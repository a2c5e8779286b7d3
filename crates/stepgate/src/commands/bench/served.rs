//! A gateway that serves on a loopback port of this process, as `stepgate serve --quiet` does.

use std::fs;
use std::sync::Arc;

use anyhow::Context;
use stepgate_gateway::service::Service;
use stepgate_http::AccessLog;
use stepgate_http::server::{Endpoint, make_tokens};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::clients::CONTENT;
use crate::client::Client;
use crate::commands::gateway::Gateway;
use crate::data_dir::{self, DataDir};

/// All clients are one agent at one address, whose limits would else be measured.
const CONFIG: &str = "\
[serve]
connections_max = 4096
connections_per_address_max = 4096
requests_per_second_max = 1000000
requests_burst_max = 1000000
agent_bytes_per_hour_max = 1099511627776

[mcp]
sessions_max = 4096
";

pub(super) struct Served {
    pub(super) service: Arc<Service>,
    url: String,
    token: String,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<anyhow::Result<()>>,
}

impl Served {
    pub(super) async fn open(data: &DataDir) -> anyhow::Result<Self> {
        data_dir::create(data.root())?;
        fs::write(data.root().join("stepgate.toml"), CONFIG)?;
        let endpoint = Endpoint { bind: "127.0.0.1:0".to_owned(), tls: None };
        let gateway = Gateway::open(data, Some(&endpoint), AccessLog::Silent).await?;
        let [_, agent] = make_tokens(&gateway.service, data.root()).await?;
        fs::write(data.sandbox().join("read.txt"), CONTENT)?;
        let address = gateway.listeners.address()?.context("nothing is listened on")?;
        let service = Arc::clone(&gateway.service);
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(gateway.run(async {
            // An error means that the measurement failed: the gateway stops then, too.
            let _ = stopped.await;
        }));
        let token = fs::read_to_string(agent)?.trim().to_owned();
        Ok(Self { service, url: format!("http://{address}"), token, stop, serving })
    }

    /// A connection of its own, kept open between requests.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        Client::of_agent_at(&self.url, &self.token).await
    }

    /// Stops it, and waits until it has closed the store.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        drop((self.service, self.stop));
        self.serving.await?
    }
}
