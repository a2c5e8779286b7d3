//! `[directory.NAME]` and `[requests]`: what vouches for the values of arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::ids::PrincipalId;
use stepgate_core::origin::{Directories, is_directory_name};

/// A list of values that the operator vouches for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DirectoryConfig {
    /// The values. `*@example.com` is every mail address of a domain.
    entries: Vec<String>,
    /// A file with more of them, one on a line, beside the configuration file where it is not absolute. It is read when
    /// the gateway starts. Empty lines and lines that begin with `#` are left out.
    file: Option<PathBuf>,
}

/// What users ask for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RequestsConfig {
    /// The agents whose own programs may say what the user asked for, by their principals. Such a program must keep its
    /// model away from its token.
    told_by: Vec<String>,
}

impl RequestsConfig {
    pub(super) fn tellers(&self) -> anyhow::Result<BTreeSet<PrincipalId>> {
        let tellers = self.told_by.iter().map(|name| PrincipalId::parse(name));
        tellers.collect::<Result<_, _>>().context("requests.told_by is not valid")
    }
}

/// The lists; with their files where it is known what those are beside.
pub(crate) fn directories(
    directories: &BTreeMap<String, DirectoryConfig>,
    beside: Option<&Path>,
) -> anyhow::Result<Directories> {
    let mut named = BTreeMap::new();
    for (name, directory) in directories {
        ensure!(
            is_directory_name(name),
            "directory.{name}: a name has 1 to 32 of a-z, 0-9, `_` and `-`"
        );
        let mut entries = directory.entries.clone();
        if let (Some(file), Some(base)) = (&directory.file, beside) {
            let file = base.join(file);
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("directory.{name}: cannot read `{}`", file.display()))?;
            let lines = text.lines().map(str::trim);
            let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
            entries.extend(lines.map(str::to_owned));
        }
        let most = Directories::ENTRIES_MAX;
        ensure!(entries.len() <= most, "directory.{name} has more than {most} entries");
        named.insert(name.clone(), entries);
    }
    Ok(Directories::new(named))
}
