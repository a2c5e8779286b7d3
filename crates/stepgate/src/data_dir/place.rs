//! Where a data directory is, if the command line does not say, and whether there is one.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{DataDir, NODE_ID, lock, restoring};
use crate::backup::{CONFIG, DATABASE, MANIFEST, POLICIES, SANDBOX};

/// The directory's name beneath the user's data.
const NAME: &str = "stepgate";
/// Where earlier versions had it, in the directory that they were started in.
const OLDER: &str = "stepgate-data";

/// `$XDG_DATA_HOME/stepgate`, or `~/.local/share/stepgate`. It is outside of every project: a directory that it
/// lies in can hardly be used by tool servers, from which it is hidden.
pub(super) fn by_default(
    environment: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<PathBuf> {
    // The specification says to ignore a relative path.
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME");
    let data = data.or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    let data = data.context(
        "there is no home to keep data in: name a directory with --data, or in STEPGATE_DATA",
    )?;
    Ok(data.join(NAME))
}

/// The directory of an earlier version in this one, where there is one. It is not used by itself: what is
/// decided in a directory must not depend on where a command is typed.
pub(crate) fn of_earlier_version() -> Option<&'static Path> {
    let older = Path::new(OLDER);
    is_data_directory(older).then_some(older)
}

impl DataDir {
    /// Refuses a place where nothing was ever kept: a command that only looks would find that all is well.
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

/// What may not be looked at is there: what keeps a command from looking is the better message.
fn is_there(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

#[cfg(test)]
mod tests;
