//! The default place of a data directory, and whether one exists.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{DataDir, NODE_ID, lock, restoring};
use crate::backup::{CONFIG, DATABASE, MANIFEST, POLICIES, SANDBOX};

/// The directory's name below the user's data directory.
const NAME: &str = "stepgate";
/// The name that earlier versions used, in the current directory.
const OLDER: &str = "stepgate-data";

/// `$XDG_DATA_HOME/stepgate`, or `~/.local/share/stepgate`. Outside of every project on purpose: the data directory is
/// hidden from tool servers, so they could hardly use a directory that contains it.
pub(super) fn by_default(
    environment: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<PathBuf> {
    // The XDG specification says to ignore relative paths.
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME");
    let data = data.or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    let data = data.context(
        "there is no home to keep data in: name a directory with --data, or in STEPGATE_DATA",
    )?;
    Ok(data.join(NAME))
}

/// The data directory of an earlier version in the current directory, if there is one. Never used automatically:
/// decisions must not depend on the directory in which a command is typed.
pub(crate) fn of_earlier_version() -> Option<&'static Path> {
    let older = Path::new(OLDER);
    is_data_directory(older).then_some(older)
}

impl DataDir {
    /// Refuses a place that is not a data directory: a command that only reads would report that all is well.
    pub(crate) fn must_exist(&self) -> anyhow::Result<()> {
        if is_data_directory(&self.root) {
            return Ok(());
        }
        bail!(
            "there is no data directory at `{}`: `stepgate serve`, or a first step, makes one; name \
             another with --data",
            self.root.display()
        )
    }
}

fn is_data_directory(root: &Path) -> bool {
    let beginnings = [lock::LOCK, NODE_ID, DATABASE, CONFIG, POLICIES, SANDBOX, MANIFEST];
    let staging = [restoring::STAGING, restoring::STAGING_STORE];
    beginnings.into_iter().chain(staging).any(|name| is_there(&root.join(name)))
}

/// A path that may not be inspected counts as existing: the permission error is the better message.
fn is_there(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

#[cfg(test)]
mod tests;
