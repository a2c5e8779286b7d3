//! Refuses data, policies and configuration that other users of the machine can write.

use std::path::Path;

use stepgate_gateway::control::{mode_of, refuse_writable, refuse_writable_policies};
use tracing::warn;

use crate::config::Config;
use crate::data_dir::DataDir;

/// Permission bit: the group may write.
const GROUP: u32 = 0o020;

/// Refuses to work if every user of the machine can change tokens, policies or the configuration. Group write may be
/// intended, as with volumes of a container, so it is only a warning.
pub(crate) fn refuse_open_to_others(data: &DataDir, config: &Config) -> anyhow::Result<()> {
    let policies = data.policies(config);
    refuse_writable(data.root())?;
    tell_group(data.root());
    if let Some(file) = data.config_file() {
        refuse_writable(&file)?;
    }
    if !policies.starts_with(data.root()) {
        tell_group(&policies);
    }
    refuse_writable_policies(&policies)
}

fn tell_group(path: &Path) {
    if let Some(mode) = mode_of(path).filter(|mode| mode & GROUP != 0) {
        warn!(
            "the group of `{0}` can write to it (mode {mode:o}), and so decide what is permitted; if that \
             is not meant: `chmod g-w {0}`",
            path.display()
        );
    }
}
