//! `[agent]`: the model behind `/v1/agent/turns` and `stepgate chat`. Without a `base_url` there is none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_agent::limits::AgentLimits;
use stepgate_agent::openai::{Endpoint, ModelKey};
use stepgate_agent::ports::Profile;
use stepgate_gateway::turns::AgentSettings;

use super::Beside;

/// Longest time for one try: an hour.
const TIMEOUT_CEILING_MS: u64 = 60 * 60 * 1000;
const ATTEMPTS_CEILING: u32 = 10;
/// Most rounds: the specification's own limit.
const ROUNDS_CEILING: usize = 8;
const TURNS_CEILING: usize = 1000;
const BYTES_CEILING: usize = 64 * 1024 * 1024;
const KEY_BYTES_MAX: u64 = 64 * 1024;

/// The agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentConfig {
    /// Where the model is, such as `https://api.openai.com/v1`: what stands before
    /// `/chat/completions`. Empty: there is no agent.
    base_url: String,
    /// The model to ask for.
    model: String,
    /// The environment variable that has the endpoint's key.
    key_env: String,
    /// The file that has the endpoint's key, beside the configuration file where it is not absolute.
    key_file: PathBuf,
    /// What the model is told about itself.
    system_prompt: String,
    /// The mode of sessions, for the record.
    mode: String,
    /// What people call the mode.
    mode_display_name: String,
    /// The organisation whose gateway this is, for the record.
    org: String,
    /// How long one try may take, in milliseconds.
    #[schemars(range(min = 1, max = TIMEOUT_CEILING_MS))]
    timeout_ms: u64,
    /// How often the model is tried in all.
    #[schemars(range(min = 1, max = ATTEMPTS_CEILING))]
    attempts_max: u32,
    /// Most answers of the model to one request.
    #[schemars(range(min = 1, max = ROUNDS_CEILING))]
    rounds_max: usize,
    /// Most turns of one conversation.
    #[schemars(range(min = 1, max = TURNS_CEILING))]
    turns_max: usize,
    /// Longest conversation that the model is told, in bytes.
    #[schemars(range(min = 1, max = BYTES_CEILING))]
    prompt_bytes_max: usize,
    /// Longest request, in bytes.
    #[schemars(range(min = 1, max = BYTES_CEILING))]
    request_bytes_max: usize,
}

impl Default for AgentConfig {
    fn default() -> Self {
        let AgentLimits { rounds_max, turns_max, prompt_bytes_max } = AgentLimits::default();
        Self {
            base_url: String::new(),
            model: String::new(),
            key_env: String::new(),
            key_file: PathBuf::new(),
            system_prompt: "You are a careful assistant. What you do goes through a gate: a tool \
                            may be refused, or wait for a person. Say plainly what was done and \
                            what was not."
                .to_owned(),
            mode: "general".to_owned(),
            mode_display_name: "General".to_owned(),
            org: "stepgate".to_owned(),
            timeout_ms: 120_000,
            attempts_max: 3,
            rounds_max,
            turns_max,
            prompt_bytes_max,
            request_bytes_max: 1024 * 1024,
        }
    }
}

impl AgentConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.base_url.is_empty() {
            ensure!(self.model.is_empty(), "agent.model needs agent.base_url: where is the model?");
            return Ok(());
        }
        ensure!(!self.model.is_empty(), "agent.base_url needs agent.model: which model is asked?");
        let texts = [
            ("agent.system_prompt", &self.system_prompt),
            ("agent.mode", &self.mode),
            ("agent.mode_display_name", &self.mode_display_name),
            ("agent.org", &self.org),
        ];
        for (key, text) in texts {
            ensure!(!text.trim().is_empty(), "{key} must not be empty");
        }
        Ok(())
    }

    pub(crate) fn settings(&self, beside: Beside<'_>) -> anyhow::Result<Option<AgentSettings>> {
        if self.base_url.is_empty() {
            return Ok(None);
        }
        let endpoint = Endpoint {
            base_url: self.base_url.clone(),
            model: self.model.clone(),
            key: self.key(beside)?,
            timeout: Duration::from_millis(self.timeout_ms),
            attempts_max: self.attempts_max,
        };
        let profile = Profile {
            system_prompt: self.system_prompt.clone(),
            mode: self.mode.clone(),
            mode_display_name: self.mode_display_name.clone(),
        };
        let limits = AgentLimits {
            rounds_max: self.rounds_max,
            turns_max: self.turns_max,
            prompt_bytes_max: self.prompt_bytes_max,
        };
        let (org, request_bytes_max) = (self.org.clone(), self.request_bytes_max);
        Ok(Some(AgentSettings { endpoint, profile, limits, org, request_bytes_max }))
    }

    /// The file that has the endpoint's key, where one is named.
    pub(crate) fn key_file(&self, base: &Path) -> Option<PathBuf> {
        (!self.key_file.as_os_str().is_empty()).then(|| base.join(&self.key_file))
    }

    fn key(&self, beside: Beside<'_>) -> anyhow::Result<Option<ModelKey>> {
        match (self.key_env.is_empty(), self.key_file(beside.base)) {
            (true, None) => Ok(None),
            (false, Some(_)) => bail!("name agent.key_env or agent.key_file, one of the two"),
            (false, None) => {
                let name = &self.key_env;
                let key = (beside.environment)(name);
                let key = key.with_context(|| format!("agent.key_env: `{name}` is not set"))?;
                Ok(Some(ModelKey::new(&key)))
            }
            (true, Some(file)) => {
                let unread = || format!("agent.key_file: cannot read `{}`", file.display());
                let size = std::fs::metadata(&file).with_context(unread)?.len();
                ensure!(size <= KEY_BYTES_MAX, "`{}` is too long for a key", file.display());
                let key = std::fs::read_to_string(&file).with_context(unread)?;
                Ok(Some(ModelKey::new(&key)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
