//! A data directory that this process holds: locked, started and recovered.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use stepgate_core::attention;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{InvalidId, PrincipalId, SessionId};
use stepgate_core::ports::Unfinished;
use stepgate_core::recover::Scope;
use stepgate_core::session::Session;
use stepgate_exec::servers::Servers;
use stepgate_gateway::attention::NeedObject;
use stepgate_gateway::control::pins::Pins;
use stepgate_gateway::service::Service;
use stepgate_gateway::start::{self, Settings, Started, WAIT_FOR_ALL};
use stepgate_gateway::world;
use tokio::sync::mpsc;
use tracing::{error, info};

use crate::config::Config;
use crate::data_dir::{self, DataDir, Lock};
use crate::{log, settings, show};

/// The principal name of the directory's local agent.
const LOCAL_AGENT: &str = "agent";

/// A data directory that this process holds, recovered and ready.
pub(crate) struct Held {
    started: Started,
    pub(crate) config: Config,
    _lock: Lock,
}

impl Deref for Held {
    type Target = Started;

    fn deref(&self) -> &Started {
        &self.started
    }
}

/// Locks the directory, creates what is missing, and finishes interrupted runs of core actions. A gateway recovers runs
/// of tool servers in the background. It waits `serve.servers_wait_ms` for servers that do not answer.
pub(crate) async fn hold_for_gateway(data: &DataDir) -> anyhow::Result<Held> {
    let wait = data.load_config()?.serve.servers_wait;
    hold(data, wait).await
}

/// Locks the directory for one command, and finishes all interrupted runs first: a gateway that would do so may never
/// be started.
pub(crate) async fn hold_recovered(data: &DataDir) -> anyhow::Result<Held> {
    let mut held = hold(data, WAIT_FOR_ALL).await?;
    let unfinished = held.gate.store.unfinished().await?;
    let needs = attention::of(&held.gate).await?;
    let is_told =
        |run: &Unfinished| needs.iter().any(|need| need.subject.run_id() == Some(run.run_id));
    let is_call =
        |run: &&Unfinished| !run.is_waiting && !is_told(run) && Scope::Servers.covers(run);
    let calls = unfinished.iter().filter(is_call).count();
    if calls > 0 {
        info!("going on with {calls} interrupted call(s) of tool servers first");
    }
    held.started.recover_servers().await?;
    Ok(held)
}

/// Locks the directory and opens its store: no tool server is started, and nothing is recovered.
pub(crate) async fn hold_store(data: &DataDir) -> anyhow::Result<(Arc<Service>, Config, Lock)> {
    let (settings, config, lock) = lock(data, Duration::ZERO)?;
    let service = start::open_store(settings, &data.joined).await;
    let service = service.map_err(|error| settings::located(data, error))?;
    Ok((service, config, lock))
}

async fn hold(data: &DataDir, wait: Duration) -> anyhow::Result<Held> {
    let (settings, config, lock) = lock(data, wait)?;
    let started = start::start(settings, &data.joined).await;
    let started = started.map_err(|error| settings::located(data, error))?;
    data.forget_restored(&*started.gate.store, &started.control.sandbox).await?;
    Ok(Held { started, config, _lock: lock })
}

fn lock(data: &DataDir, wait: Duration) -> anyhow::Result<(Settings, Config, Lock)> {
    world::refuse_unset_clock(SystemTime::now())?;
    let mut config = data.load_config()?;
    data.refuse_backup()?;
    data_dir::create(data.root())?;
    let lock = Lock::take(data.root())?;
    // Checked before anything is created: an interrupted restore must find the directory unchanged.
    data.refuse_restoring()?;
    settings::refuse_open_to_others(data, &config)?;
    data_dir::create(&data.sandbox())?;
    data.name_node(&mut config)?;
    data.provide_payload_key(&config)?;
    data.node_id(&config)?.into_iter().for_each(log::name_node);
    Ok((settings::gateway(data, &config, wait)?, config, lock))
}

/// Starts the tool servers to list their tools, and waits for each. Late results are dropped.
pub(crate) async fn servers(
    data: &DataDir,
    config: &Config,
    pins: Pins,
) -> anyhow::Result<Servers> {
    let specs = settings::server_specs(data, config)?;
    let (late, _) = mpsc::channel(1);
    let started = start::start_servers(specs, pins, late, Arc::new(|_| {}), WAIT_FOR_ALL).await;
    started.map_err(|error| settings::located(data, error.into()))
}

impl Held {
    /// Reports on standard error what was recovered and which runs need a person.
    pub(crate) async fn tell(&self) {
        self.tell_finished();
        match attention::of(&self.gate).await {
            Ok(needs) => {
                let needs = needs.iter().map(NeedObject::of);
                needs.for_each(|need| show::note(show::attention::line(&need)));
            }
            Err(error) => error!("cannot read which runs need a person: {error}"),
        }
    }

    pub(crate) fn tell_finished(&self) {
        match self.recovered.finished.len() {
            0 => {}
            count => info!("recovered {count} interrupted run(s); `stepgate runs` shows them"),
        }
    }

    /// A session of this agent: the named one, or its default one.
    pub(crate) async fn session(
        &self,
        agent: &PrincipalId,
        named: Option<SessionId>,
    ) -> Result<Session, Fault> {
        match named {
            Some(id) => self.gate.named_session(id, agent).await,
            None => self.gate.default_session(agent).await,
        }
    }
}

/// The principal of commands that propose on the directory itself.
pub(crate) fn local_agent() -> Result<PrincipalId, InvalidId> {
    PrincipalId::parse(LOCAL_AGENT)
}
