//! Start-up: what a process does before it takes its first step, in this order. A process that serves requests
//! then begins the loops of the service, of turns and of reloading.

mod first_policies;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, ensure};
use tracing::error;

use stepgate_core::approvers::Groups;
use stepgate_core::consent_cache::Consents;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::gate::{Doubts, Extensions, Gate, Parked};
use stepgate_core::late::{self, LateResult};
use stepgate_core::limits::Limits;
use stepgate_core::lock;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::{Executor, NoToolServers, Store};
use stepgate_core::recover::{Report, Scope};
use stepgate_exec::launcher::Launcher;
use stepgate_exec::servers::{Progress, ServerSpec, Servers, StartError, Tracing};
use stepgate_exec::{Earlier, Sandbox, SandboxLimits};
use stepgate_policy::{LivePolicy, LoadError, Nameable, PolicySet};
use stepgate_store::{PayloadKeys, PostgresOptions, PostgresStore, SqliteStore};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::control::pins::{self, Pins};
use crate::control::{self, Control, Look, Policies, Shadow};
use crate::disk::Disk;
use crate::hub::Hub;
use crate::service::{ArchiveSettings, Service, recover_and_tell, refuse_rolled_back};
use crate::world::RealWorld;

pub use first_policies::write as write_policies;

/// Most late results that wait to be written. Further ones are dropped, and each is logged as an error.
const LATE_RESULTS_MAX: usize = 1024;
/// Timeout at shutdown for a store that does not answer.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// For a command that asks the servers once: it waits for each server up to that server's start timeout.
pub const WAIT_FOR_ALL: Duration = Duration::MAX;

/// What a gateway is made of.
pub struct Settings {
    /// The data directory.
    pub root: PathBuf,
    /// Free space there that is reserved for operators.
    pub reserved_bytes: u64,
    /// Where the store is.
    pub store: StoreSettings,
    /// What encrypts original payloads there.
    pub payload_keys: PayloadKeys,
    /// Where core actions act.
    pub sandbox: SandboxSettings,
    /// The tool servers.
    pub servers: ServerSettings,
    /// The policies.
    pub policies: PolicySettings,
    /// Which runs leave the store, and for where.
    pub archives: ArchiveSettings,
    /// What a step may cost.
    pub limits: Limits,
    /// Which files core actions may touch.
    pub extensions: Extensions,
    /// Groups of people that policies name as approvers.
    pub groups: Groups,
    /// Where the facts come from that policies know beside a call.
    pub facts: FactSources,
}

/// Where the store is.
pub enum StoreSettings {
    /// A file that this process alone writes.
    File(PathBuf),
    /// A PostgreSQL database that several nodes share.
    Postgres {
        /// Its URL.
        url: String,
        /// How it is used.
        options: PostgresOptions,
    },
}

impl StoreSettings {
    fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres { .. })
    }

    /// Opens the store to write; the hub is told what becomes durable.
    async fn open(&self, hub: &Arc<Hub>, keys: PayloadKeys) -> anyhow::Result<Arc<dyn Store>> {
        let hub = Arc::clone(hub);
        Ok(match self {
            Self::File(path) => {
                let store = SqliteStore::open(path, Default::default())?;
                Arc::new(store.announcing_to(hub).with_payload_keys(keys))
            }
            Self::Postgres { url, options } => {
                let store = PostgresStore::open(url, options.clone()).await?;
                Arc::new(store.announcing_to(hub).with_payload_keys(keys))
            }
        })
    }
}

/// Where core actions act.
pub struct SandboxSettings {
    /// The directory behind `/sandbox/`.
    pub directory: PathBuf,
    /// The name under which calls are sent to it.
    pub id: String,
    /// What it may cost.
    pub limits: SandboxLimits,
    /// Whether every node has the same directory, by a mount.
    pub is_shared: bool,
    /// Its identity before the restore from a backup, if it was restored.
    pub earlier: Option<Earlier>,
}

/// The tool servers.
pub struct ServerSettings {
    /// The servers to start.
    pub specs: Vec<ServerSpec>,
    /// The servers that the configuration turns off.
    pub turned_off: Vec<String>,
    /// The server whose tools keep their own names over MCP.
    pub own_names: Option<String>,
    /// How long the start waits for servers that do not answer. They come up later.
    pub wait: Duration,
    /// Which trace a call belongs to.
    pub tracing: Tracing,
}

/// The policies.
pub struct PolicySettings {
    /// Where they are.
    pub directory: PathBuf,
    /// Whether that is the default place: only there does the first start write the default policies.
    pub is_default: bool,
    /// Where the shadow policies are, if there are some.
    pub shadow: Option<PathBuf>,
}

/// The result of start-up: core actions are recovered.
pub struct Started {
    /// The gate.
    pub gate: Gate,
    /// What operators change beside it.
    pub control: Arc<Control>,
    /// The hub to which the gate's store announces.
    pub hub: Arc<Hub>,
    /// What recovery did.
    pub recovered: Report,
}

impl Started {
    /// What every interface uses.
    pub async fn service(&self) -> anyhow::Result<Arc<Service>> {
        let control = Some(Arc::clone(&self.control));
        Service::new(self.gate.clone(), Arc::clone(&self.hub), control).await
    }

    /// Also finishes interrupted calls of tool servers, which a gateway does in the background.
    pub async fn recover_servers(&mut self) -> anyhow::Result<()> {
        self.recovered.add(recover_and_tell(&self.gate, Scope::Servers).await?);
        Ok(())
    }
}

/// The shared stores that this process has joined as a node.
#[derive(Clone, Default)]
pub struct Joined(Arc<Mutex<Vec<Arc<dyn Store>>>>);

impl Joined {
    fn stores(&self) -> MutexGuard<'_, Vec<Arc<dyn Store>>> {
        lock::locked(&self.0)
    }

    /// Gives the leases back. Otherwise other nodes must wait until they expire.
    pub async fn leave(&self) {
        let joined = std::mem::take(&mut *self.stores());
        for store in joined {
            // On a timeout the leases expire by themselves.
            let _left = tokio::time::timeout(LEAVE_MAX, store.leave()).await;
        }
    }
}

/// Starts: store, sandbox, first policies, tool servers, policies, recovery of core actions. The caller holds
/// the lock of the data directory.
pub async fn start(settings: Settings, joined: &Joined) -> anyhow::Result<Started> {
    let Settings { root, reserved_bytes, store, payload_keys, sandbox, servers, policies, .. } =
        settings;
    let Settings { archives, limits, extensions, groups, facts, .. } = settings;
    let has_payload_key = !payload_keys.is_empty();
    let (store, sandbox, hub) = open(&root, store, payload_keys, sandbox, joined).await?;
    let mut gate = gate_without_tools(store, &sandbox, limits, extensions);
    (gate.groups, gate.facts) = (groups, facts);
    // Before the servers start: the policies are hidden from them.
    first_policies::provide(&gate, &policies).await?;
    let (accepted, pins) = pins::Reading::begin(&gate).await?;
    let (late, arrivals) = mpsc::channel(LATE_RESULTS_MAX);
    let ServerSettings { specs, turned_off, own_names, wait, tracing } = servers;
    let acting = specs.iter().map(|spec| spec.executor_id.clone());
    let executor_ids = [gate.executor.id().to_owned()].into_iter().chain(acting).collect();
    let told = Arc::clone(&hub);
    let progress = Arc::new(move |said| told.progress(said));
    let servers = start_servers(specs, pins, late, progress, wait).await?;
    let servers = Arc::new(servers.traced_by(tracing));
    control::accept_first_seen(&gate, &servers).await?;
    gate.tools = Arc::clone(&servers) as _;
    gate.store.tell_executors(executor_ids).await?;
    // Taken before the policies are loaded: a change in between is detected later.
    let loaded = Look::at(&policies.directory, &servers, &turned_off);
    let policy = load_policies(&gate, &policies, &loaded, has_payload_key).await?;
    let policy = Arc::new(policy);
    let shadow = load_shadow(policies.shadow, &gate, &servers, &turned_off).await;
    gate.policy = Arc::new(Policies { in_force: Arc::clone(&policy), shadow: shadow.clone() });
    tokio::spawn(write_down(gate.clone(), arrivals));
    let control = Control {
        sandbox,
        servers,
        policy,
        shadow,
        disk: Disk::new(&root, reserved_bytes),
        archives,
        root,
        policies: policies.directory,
        turned_off,
        own_names,
        loaded,
        accepted,
        policy_trouble: Mutex::default(),
        policy_since: Mutex::new(gate.world.now()),
    };
    let recovered = recover_and_tell(&gate, Scope::Core).await?;
    Ok(Started { gate, control: Arc::new(control), hub, recovered })
}

/// Opens the store and nothing that acts, for an order that must be in force before recovery begins. The caller holds
/// the lock of the data directory.
pub async fn open_store(settings: Settings, joined: &Joined) -> anyhow::Result<Arc<Service>> {
    let Settings { root, store, payload_keys, sandbox, limits, extensions, groups, .. } = settings;
    let (store, sandbox, hub) = open(&root, store, payload_keys, sandbox, joined).await?;
    let gate = Gate { groups, ..gate_without_tools(store, &sandbox, limits, extensions) };
    Service::new(gate, hub, None).await
}

async fn open(
    root: &Path,
    store: StoreSettings,
    payload_keys: PayloadKeys,
    sandbox: SandboxSettings,
    joined: &Joined,
) -> anyhow::Result<(Arc<dyn Store>, Arc<Sandbox>, Arc<Hub>)> {
    let hub = Hub::new();
    let is_shared = store.is_shared();
    let store = store.open(&hub, payload_keys).await?;
    if is_shared {
        joined.stores().push(Arc::clone(&store));
        refuse_rolled_back(&*store, root).await?;
    }
    let sandbox = open_sandbox(sandbox, is_shared.then_some(&*store)).await?;
    Ok((store, sandbox, hub))
}

/// Opens the sandbox and removes what an interrupted write left. In a shared store the sandbox's name must be
/// unique.
async fn open_sandbox(
    settings: SandboxSettings,
    shared: Option<&dyn Store>,
) -> anyhow::Result<Arc<Sandbox>> {
    let SandboxSettings { directory, id, limits, is_shared, earlier } = settings;
    let sandbox = Sandbox::open(&directory, id, limits)?.shared(is_shared).put_back(earlier);
    if let Some(store) = shared {
        refuse_another_sandbox(&sandbox, store).await?;
    }
    sandbox.sweep().await.context("cannot clear the sandbox of unfinished files")?;
    Ok(Arc::new(sandbox))
}

/// Refuses a sandbox whose name belongs to another sandbox in the store: recovery would look here for calls that
/// were sent to the other one.
async fn refuse_another_sandbox(sandbox: &Sandbox, store: &dyn Store) -> anyhow::Result<()> {
    let (mark, name) = (sandbox.mark().await?, sandbox.id());
    let known = store.claim_executor(name, &mark).await?;
    ensure!(
        known == mark,
        "the sandbox here is not the one that the store knows as `{name}`: two nodes have the same \
         `store.node_id`, or `sandbox.shared` is set and the directories are not the same one. Give this \
         node a name of its own, or mount the directory that the others have. If this directory replaces \
         the other one for good, write `{known}` and nothing else into its file `.stepgate-mark`"
    );
    Ok(())
}

/// A gate whose tool servers and policy are placeholders: start-up replaces both before any step is taken.
fn gate_without_tools(
    store: Arc<dyn Store>,
    sandbox: &Arc<Sandbox>,
    limits: Limits,
    extensions: Extensions,
) -> Gate {
    Gate {
        store,
        executor: Arc::clone(sandbox) as _,
        tools: Arc::new(NoToolServers),
        policy: Arc::new(BuiltInRule),
        world: Arc::new(RealWorld),
        limits,
        extensions,
        parked: Parked::default(),
        doubts: Doubts::default(),
        groups: Groups::default(),
        consents: Consents::default(),
        facts: FactSources::default(),
    }
}

/// Starts tool servers. Those that do not answer within `wait` come up later. The error is a [`StartError`].
pub async fn start_servers(
    specs: Vec<ServerSpec>,
    pins: Pins,
    late: mpsc::Sender<LateResult>,
    progress: Progress,
    wait: Duration,
) -> Result<Servers, StartError> {
    let late = Arc::new(move |late_result: LateResult| {
        let run_id = late_result.run_id;
        if late.try_send(late_result).is_err() {
            error!(%run_id, "too many late results at once: one was not written down");
        }
    });
    let launcher = Launcher::this_program();
    let tell = Arc::new(|news| control::tell(&news));
    Servers::start(specs, pins, launcher, late, progress, tell, wait).await
}

async fn load_policies(
    gate: &Gate,
    policies: &PolicySettings,
    look: &Look,
    has_payload_key: bool,
) -> anyhow::Result<LivePolicy> {
    let facts = &gate.facts.names(&gate.groups);
    let nameable = Nameable { tools: &look.tools, facts };
    let set = PolicySet::load(&policies.directory, nameable).map_err(not_loaded)?;
    let policy = LivePolicy::new(set, has_payload_key).map_err(not_loaded)?;
    control::warn_of(policy.current().warnings());
    control::note_policy(gate, policy.current().digest()).await?;
    Ok(policy)
}

/// Loads the shadow policies. They stop no start: where they cannot be loaded, they are not asked.
async fn load_shadow(
    directory: Option<PathBuf>,
    gate: &Gate,
    servers: &Servers,
    turned_off: &[String],
) -> Option<Arc<Shadow>> {
    let shadow = Shadow::new(directory?, gate.facts.names(&gate.groups));
    shadow.look_again(servers, turned_off, gate.world.now()).await;
    Some(Arc::new(shadow))
}

/// The error of policies that cannot be loaded.
pub fn not_loaded(error: LoadError) -> anyhow::Error {
    anyhow::Error::new(error).context("the policies cannot be loaded")
}

/// Writes late results to the store, each as soon as no task works on its run.
async fn write_down(gate: Gate, mut arrivals: mpsc::Receiver<LateResult>) {
    // One task each: a result waits for the task that works on its run, and for no other result.
    let mut writing = JoinSet::new();
    while let Some(late_result) = arrivals.recv().await {
        while writing.try_join_next().is_some() {}
        if writing.len() >= LATE_RESULTS_MAX {
            writing.join_next().await;
        }
        let gate = gate.clone();
        writing.spawn(async move {
            let run_id = late_result.run_id;
            if let Err(fault) = late::note(&gate, late_result).await {
                error!(%run_id, "the late result of {run_id} was not written down: {fault}");
            }
        });
    }
}
