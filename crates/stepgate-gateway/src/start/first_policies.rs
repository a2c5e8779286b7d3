//! The policies of a first start. If other policies were in force before, or are configured elsewhere, a missing
//! directory is an error: the default policies may permit what those denied.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use stepgate_core::gate::Gate;
use stepgate_policy::{DEFAULTS, defaults_digest};

use super::PolicySettings;
use crate::control::last_noted_policy;
use crate::durable;

/// Writes the default policies, if there are none and no other policies are missing.
pub(super) async fn provide(gate: &Gate, policies: &PolicySettings) -> anyhow::Result<()> {
    let directory = &policies.directory;
    // A dangling link is not replaced: loading reports it.
    if directory.symlink_metadata().is_ok() {
        return Ok(());
    }
    let shown = directory.display();
    ensure!(
        policies.is_default,
        "`policy.directory` is `{shown}`, and it is not there: make it, and put policies into it"
    );
    match last_noted_policy(gate).await? {
        Some(last) if last != defaults_digest().to_string() => bail!(
            "`{shown}` is not there, and the policies in force were not the default ones: put them \
             back, or copy those of another node; an empty directory denies everything"
        ),
        Some(_) | None => write(directory, DEFAULTS)
            .with_context(|| format!("cannot write the first policies to `{shown}`")),
    }
}

/// Writes policies to a directory that does not exist yet: all or nothing. A directory with half of the files would
/// deny what the other half permits.
pub fn write(directory: &Path, files: &[(&str, &str)]) -> std::io::Result<()> {
    let temporary = directory.with_extension("new");
    if temporary.exists() {
        std::fs::remove_dir_all(&temporary)?;
    }
    std::fs::DirBuilder::new().mode(0o700).create(&temporary)?;
    for (name, text) in files {
        durable::write_new(&temporary.join(name), text.as_bytes())?;
    }
    // INVARIANT: a directory with the final name is complete, even after a power cut.
    durable::sync_names(Some(&temporary))?;
    std::fs::rename(&temporary, directory)?;
    durable::sync_names(directory.parent())
}
