//! The manifest lists what is in a backup, so that a missing or changed file is noticed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use stepgate_core::digest::Digest;
use stepgate_core::json::Value;
use stepgate_core::time::Timestamp;
use stepgate_exec::Identity;
use stepgate_gateway::durable;
use stepgate_store::RowCounts;

use super::{MANIFEST, SANDBOX};

/// The format that this version writes, and the newest that it reads.
pub(crate) const FORMAT: u64 = 2;
/// From this format on, a backup lists the files whose fate is unknown, and never mistakes a file for a recorded one.
const FORMAT_PROVES_FILES: u64 = 2;
/// Largest manifest that is read: about a million files.
const BYTES_MAX: u64 = 1024 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) format: u64,
    /// When the backup began: the snapshot was taken then or shortly after.
    pub(crate) made_at: Timestamp,
    pub(crate) made_by: String,
    pub(crate) engine: Engine,
    /// The version of the tables in `stepgate.db`.
    pub(crate) schema_version: i64,
    pub(crate) rows: RowCounts,
    /// The directory of the policies, if it is below the directory of the configuration.
    pub(crate) policy_directory: Option<String>,
    /// The name of the sandbox in the journal.
    pub(crate) sandbox_id: String,
    /// Its names before it was itself restored, if runs from that time are not over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) earlier_sandbox_ids: Vec<String>,
    /// None if the sandbox is not in the backup.
    pub(crate) sandbox: Option<SandboxPart>,
    pub(crate) files: Vec<BackupFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    Sqlite,
    Postgresql,
}

/// What is known of the sandbox besides its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SandboxPart {
    pub(crate) directories: Vec<String>,
    /// Their permissions, and those of the sandbox itself under the empty name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) directory_modes: BTreeMap<String, u32>,
    /// Where the files are that calls under way would rename, delete or replace.
    pub(crate) under_way: Vec<UnderWay>,
    /// Files that could not be identified, so it is unknown whether they are here. All others are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown: Vec<Identity>,
    /// Whether nothing changed while it was copied.
    pub(crate) is_settled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnderWay {
    pub(crate) was: Identity,
    pub(crate) path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupFile {
    /// Relative to the backup's directory.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: Digest,
    /// The permissions with which it is restored.
    pub(crate) mode: u32,
}

/// The manifest in its file, with its own digest.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    manifest: Manifest,
    manifest_digest: Digest,
}

impl Manifest {
    /// Every name that runs that are not over may use for the sandbox.
    pub(crate) fn sandbox_ids(&self) -> Vec<String> {
        let earlier = self.earlier_sandbox_ids.iter().cloned();
        [self.sandbox_id.clone()].into_iter().chain(earlier).collect()
    }

    /// Whether the backup proves which files calls under way recorded, and that unlisted ones are gone.
    pub(crate) fn proves_files(&self) -> bool {
        self.format >= FORMAT_PROVES_FILES
    }

    /// Writes the manifest, as the last file of a backup.
    pub(crate) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let sealed = Sealed { manifest: self.clone(), manifest_digest: Digest::of(self) };
        let path = directory.join(MANIFEST);
        let text = serde_json::to_string_pretty(&sealed)? + "\n";
        durable::write_new(&path, text.as_bytes())
            .map_err(|error| super::cannot_write(&path, error))
    }

    pub(crate) fn read(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(MANIFEST);
        let shown = directory.display();
        let Ok(metadata) = fs::metadata(&path) else {
            bail!(
                "`{shown}` is not a backup: it has no `{MANIFEST}`; name the directory that `stepgate backup` made"
            );
        };
        ensure!(metadata.len() <= BYTES_MAX, "`{}` is larger than any manifest", path.display());
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        let damaged = || format!("`{}` is damaged; use another backup", path.display());
        let value: Value = serde_json::from_str(&text).with_context(damaged)?;
        let format = value.get("manifest").and_then(|it| it.get("format")).and_then(Value::as_u64);
        if let Some(format) = format.filter(|format| *format > FORMAT) {
            bail!(
                "`{shown}` has format {format}, and this Stepgate knows {FORMAT}; use the newer Stepgate that made it"
            );
        }
        let sealed: Sealed = serde_json::from_value(value).with_context(damaged)?;
        ensure!(Digest::of(&sealed.manifest) == sealed.manifest_digest, damaged());
        let paths = sealed.manifest.files.iter().map(|file| &file.path);
        let sandbox = sealed.manifest.sandbox.iter().flat_map(|sandbox| &sandbox.directories);
        if let Some(path) = paths.chain(sandbox).find(|path| !stays_beneath(path)) {
            bail!("`{shown}` names a path outside of it, `{path}`; it was not made by Stepgate");
        }
        let directory = sealed.manifest.policy_directory.as_deref();
        let policy_directory = directory.and_then(|directory| own_directory(Path::new(directory)));
        Ok(Manifest { policy_directory, ..sealed.manifest })
    }
}

/// The shortest form of a policy directory that is inside the data directory, next to the other restored files. None
/// for a directory elsewhere, or for one with `..`: only the file system knows where that leads.
pub(crate) fn own_directory(path: &Path) -> Option<String> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_str()?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    let is_own = names.first().is_some_and(|first| *first != SANDBOX);
    is_own.then(|| names.join("/"))
}

/// Whether a path stays below whatever it is joined to.
fn stays_beneath(path: &str) -> bool {
    let mut components = Path::new(path).components().peekable();
    components.peek().is_some()
        && components.all(|component| matches!(component, Component::Normal(_)))
}
