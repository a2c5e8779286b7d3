//! Configuration: `stepgate.toml`, then `STEPGATE_SECTION_KEY`, then flags. Unknown keys are errors.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::gate::Extensions;
use stepgate_core::limits::Limits;
use stepgate_exec::SandboxLimits;

/// What every environment variable of ours begins with. No other is ours, so a wrong one is a mistake.
const PREFIX: &str = "STEPGATE_";

/// The variables that stand for a flag.
const FLAG_VARIABLES: [&str; 2] = ["STEPGATE_CONFIG", "STEPGATE_DATA"];

/// Most tries to write a record.
const ATTEMPTS_CEILING: u32 = 1000;
/// Longest pause between two tries.
const PAUSE_CEILING_MS: u64 = 60_000;
/// Longest time to decide: a year.
const APPROVAL_CEILING_MS: u64 = 365 * 24 * 60 * 60 * 1000;
/// Largest file, as large as the largest payload.
const FILE_BYTES_CEILING: u64 = 64 * 1024 * 1024;
/// Most entries of a listing.
const ENTRIES_CEILING: usize = 1_000_000;

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
    /// Longest payload, in bytes.
    #[schemars(range(min = 1, max = Limits::PAYLOAD_BYTES_CEILING))]
    payload_bytes_max: usize,
    /// Deepest nesting of a payload.
    #[schemars(range(min = 2, max = Limits::JSON_DEPTH_CEILING))]
    json_depth_max: usize,
    /// Longest string that the record's args_summary repeats, in bytes.
    #[schemars(range(min = 0, max = Limits::PAYLOAD_BYTES_CEILING))]
    summary_string_bytes_max: usize,
    /// How often RECORD tries to write.
    #[schemars(range(min = 1, max = ATTEMPTS_CEILING))]
    record_attempts_max: u32,
    /// How long RECORD waits between two tries, in milliseconds.
    #[schemars(range(min = 0, max = PAUSE_CEILING_MS))]
    record_retry_pause_ms: u64,
    /// How long a person has to decide on an approval, in milliseconds.
    #[schemars(range(min = 1, max = APPROVAL_CEILING_MS))]
    approval_ttl_ms: u64,
}

/// The directory behind `/sandbox/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxConfig {
    /// Extensions of files that may be read, with their dot.
    read_extensions: Vec<String>,
    /// Extensions of files that may be written, deleted and renamed, with their dot.
    write_extensions: Vec<String>,
    /// Largest file that READ_FILE returns and WRITE_FILE writes, in bytes.
    #[schemars(range(min = 1, max = FILE_BYTES_CEILING))]
    file_bytes_max: u64,
    /// Most entries that LIST_FILES returns.
    #[schemars(range(min = 1, max = ENTRIES_CEILING))]
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
            approval_ttl_ms: limits.approval_ttl_ms,
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
        let (limits, sandbox) = (&self.limits, &self.sandbox);
        let payload = Limits::PAYLOAD_BYTES_CEILING;
        within("limits.payload_bytes_max", limits.payload_bytes_max, 1..=payload)?;
        let depth = Limits::JSON_DEPTH_CEILING;
        within("limits.json_depth_max", limits.json_depth_max, 2..=depth)?;
        within("limits.summary_string_bytes_max", limits.summary_string_bytes_max, 0..=payload)?;
        within("limits.record_attempts_max", limits.record_attempts_max, 1..=ATTEMPTS_CEILING)?;
        let pause = limits.record_retry_pause_ms;
        within("limits.record_retry_pause_ms", pause, 0..=PAUSE_CEILING_MS)?;
        within("limits.approval_ttl_ms", limits.approval_ttl_ms, 1..=APPROVAL_CEILING_MS)?;
        within("sandbox.file_bytes_max", sandbox.file_bytes_max, 1..=FILE_BYTES_CEILING)?;
        within("sandbox.entries_max", sandbox.entries_max, 1..=ENTRIES_CEILING)?;
        let extensions = sandbox.read_extensions.iter().chain(&sandbox.write_extensions);
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
            approval_ttl_ms: limits.approval_ttl_ms,
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

fn within<T: PartialOrd + std::fmt::Display>(
    key: &str,
    value: T,
    range: RangeInclusive<T>,
) -> anyhow::Result<()> {
    let (least, most) = (range.start(), range.end());
    ensure!(range.contains(&value), "{key} is {value} and must be from {least} to {most}");
    Ok(())
}

/// A misspelled variable would silently leave a limit, or a directory, as it is by default.
pub(crate) fn refuse_unknown_variables(
    names: impl IntoIterator<Item = OsString>,
) -> anyhow::Result<()> {
    let mut known: Vec<String> = FLAG_VARIABLES.map(str::to_owned).to_vec();
    for (section, keys) in toml::Table::try_from(Config::default())? {
        if let toml::Value::Table(keys) = keys {
            known.extend(keys.keys().map(|key| variable(&section, key)));
        }
    }
    let is_unknown = |name: &OsString| {
        name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && !known.iter().any(|known| OsStr::new(known) == name)
    };
    if let Some(name) = names.into_iter().find(is_unknown) {
        bail!(
            "there is no environment variable `{}`: unset it, or use one of {}",
            name.display(),
            known.join(", ")
        );
    }
    Ok(())
}

/// The environment variable of a key.
fn variable(section: &str, key: &str) -> String {
    format!("{PREFIX}{section}_{key}").to_uppercase()
}

/// Lays `STEPGATE_SECTION_KEY` over the file, for every key that there is. Lists are split at commas.
fn overlay(
    table: &mut toml::Table,
    environment: &impl Fn(&str) -> Option<String>,
) -> anyhow::Result<()> {
    for (section, keys) in toml::Table::try_from(Config::default())? {
        let toml::Value::Table(keys) = keys else { continue };
        for (key, default) in keys {
            let name = variable(&section, &key);
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
