//! Turns the configuration and the data directory into settings for each part of the gateway.

mod out_of_reach;
mod permissions;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use stepgate_core::fact_sources::FactSources;
use stepgate_exec::servers::{ServerSpec, StartError};
use stepgate_gateway::audit::StreamSettings;
use stepgate_gateway::durable;
use stepgate_gateway::notify::NotifySettings;
use stepgate_gateway::service::ArchiveSettings;
use stepgate_gateway::start::{
    PolicySettings, SandboxSettings, ServerSettings, Settings, StoreSettings,
};
use stepgate_gateway::turns::AgentSettings;

use crate::config::{Beside, Config, PolicyConfig, audit, notify, origin, servers};
use crate::data_dir::DataDir;
use crate::otlp::{self, OtlpSettings};

pub(crate) use out_of_reach::warnings as out_of_reach;
pub(crate) use permissions::refuse_open_to_others;

/// Random characters that distinguish two nodes of one machine.
const NODE_RANDOM_CHARS: usize = 6;

impl DataDir {
    /// The configuration: the file, if there is one, and the environment.
    pub(crate) fn load_config(&self) -> anyhow::Result<Config> {
        let file = self.config_file();
        let mut config = Config::load(file.as_deref(), |name| std::env::var(name).ok())?;
        if config.store.node_id.is_empty()
            && let Ok(named) = fs::read_to_string(self.node_file())
        {
            config.store.node_id = named.trim().to_owned();
        }
        Ok(config)
    }

    pub(crate) fn policies(&self, config: &Config) -> PathBuf {
        self.base().join(&config.policy.directory)
    }

    /// Which runs leave the store, and for where.
    pub(crate) fn archives(&self, config: &Config) -> ArchiveSettings {
        let told = config.notify.iter().map(|it| stepgate_gateway::notify::cursor_of(it.shown().0));
        let sent = config.audit.iter().map(|it| stepgate_gateway::audit::cursor_of(it.shown().0));
        config.retention.settings(&self.base(), told.chain(sent).collect())
    }

    /// Where the shadow policies are, if the configuration names some.
    pub(crate) fn shadow_policies(&self, config: &Config) -> Option<PathBuf> {
        let named = &config.policy.shadow;
        (!named.as_os_str().is_empty()).then(|| self.base().join(named))
    }

    /// The URL of the store, if it is not in the directory.
    pub(crate) fn store_url(&self, config: &Config) -> anyhow::Result<Option<String>> {
        let url = self.global.store.as_ref().unwrap_or(&config.store.url);
        match url.split_once("://") {
            None if url.is_empty() => Ok(None),
            Some(("postgres" | "postgresql", _)) => Ok(Some(url.to_owned())),
            Some(_) | None => bail!(
                "the store must be the URL of a PostgreSQL database: postgres://USER@HOST/DATABASE"
            ),
        }
    }

    pub(crate) fn node_id(&self, config: &Config) -> anyhow::Result<Option<String>> {
        Ok(self.store_url(config)?.map(|_| config.node_id()))
    }

    /// Gives this node a permanent name, if the configuration does not: its executors are named after it, and two
    /// directories on one machine are two nodes.
    pub(crate) fn name_node(&self, config: &mut Config) -> anyhow::Result<()> {
        if !config.store.node_id.is_empty() || self.store_url(config)?.is_none() {
            return Ok(());
        }
        let mut chance = uuid::Uuid::new_v4().simple().to_string();
        chance.truncate(NODE_RANDOM_CHARS);
        let (path, node_id) = (self.node_file(), format!("{}-{chance}", config.node_id()));
        let written = durable::write(&path, format!("{node_id}\n").as_bytes());
        written.with_context(|| format!("cannot write `{}`", path.display()))?;
        config.store.node_id = node_id;
        Ok(())
    }

    /// What tool servers must not reach: the data directory, the archives, the policies and configuration that control
    /// them, and every file with a secret. Absolute paths, because servers run in their own directories.
    fn hidden(&self, config: &Config) -> anyhow::Result<Vec<PathBuf>> {
        let base = self.base();
        let root = self.root().to_owned();
        let decisive = [Some(root), Some(self.policies(config)), self.config_file()];
        let tls_key = config.serve.tls(&base)?.map(|pair| pair.key);
        let payload_key = Some(self.payload_key_file(config));
        let keys = [tls_key, payload_key, config.agent.key_file(&base)];
        let archives = Some(base.join(&config.retention.directory));
        let hidden = decisive.into_iter().chain([self.shadow_policies(config), archives]);
        let hidden = hidden.chain(keys).flatten();
        let hidden = hidden.chain(servers::secret_files(&config.servers, &base));
        let hidden = hidden.chain(notify::secret_files(&config.notify, &base));
        let hidden = hidden.chain(audit::private_files(&config.audit, &base));
        let hidden = hidden.chain(config.otlp.secret_files(&base));
        let hidden = hidden.chain(self.secrets.iter().cloned()).map(std::path::absolute);
        Ok(hidden.collect::<io::Result<_>>()?)
    }

    /// Settings that are read from the configuration. The error names its file.
    fn valid<T>(&self, read: impl FnOnce(Beside<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let (base, environment) = (self.base(), |name: &str| std::env::var(name).ok());
        let settings = read(Beside { base: &base, environment: &environment });
        settings.with_context(|| format!("`{}` is not valid", self.config_shown()))
    }
}

/// The settings of a gateway; `wait`: how long it waits for tool servers that do not answer.
pub(crate) fn gateway(data: &DataDir, config: &Config, wait: Duration) -> anyhow::Result<Settings> {
    let store = match data.store_url(config)? {
        None => StoreSettings::File(data.database()),
        Some(url) => StoreSettings::Postgres { url, options: config.postgres_options() },
    };
    let sandbox = SandboxSettings {
        directory: data.sandbox(),
        id: config.sandbox_id(data.node_id(config)?.as_deref()),
        limits: config.sandbox_limits(),
        is_shared: config.sandbox.shared,
        earlier: data.earlier()?,
    };
    let servers = ServerSettings {
        specs: server_specs(data, config)?,
        turned_off: config.turned_off(),
        own_names: config.own_names(),
        wait,
        tracing: otlp::current,
    };
    let policies = PolicySettings {
        directory: data.policies(config),
        is_default: config.policy.directory == PolicyConfig::default().directory,
        shadow: data.shadow_policies(config),
    };
    Ok(Settings {
        root: data.root().to_owned(),
        reserved_bytes: config.store.free_bytes_min,
        store,
        payload_keys: data.payload_keys(config)?,
        sandbox,
        servers,
        policies,
        archives: data.archives(config),
        limits: config.limits(),
        extensions: config.extensions(),
        groups: config.groups()?,
        facts: FactSources {
            directories: origin::directories(&config.directory, Some(&data.base()))?,
            ..config.facts()?
        },
    })
}

pub(crate) fn agent(data: &DataDir, config: &Config) -> anyhow::Result<Option<AgentSettings>> {
    data.valid(|beside| config.agent.settings(beside))
}

/// The receivers of notifications, and where people decide.
pub(crate) fn receivers(
    data: &DataDir,
    config: &Config,
    public_url: Option<String>,
) -> anyhow::Result<NotifySettings> {
    data.valid(|beside| notify::settings(&config.notify, public_url, beside))
}

pub(crate) fn streams(data: &DataDir, config: &Config) -> anyhow::Result<Vec<StreamSettings>> {
    data.valid(|beside| audit::settings(&config.audit, beside))
}

pub(crate) fn collector(data: &DataDir, config: &Config) -> anyhow::Result<Option<OtlpSettings>> {
    if config.otlp.endpoint.is_empty() {
        return Ok(None);
    }
    let headers = data.valid(|beside| config.otlp.headers(beside))?;
    Ok(Some(OtlpSettings { config: config.otlp.clone(), headers }))
}

pub(crate) fn server_specs(data: &DataDir, config: &Config) -> anyhow::Result<Vec<ServerSpec>> {
    let (hidden, node_id) = (data.hidden(config)?, data.node_id(config)?);
    data.valid(|beside| servers::specs(&config.servers, beside, &hidden, node_id.as_deref()))
}

/// The error of a start. If a tool server caused it, with its place in the configuration.
pub(crate) fn located(data: &DataDir, error: anyhow::Error) -> anyhow::Error {
    let error = match error.downcast::<StartError>() {
        Ok(error) => error,
        Err(other) => return other,
    };
    let text = data.config_file().and_then(|file| std::fs::read_to_string(file).ok());
    let line = text.and_then(|text| servers::line_of(&text, error.server()));
    let place = match line {
        Some(line) => format!("`{}`, line {line}", data.config_shown()),
        None => format!("`{}`", data.config_shown()),
    };
    anyhow::Error::new(error).context(place)
}
