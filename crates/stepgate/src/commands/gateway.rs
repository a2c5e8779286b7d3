//! A gateway: a data directory that this process holds, and all its listeners.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use stepgate_exec::servers::News;
use stepgate_gateway::service::Service;
use stepgate_gateway::turns::{self, Conversations};
use stepgate_gateway::{audit, control, notify};
use stepgate_http::server::{Endpoint, Listeners};
use stepgate_http::{AccessLog, App, Scheme};
use stepgate_mcp::Door;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::data_dir::DataDir;
use crate::start::{self, Held};
use crate::{otlp, settings};

/// A gateway that listens but does not answer yet.
pub(super) struct Gateway {
    pub(super) service: Arc<Service>,
    held: Held,
    pub(super) app: Arc<App>,
    pub(super) listeners: Listeners,
    reloading: JoinHandle<()>,
}

impl Gateway {
    /// Locks the directory, recovers, and listens on its socket and, if given, on an address.
    pub(super) async fn open(
        data: &DataDir,
        endpoint: Option<&Endpoint>,
        log: AccessLog,
    ) -> anyhow::Result<Self> {
        // Core actions are recovered when this returns, which is before the first request.
        let held = start::hold_for_gateway(data).await?;
        held.tell_finished();
        for line in settings::out_of_reach(data, &held.config)? {
            warn!("{line}");
        }
        held.control.off().into_iter().for_each(|off| control::tell(&News::Off(off)));
        if let Some(shadow) = &held.control.shadow {
            shadow.tell();
        }
        let service = held.service().await?;
        let serve = held.config.serve.clone();
        let listeners = Listeners::open(endpoint, &data.socket()).await?;
        let address = listeners.address()?.map(|address| address.to_string());
        let scheme = endpoint.map_or(Scheme::Http, Endpoint::scheme);
        let public_url = serve.public_url(&address.unwrap_or_default(), scheme)?;
        let mcp = held.config.mcp_settings(endpoint.is_some());
        let door = Door::new(&service, mcp, serve.body_bytes_max, &public_url);
        let app = App::new(service.clone(), serve, public_url, log, door.routes());
        // A collector that cannot be is refused before anything is served.
        if let Some(settings) = settings::collector(data, &held.config)? {
            otlp::check(&settings).map_err(anyhow::Error::msg).context("[otlp] is not valid")?;
        }
        otlp::begin_metrics(&app);
        if let Some(settings) = settings::agent(data, &held.config)? {
            let _ = app.agent.set(Conversations::open(settings, &service)?);
        }
        let pages = endpoint.map(|_| app.public_url.to_string());
        let receivers = settings::receivers(data, &held.config, pages)?;
        let streams = settings::streams(data, &held.config)?;
        door.take_up(&held.recovered.finished).await?;
        service.begin();
        notify::begin(receivers, &service).map_err(anyhow::Error::msg)?;
        audit::begin(streams, &held.control.archives, &service).map_err(anyhow::Error::msg)?;
        if let Some(agent) = app.agent.get() {
            tokio::spawn(turns::keep_taking_up(Arc::clone(agent)));
        }
        door.begin();
        let pause = Duration::from_millis(held.config.policy.reload_ms);
        let (gate, control) = (held.gate.clone(), Arc::clone(&held.control));
        let reloading = tokio::spawn(control::keep_reloading(gate, control, pause));
        Ok(Self { service, held, app, listeners, reloading })
    }

    pub(super) async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        self.listeners.serve(&self.app, stepgate_http::router(&self.app), stop).await;
        self.reloading.abort();
        self.held.control.servers.shutdown().await;
        self.held.gate.store.leave().await;
        if *self.service.broken().borrow() {
            bail!("the store cannot go on: start again, and recovery decides what is unfinished");
        }
        Ok(())
    }
}
