//! Who else may write where it is decided what an agent may do.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::bail;

use super::DataDir;
use crate::config::Config;
use crate::show;

/// Write permission of the group, and of everybody else.
const GROUP: u32 = 0o020;
const OTHERS: u32 = 0o002;

impl DataDir {
    /// Refuses to work where every user of the machine can change tokens, policies or the configuration. A
    /// group may be meant to, as with volumes of a container: it is told.
    pub(super) fn refuse_open_to_others(&self, config: &Config) -> anyhow::Result<()> {
        let policies = self.policies(config);
        refuse_writable(&self.root)?;
        tell_group(&self.root);
        if let Some(file) = self.config_file() {
            refuse_writable(&file)?;
        }
        if !policies.starts_with(&self.root) {
            tell_group(&policies);
        }
        refuse_writable_policies(&policies)
    }
}

/// Refuses policies that everybody can change, each of them and their directory.
pub(crate) fn refuse_writable_policies(directory: &Path) -> anyhow::Result<()> {
    refuse_writable(directory)?;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).try_for_each(|path| refuse_writable(&path))
}

/// What is not there, or may not be looked at, is refused by who reads it.
fn refuse_writable(path: &Path) -> anyhow::Result<()> {
    match mode_of(path) {
        Some(mode) if mode & OTHERS != 0 => bail!(
            "everybody can write to `{0}` (mode {mode:o}), and so decide what is permitted: \
             `chmod go-w {0}`",
            path.display()
        ),
        Some(_) | None => Ok(()),
    }
}

fn tell_group(path: &Path) {
    if let Some(mode) = mode_of(path).filter(|mode| mode & GROUP != 0) {
        show::note(format!(
            "{}warning:{:#} the group of `{2}` can write to it (mode {mode:o}), and so decide what is \
             permitted; if that is not meant: `chmod g-w {2}`",
            show::ERROR,
            show::ERROR,
            path.display()
        ));
    }
}

/// Of what is read, also through a link.
fn mode_of(path: &Path) -> Option<u32> {
    Some(path.metadata().ok()?.permissions().mode() & 0o7777)
}
