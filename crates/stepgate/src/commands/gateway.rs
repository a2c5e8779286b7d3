//! A gateway: a data directory that is held, and everything that listens for it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use stepgate_exec::servers::News;
use tokio::task::JoinHandle;

use crate::agent::{self, Conversations};
use crate::assembly;
use crate::data_dir::{DataDir, Held};
use crate::http::{self, AccessLog, App, PublicUrl, Scheme};
use crate::server::{Endpoint, Listeners, make_tokens};
use crate::service::Service;
use crate::show;

/// A gateway that listens and does not answer yet.
pub(super) struct Gateway {
    pub(super) service: Arc<Service>,
    held: Held,
    app: Arc<App>,
    listeners: Listeners,
    reloading: JoinHandle<()>,
}

impl Gateway {
    /// Holds the directory, recovers, and listens on its socket and, where one is named, on an address.
    pub(super) async fn open(
        data: &DataDir,
        endpoint: Option<&Endpoint>,
        log: AccessLog,
    ) -> anyhow::Result<Self> {
        // Recovery of core actions is over when the directory is held, so before the first request.
        let held = data.hold_for_gateway().await?;
        held.tell_finished();
        for line in assembly::out_of_reach(data, &held.config)? {
            show::note(format!("{}warning:{:#} {line}", show::ERROR, show::ERROR));
        }
        held.control.off().into_iter().for_each(|off| assembly::tell(&News::Off(off)));
        let service = held.service().await?;
        let mut limits = held.config.serve_limits();
        limits.mcp.has_pages = endpoint.is_some();
        let listeners = Listeners::open(endpoint, &data.socket()).await?;
        let address = listeners.address()?.map(|address| address.to_string());
        let scheme = endpoint.map_or(Scheme::Http, Endpoint::scheme);
        let public_url = held.config.serve.public_url(&address.unwrap_or_default(), scheme)?;
        let app = App::new(service.clone(), limits, public_url, log);
        if let Some(agent) = Conversations::open(data, &held.config, &service)? {
            let _ = app.agent.set(agent);
        }
        app.mcp.take_up(&held.recovered.finished).await?;
        service.begin();
        if let Some(agent) = app.agent.get() {
            tokio::spawn(agent::keep_taking_up(Arc::clone(agent)));
        }
        app.mcp.begin();
        let pause = Duration::from_millis(held.config.policy.reload_ms);
        let (gate, control) = (held.gate.clone(), Arc::clone(&held.control));
        let reloading = tokio::spawn(assembly::keep_reloading(gate, control, pause));
        Ok(Self { service, held, app, listeners, reloading })
    }

    /// The address, with the port that was given.
    pub(super) fn address(&self) -> std::io::Result<Option<SocketAddr>> {
        self.listeners.address()
    }

    /// How people's browsers reach it.
    pub(super) fn public_url(&self) -> &PublicUrl {
        self.app.public_url()
    }

    /// The files of the operator's and the agent's tokens, made where they are missing.
    pub(super) async fn tokens(&self, data: &DataDir) -> anyhow::Result<[PathBuf; 2]> {
        make_tokens(&self.service, data.root()).await
    }

    /// Answers until it is told to stop.
    pub(super) async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        self.listeners.serve(&self.app, http::router(&self.app), stop).await;
        self.reloading.abort();
        self.held.control.servers.shutdown().await;
        self.held.gate.store.leave().await;
        if *self.service.broken().borrow() {
            bail!("the store cannot go on: start again, and recovery decides what is unfinished");
        }
        Ok(())
    }
}
