//! The data directory: one process holds it to write; readers need no permission of that process.

mod lock;
mod permissions;
mod place;
mod restored;
mod restoring;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use stepgate_core::attention;
use stepgate_core::gate::{Fault, Gate};
use stepgate_core::ids::{PrincipalId, SessionId};
use stepgate_core::ports::{Store, Unfinished};
use stepgate_core::recover::{self, Report, Scope};
use stepgate_core::session::Session;

use crate::assembly::{self, Control};
use crate::cli::Global;
use crate::config::{Config, servers};
use crate::durable;
use crate::hub::Hub;
use crate::service::{Service, refuse_behind};
use crate::{show, store, world};

use lock::Lock;

pub(crate) use permissions::refuse_writable_policies;
pub(crate) use place::of_earlier_version;
pub(crate) use restored::Restored;
pub(crate) use restoring::{Extent, Staging};

/// How long a command waits at its end for a store that does not answer.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// The file with this node's name.
const NODE_ID: &str = "node_id";
/// What tells two nodes of one machine apart.
const NODE_CHANCE_CHARS: usize = 6;
/// The name under which the directory's local agent acts.
const LOCAL_AGENT: &str = "agent";

/// Where things are in a data directory.
#[derive(Clone)]
pub(crate) struct DataDir {
    root: PathBuf,
    config: Option<PathBuf>,
    /// The store that the command line names.
    store: Option<String>,
    /// Secret files that the command line names.
    secrets: Vec<PathBuf>,
    /// Stores that other nodes see this process in.
    joined: Arc<Mutex<Vec<Arc<dyn Store>>>>,
}

/// A data directory that this process holds, recovered and ready.
pub(crate) struct Held {
    /// The gate.
    pub(crate) gate: Gate,
    /// What operators change beside it.
    pub(crate) control: Arc<Control>,
    /// What the gate's store announces to.
    hub: Arc<Hub>,
    /// The configuration that it was opened with.
    pub(crate) config: Config,
    /// What recovery did at this open.
    pub(crate) recovered: Report,
    _lock: Lock,
}

impl DataDir {
    /// The directory that the command line names, or the user's own.
    pub(crate) fn of(global: &Global) -> anyhow::Result<Self> {
        let root = match &global.data {
            Some(named) => named.clone(),
            None => place::by_default(|name| std::env::var_os(name))?,
        };
        let (config, store) = (global.config.clone(), global.store.clone());
        Ok(Self { config, store, ..Self::at(&root) })
    }

    pub(crate) fn at(root: &Path) -> Self {
        let (config, store, secrets) = (None, None, Vec::new());
        Self { root: root.to_owned(), config, store, secrets, joined: Arc::default() }
    }

    /// The same directory, with the store elsewhere.
    pub(crate) fn with_store(self, store: Option<String>) -> Self {
        Self { store, ..self }
    }

    /// The same directory, with a file that tool servers must not read either.
    pub(crate) fn with_secret(mut self, file: PathBuf) -> Self {
        self.secrets.push(file);
        self
    }

    /// What tool servers must not reach: the directory itself, what decides about their tools, and every
    /// file that a secret comes from. Absolute, whatever the servers' own directories are.
    pub(crate) fn hidden(&self, config: &Config) -> anyhow::Result<Vec<PathBuf>> {
        let base = self.base();
        let decisive = [Some(self.root.clone()), Some(self.policies(config)), self.config_file()];
        let keys = [config.serve.tls(&base)?.map(|pair| pair.key), config.agent.key_file(&base)];
        let hidden = decisive.into_iter().chain(keys).flatten();
        let hidden = hidden.chain(servers::secret_files(&config.servers, &base));
        let hidden = hidden.chain(self.secrets.iter().cloned()).map(std::path::absolute);
        Ok(hidden.collect::<io::Result<_>>()?)
    }

    /// The URL of the store, where it is not in the directory.
    pub(crate) fn store_url(&self, config: &Config) -> anyhow::Result<Option<String>> {
        let url = self.store.as_deref().unwrap_or(&config.store.url);
        match url.split_once("://") {
            None if url.is_empty() => Ok(None),
            Some(("postgres" | "postgresql", _)) => Ok(Some(url.to_owned())),
            Some(_) | None => bail!(
                "the store must be the URL of a PostgreSQL database: postgres://USER@HOST/DATABASE"
            ),
        }
    }

    /// This node's name, where the store may have others.
    pub(crate) fn node_id(&self, config: &Config) -> anyhow::Result<Option<String>> {
        Ok(self.store_url(config)?.map(|_| config.node_id()))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.root.join("stepgate.db")
    }

    pub(crate) fn sandbox(&self) -> PathBuf {
        self.root.join("sandbox")
    }

    /// Where the process that holds the directory listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.root.join("stepgate.sock")
    }

    pub(crate) fn load_config(&self) -> anyhow::Result<Config> {
        let file = self.config_file();
        let mut config = Config::load(file.as_deref(), |name| std::env::var(name).ok())?;
        if config.store.node_id.is_empty()
            && let Ok(named) = fs::read_to_string(self.root.join(NODE_ID))
        {
            config.store.node_id = named.trim().to_owned();
        }
        Ok(config)
    }

    /// The configuration file, where there is one.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        let inside = self.root.join("stepgate.toml");
        match &self.config {
            Some(file) => Some(file.clone()),
            // A link that leads nowhere is there: what it should lead to is missed, and not ignored.
            None => inside.symlink_metadata().is_ok().then_some(inside),
        }
    }

    /// The configuration file, for messages.
    pub(crate) fn config_shown(&self) -> String {
        self.config_file().unwrap_or_else(|| self.root.join("stepgate.toml")).display().to_string()
    }

    /// The configuration file's text, for messages that name a line of it.
    pub(crate) fn config_text(&self) -> Option<String> {
        fs::read_to_string(self.config_file()?).ok()
    }

    /// What relative paths in the configuration are relative to: the directory of its file.
    pub(crate) fn base(&self) -> PathBuf {
        let file = self.config_file();
        let directory = file.as_deref().and_then(Path::parent).unwrap_or(&self.root);
        std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned())
    }

    /// Where the policies are.
    pub(crate) fn policies(&self, config: &Config) -> PathBuf {
        self.base().join(&config.policy.directory)
    }

    /// Takes the directory, creating what is missing, and brings interrupted runs of core actions to their
    /// end. A gateway goes on with those of tool servers beside the requests.
    pub(crate) async fn hold(&self) -> anyhow::Result<Held> {
        self.hold_for(assembly::WAIT_FOR_ALL).await
    }

    /// The same for a gateway: it waits only so long for tool servers that do not answer.
    pub(crate) async fn hold_for_gateway(&self) -> anyhow::Result<Held> {
        let wait = self.load_config()?.serve.servers_wait();
        self.hold_for(wait).await
    }

    async fn hold_for(&self, wait: Duration) -> anyhow::Result<Held> {
        world::refuse_unset_clock()?;
        let mut config = self.load_config()?;
        self.refuse_backup()?;
        create(&self.root)?;
        let lock = Lock::take(&self.root)?;
        // Nothing is made in a directory that is to be filled.
        self.refuse_restoring()?;
        self.refuse_open_to_others(&config)?;
        create(&self.sandbox())?;
        self.name_node(&mut config)?;
        let hub = Hub::new();
        let store = store::open(self, &config, &hub).await?;
        if self.store_url(&config)?.is_some() {
            self.joined().push(Arc::clone(&store));
            refuse_behind(&*store, &self.root).await?;
        }
        let (gate, control) = assembly::assemble(self, &config, store, &hub, wait).await?;
        let recovered = recover::recover(&gate, Scope::Core).await?;
        self.forget_restored(&*gate.store, &control.sandbox).await?;
        tell(&gate, &recovered).await;
        Ok(Held { gate, control, hub, config, recovered, _lock: lock })
    }

    /// Takes the directory for one command, and brings all interrupted runs to their end first: no gateway may
    /// ever be started that does.
    pub(crate) async fn hold_recovered(&self) -> anyhow::Result<Held> {
        let mut held = self.hold().await?;
        let unfinished = held.gate.store.unfinished().await?;
        let needs = attention::of(&held.gate).await?;
        let is_told = |run: &Unfinished| needs.iter().any(|need| need.run_id == run.run_id);
        let is_call =
            |run: &&Unfinished| !run.is_waiting && !is_told(run) && Scope::Servers.covers(run);
        let calls = unfinished.iter().filter(is_call).count();
        if calls > 0 {
            show::note(format!("going on with {calls} interrupted call(s) of tool servers first"));
        }
        let report = recover::recover(&held.gate, Scope::Servers).await?;
        tell(&held.gate, &report).await;
        held.recovered.add(report);
        Ok(held)
    }

    fn joined(&self) -> MutexGuard<'_, Vec<Arc<dyn Store>>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what others would wait for until it lapses.
    pub(crate) async fn leave(&self) {
        let joined = std::mem::take(&mut *self.joined());
        for store in joined {
            // A server that is away sees it lapse.
            let _left = tokio::time::timeout(LEAVE_MAX, store.leave()).await;
        }
    }

    /// Free space on the volume that holds the directory, or would.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let existing = self.root.ancestors().find(|path| path.exists());
        let place = existing.unwrap_or_else(|| Path::new("."));
        let volume = rustix::fs::statvfs(place)?;
        Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
    }

    /// Adds what is most likely behind a fault on a full disk: its own text may name only the file
    /// that could not grow.
    pub(crate) fn explain(&self, fault: anyhow::Error) -> anyhow::Error {
        const FREE_BYTES_MIN: u64 = 1024 * 1024;
        match self.free_bytes() {
            Ok(free) if free < FREE_BYTES_MIN => fault.context(format!(
                "the disk that holds `{}` is full: free some space, and ask again",
                self.root.display()
            )),
            Ok(_) | Err(_) => fault,
        }
    }

    /// The process that holds the directory, if one does.
    pub(crate) fn holder(&self) -> Option<String> {
        lock::holder(&self.root)
    }

    /// Names this node for good, where the configuration does not: what it reaches is named after it, and
    /// two directories of one machine are two nodes.
    fn name_node(&self, config: &mut Config) -> anyhow::Result<()> {
        if !config.store.node_id.is_empty() || self.store_url(config)?.is_none() {
            return Ok(());
        }
        let mut chance = uuid::Uuid::new_v4().simple().to_string();
        chance.truncate(NODE_CHANCE_CHARS);
        let (path, node_id) = (self.root.join(NODE_ID), format!("{}-{chance}", config.node_id()));
        let written = durable::write(&path, format!("{node_id}\n").as_bytes());
        written.with_context(|| format!("cannot write `{}`", path.display()))?;
        config.store.node_id = node_id;
        Ok(())
    }
}

impl Held {
    /// What every door uses, over this directory.
    pub(crate) async fn service(&self) -> anyhow::Result<Arc<Service>> {
        let control = Some(Arc::clone(&self.control));
        Service::new(self.gate.clone(), Arc::clone(&self.hub), control).await
    }

    /// Tells people, on standard error, what was recovered and what needs them.
    pub(crate) async fn tell(&self) {
        self.tell_finished();
        match attention::of(&self.gate).await {
            Ok(needs) => needs.iter().map(show::attention::line).for_each(show::note),
            Err(error) => show::note(format!("cannot read which runs need a person: {error}")),
        }
    }

    /// Tells people what was brought to its end.
    pub(crate) fn tell_finished(&self) {
        match self.recovered.finished.len() {
            0 => {}
            count => show::note(format!(
                "recovered {count} interrupted run(s); `stepgate runs` shows them"
            )),
        }
    }

    /// The local agent's session: the one that is named, or its default one.
    pub(crate) async fn session(&self, named: Option<SessionId>) -> Result<Session, Fault> {
        let principal = local_agent()?;
        match named {
            Some(id) => self.gate.named_session(id, &principal).await,
            None => self.gate.default_session(&principal).await,
        }
    }
}

/// Makes durable which runs need a person. Where that is not possible now, the next recovery does it.
async fn tell(gate: &Gate, report: &Report) {
    if let Err(fault) = attention::tell(gate, report).await {
        show::note(format!("which runs need a person is written down later: {fault}"));
    }
}

/// Makes a directory and what is missing above it, so that a power cut does not take it back: nothing
/// that is durable inside is, unless its directory is too.
fn create_durably(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(io::ErrorKind::NotFound.into()),
    };
    create_durably(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        // Another process was faster, and has made it durable.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => File::open(parent)?.sync_all(),
    }
}

/// The same, with the way out.
fn create(directory: &Path) -> anyhow::Result<()> {
    create_durably(directory).map_err(|error| {
        let way_out = way_out(&error);
        let what = format!("cannot create `{}`: {way_out}", directory.display());
        anyhow::Error::new(error).context(what)
    })
}

/// What an operator can do about it.
fn way_out(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::StorageFull {
        "free some space on the disk, and start again"
    } else if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        "make the file system writable, or name another place with --data"
    } else {
        "check the permissions, or name another place with --data"
    }
}

pub(crate) fn local_agent() -> Result<PrincipalId, Fault> {
    Ok(PrincipalId::parse(LOCAL_AGENT)?)
}
