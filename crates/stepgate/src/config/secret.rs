//! A secret in the configuration: never its value, but where it is.

use std::path::{Path, PathBuf};

use anyhow::bail;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_exec::servers::Secret;

/// What names in the configuration are relative to.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a> {
    /// The directory of relative paths.
    pub(crate) base: &'a Path,
    /// The environment's variables.
    pub(crate) environment: &'a dyn Fn(&str) -> Option<String>,
}

/// Where a secret comes from: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SecretConfig {
    /// A variable of the gateway's environment.
    env: Option<String>,
    /// A file; a line break at its end is dropped.
    file: Option<PathBuf>,
}

impl SecretConfig {
    /// The secret. One that is not there is known as missing, with the reason.
    pub(super) fn read(&self, beside: Beside<'_>) -> anyhow::Result<Secret> {
        match (&self.env, &self.file) {
            // The environment of a process does not change.
            (Some(name), None) => Ok(match (beside.environment)(name) {
                Some(value) => Secret::new(value),
                None => Secret::missing(format!("the variable `{name}` is not set")),
            }),
            (None, Some(file)) => Ok(Secret::of_file(beside.base.join(file))),
            (Some(_), Some(_)) | (None, None) => bail!("name `env` or `file`, one of the two"),
        }
    }

    pub(super) fn file(&self, base: &Path) -> Option<PathBuf> {
        self.file.as_ref().map(|file| base.join(file))
    }
}
