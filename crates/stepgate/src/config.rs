//! Configuration: `stepgate.toml`, then `STEPGATE_SECTION_KEY`, then flags. Unknown keys are errors.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::gate::Extensions;
use stepgate_core::limits::Limits;
use stepgate_exec::SandboxLimits;

/// Everything that can be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// What a step may cost.
    pub(crate) limits: LimitsConfig,
    /// The directory behind `/sandbox/`.
    pub(crate) sandbox: SandboxConfig,
}

/// What a step may cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsConfig {
    /// Longest payload in bytes, up to 64 MiB.
    payload_bytes_max: usize,
    /// Deepest nesting of a payload, up to 120.
    json_depth_max: usize,
    /// Longest string that the record's args_summary repeats.
    summary_string_bytes_max: usize,
    /// How often RECORD tries to write.
    record_attempts_max: u32,
    /// How long RECORD waits between two tries, in milliseconds.
    record_retry_pause_ms: u64,
}

/// The directory behind `/sandbox/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxConfig {
    /// Extensions of files that may be read, with their dot.
    read_extensions: Vec<String>,
    /// Extensions of files that may be written, deleted and renamed, with their dot.
    write_extensions: Vec<String>,
    /// Largest file that READ_FILE returns, in bytes.
    file_bytes_max: u64,
    /// Most entries that LIST_FILES returns.
    entries_max: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            payload_bytes_max: limits.payload_bytes_max,
            json_depth_max: limits.json_depth_max,
            summary_string_bytes_max: limits.summary_string_bytes_max,
            record_attempts_max: limits.record_attempts_max,
            record_retry_pause_ms: u64::try_from(limits.record_retry_pause.as_millis())
                .unwrap_or(u64::MAX),
        }
    }
}

impl Default for SandboxConfig {
    fn default() -> Self {
        let dotted = |names: Vec<String>| names.iter().map(|name| format!(".{name}")).collect();
        let Extensions { read, write } = Extensions::default();
        let SandboxLimits { file_bytes_max, entries_max } = SandboxLimits::default();
        Self {
            read_extensions: dotted(read),
            write_extensions: dotted(write),
            file_bytes_max,
            entries_max,
        }
    }
}

impl Config {
    /// Reads the file, where there is one, and lays the environment over it.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let mut table = match file {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read `{}`", file.display()))?;
                // Read once as what it must be, so that an error names the line.
                toml::from_str::<Self>(&text)
                    .with_context(|| format!("`{}` is not valid", file.display()))?;
                toml::from_str(&text)?
            }
            None => toml::Table::new(),
        };
        overlay(&mut table, &environment)?;
        let config: Self = table.try_into()?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> anyhow::Result<()> {
        let limits = &self.limits;
        let payload = 1..=Limits::PAYLOAD_BYTES_CEILING;
        let depth = 2..=Limits::JSON_DEPTH_CEILING;
        ensure!(
            payload.contains(&limits.payload_bytes_max),
            "limits.payload_bytes_max must be from {} to {}",
            payload.start(),
            payload.end()
        );
        ensure!(
            depth.contains(&limits.json_depth_max),
            "limits.json_depth_max must be from {} to {}",
            depth.start(),
            depth.end()
        );
        ensure!(limits.record_attempts_max > 0, "limits.record_attempts_max must be at least 1");
        let extensions = self.sandbox.read_extensions.iter().chain(&self.sandbox.write_extensions);
        for extension in extensions {
            let is_extension = extension.len() > 1
                && extension.starts_with('.')
                && !extension.chars().skip(1).any(|c| c == '.' || c == '/');
            ensure!(is_extension, "`{extension}` is not an extension: write it like `.txt`");
        }
        Ok(())
    }

    /// What a step may cost.
    pub(crate) fn limits(&self) -> Limits {
        let limits = &self.limits;
        Limits {
            payload_bytes_max: limits.payload_bytes_max,
            json_depth_max: limits.json_depth_max,
            summary_string_bytes_max: limits.summary_string_bytes_max,
            record_attempts_max: limits.record_attempts_max,
            record_retry_pause: Duration::from_millis(limits.record_retry_pause_ms),
            ..Limits::default()
        }
    }

    /// Which files may be touched.
    pub(crate) fn extensions(&self) -> Extensions {
        let bare = |names: &[String]| {
            names.iter().map(|name| name.trim_start_matches('.').to_owned()).collect()
        };
        Extensions {
            read: bare(&self.sandbox.read_extensions),
            write: bare(&self.sandbox.write_extensions),
        }
    }

    /// What the sandbox may cost.
    pub(crate) fn sandbox_limits(&self) -> SandboxLimits {
        SandboxLimits {
            file_bytes_max: self.sandbox.file_bytes_max,
            entries_max: self.sandbox.entries_max,
        }
    }
}

/// Lays `STEPGATE_SECTION_KEY` over the file, for every key that there is. Lists are split at commas.
fn overlay(
    table: &mut toml::Table,
    environment: &impl Fn(&str) -> Option<String>,
) -> anyhow::Result<()> {
    for (section, keys) in toml::Table::try_from(Config::default())? {
        let toml::Value::Table(keys) = keys else { continue };
        for (key, default) in keys {
            let name = format!("STEPGATE_{section}_{key}").to_uppercase();
            let Some(text) = environment(&name) else { continue };
            let value = value_like(&default, &text)
                .with_context(|| format!("environment variable {name} is not valid"))?;
            let section = table
                .entry(section.clone())
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let toml::Value::Table(section) = section {
                section.insert(key, value);
            }
        }
    }
    Ok(())
}

fn value_like(default: &toml::Value, text: &str) -> anyhow::Result<toml::Value> {
    Ok(match default {
        toml::Value::String(_) => toml::Value::String(text.to_owned()),
        toml::Value::Integer(_) => toml::Value::Integer(text.trim().parse()?),
        toml::Value::Boolean(_) => toml::Value::Boolean(text.trim().parse()?),
        toml::Value::Array(_) => toml::Value::Array(
            text.split(',').map(|item| toml::Value::String(item.trim().to_owned())).collect(),
        ),
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => {
            bail!("cannot be set by the environment")
        }
    })
}

#[cfg(test)]
mod tests;
