//! The file with the keys of what the store keeps apart: payloads with redacted arguments as long as their steps need them,
//! and erasable arguments until they are erased.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, anyhow, ensure};
use stepgate_gateway::durable;
use stepgate_store::PayloadKeys;

use crate::config::Config;
use crate::data_dir::DataDir;

/// The file in the data directory, where the configuration names no other.
const PAYLOAD_KEY: &str = "payload.key";

impl DataDir {
    pub(crate) fn payload_key_file(&self, config: &Config) -> PathBuf {
        match config.store.payload_key_file.as_path() {
            named if named.as_os_str().is_empty() => self.root().join(PAYLOAD_KEY),
            named => self.base().join(named),
        }
    }

    pub(crate) fn payload_keys(&self, config: &Config) -> anyhow::Result<PayloadKeys> {
        let file = self.payload_key_file(config);
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(PayloadKeys::default());
            }
            read => read.with_context(|| format!("cannot read `{}`", file.display()))?,
        };
        let keys = PayloadKeys::parse(&text);
        keys.map_err(|why| anyhow!("`{}` is no file of payload keys: {why}", file.display()))
    }

    /// Makes the file where a tool has redacted or erasable arguments, or policies make them erasable. Only for the store in
    /// this directory: the nodes of a shared store must all have the same keys. Policies that need a key where none is made
    /// are refused when they are loaded.
    pub(crate) fn provide_payload_key(&self, config: &Config) -> anyhow::Result<()> {
        let file = self.payload_key_file(config);
        if file.exists() {
            return Ok(());
        }
        let is_own = config.store.payload_key_file.as_os_str().is_empty()
            && self.store_url(config)?.is_none();
        let by_policy = || is_own && stepgate_policy::mentions_erasable(&self.policies(config));
        if !config.has_redacted() && !by_policy() {
            return Ok(());
        }
        ensure!(
            is_own,
            "a tool server has `redacted` or `erasable`, and `{0}` with the key that encrypts them is not there: make it once, \
             `(umask 077; openssl rand -hex 32 >{0})`, and give every node of the store the same file \
             (store.payload_key_file)",
            file.display()
        );
        let text = format!(
            "# Encrypts redacted and erasable arguments. It is in no backup: keep a copy of it.\n{}\n",
            PayloadKeys::fresh_line().context("the system gives no random numbers")?
        );
        let written = durable::write(&file, text.as_bytes());
        written.with_context(|| format!("cannot write `{}`", file.display()))
    }
}
