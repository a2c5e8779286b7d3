//! A data directory that is being restored. Until everything is in place, it contains a staging directory, and no
//! process may serve it: an interrupted restore never looks like a store.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::syncfs;

use stepgate_gateway::durable;

use super::DataDir;
use super::lock::Lock;
use crate::backup::{DATABASE, MANIFEST, cannot_write};

/// The staging directories: for everything, or for the store only.
pub(super) const STAGING: &str = ".restoring";
pub(super) const STAGING_STORE: &str = ".restoring-store";
/// The list of what is moved into place, written before anything is moved.
const PLACING: &str = "placing.json";
/// The staging directory is renamed to this when everything is in place.
const OVER: &str = ".restoring-over";
/// The files that SQLite keeps next to a database. Left over from another database, SQLite would replay
/// them into the restored one.
const BESIDE_DATABASE: [&str; 3] = ["stepgate.db-wal", "stepgate.db-shm", "stepgate.db-journal"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything, into an empty directory.
    Everything,
    /// Only the store; the rest of the directory stays as it is.
    Store,
}

impl Extent {
    fn staging(self) -> &'static str {
        match self {
            Self::Everything => STAGING,
            Self::Store => STAGING_STORE,
        }
    }
}

/// A restore in progress. If it is dropped before the end, the previous state is restored.
pub(crate) struct Staging {
    root: PathBuf,
    extent: Extent,
    placed: Vec<PathBuf>,
    was_made: bool,
    /// Whether an earlier restore into the same place was interrupted.
    pub(crate) was_interrupted: bool,
    is_finished: bool,
    _lock: Lock,
}

impl DataDir {
    /// Locks the directory, and begins a restore into it.
    pub(crate) fn stage(&self, extent: Extent) -> anyhow::Result<Staging> {
        let was_made = !self.root.exists();
        durable::create_directory(&self.root).map_err(|error| cannot_write(&self.root, error))?;
        let lock = Lock::take(&self.root)?;
        let root = self.root.clone();
        let was_interrupted = root.join(extent.staging()).exists();
        let staging = Staging {
            root,
            extent,
            placed: Vec::new(),
            was_made,
            was_interrupted,
            is_finished: false,
            _lock: lock,
        };
        if was_interrupted {
            staging.clear()?;
        }
        staging.refuse_what_is_there()?;
        staging.begin().map_err(|error| cannot_write(&staging.path(), error))?;
        Ok(staging)
    }

    /// Refuses a directory that is a backup: writing into it would damage it.
    pub(crate) fn refuse_backup(&self) -> anyhow::Result<()> {
        if self.root.join(MANIFEST).exists() {
            bail!(
                "`{0}` is a backup, and stays as it is: `stepgate --data DIR restore {0}` makes a data \
                 directory of it",
                self.root.display()
            );
        }
        Ok(())
    }

    /// Refuses a directory whose restore was interrupted.
    pub(crate) fn refuse_restoring(&self) -> anyhow::Result<()> {
        for staging in [STAGING, STAGING_STORE] {
            if self.root.join(staging).exists() {
                bail!(
                    "a restore into `{}` was interrupted: run `stepgate restore` again",
                    self.root.display()
                );
            }
        }
        // Left over from a restore that was stopped right at its end.
        let _ = remove(&self.root.join(OVER));
        Ok(())
    }
}

impl Staging {
    fn path(&self) -> PathBuf {
        self.root.join(self.extent.staging())
    }

    /// The path of a part before it is moved into place.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Creates a directory and its parents below the staging directory.
    pub(crate) fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.at(name);
        let made = DirBuilder::new().mode(0o700).recursive(true).create(&path);
        made.map_err(|error| cannot_write(&path, error))?;
        Ok(path)
    }

    /// Makes everything durable and moves it into place: the database last, because only with it the directory is a
    /// store.
    pub(crate) fn place(&mut self) -> anyhow::Result<()> {
        let path = self.path();
        let failed = |error: io::Error| cannot_write(&path, error);
        File::open(&path).and_then(|it| Ok(syncfs(it)?)).map_err(failed)?;
        let mut names: Vec<_> = fs::read_dir(&path)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect())
            .map_err(failed)?;
        names.sort_by_key(|name| name == DATABASE);
        self.write_down(&names).map_err(failed)?;
        for name in names {
            let to = self.root.join(&name);
            self.placed.push(to.clone());
            fs::rename(path.join(&name), &to).map_err(|error| cannot_write(&to, error))?;
        }
        self.sync().map_err(failed)
    }

    /// Marks the restore as complete, atomically. Until then the list says what was moved.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.is_finished = true;
        let over = self.root.join(OVER);
        remove(&over)
            .and_then(|()| fs::rename(self.path(), &over))
            .and_then(|()| self.sync())
            .and_then(|()| remove(&over))
            .with_context(|| format!("everything is restored; remove `{}`", self.path().display()))
    }

    /// Creates the staging directory, or empties an existing one. It is not removed: it marks that a restore has begun.
    fn begin(&self) -> io::Result<()> {
        if !self.was_interrupted {
            return DirBuilder::new().mode(0o700).create(self.path());
        }
        fs::read_dir(self.path())?.try_for_each(|entry| remove(&entry?.path()))
    }

    fn write_down(&self, names: &[OsString]) -> io::Result<()> {
        let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
        let mut file = File::create(self.at(PLACING))?;
        file.write_all(&serde_json::to_vec(&names)?)?;
        file.sync_all()?;
        File::open(self.path())?.sync_all()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.root)?.sync_all()
    }

    /// Removes what an interrupted restore has moved into place. None of it existed before that restore, and no process
    /// can have used the directory since. Without a complete list, nothing was moved yet.
    fn clear(&self) -> anyhow::Result<()> {
        let list = fs::read(self.at(PLACING)).unwrap_or_default();
        let names: Vec<String> = serde_json::from_slice(&list).unwrap_or_default();
        // A reader may have opened the database meanwhile.
        let has_database = names.iter().any(|name| name == DATABASE);
        let beside = BESIDE_DATABASE.into_iter().filter(|_| has_database);
        for name in names.iter().map(String::as_str).chain(beside) {
            let is_one_name = Path::new(name).file_name() == Some(OsStr::new(name));
            let path = self.root.join(name);
            if is_one_name {
                remove(&path).map_err(|error| cannot_write(&path, error))?;
            }
        }
        let path = self.at(PLACING);
        remove(&path).map_err(|error| cannot_write(&path, error))
    }

    fn refuse_what_is_there(&self) -> anyhow::Result<()> {
        let root = self.root.display();
        if self.extent == Extent::Store {
            if self.root.join(STAGING).exists() {
                bail!("a restore of everything into `{root}` was interrupted: run that again");
            }
            let mut names = [DATABASE].into_iter().chain(BESIDE_DATABASE);
            let is_there = |name: &&str| self.root.join(name).symlink_metadata().is_ok();
            if let Some(name) = names.find(is_there) {
                bail!(
                    "there is a store in `{root}` already, or what is left of one, `{name}`: move \
                     `{DATABASE}` and what begins with its name elsewhere first, all of it together, and \
                     keep it"
                );
            }
            return Ok(());
        }
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            if name != "lock" && !(self.was_interrupted && name == STAGING) {
                bail!(
                    "`{root}` is not empty, it has `{}`: name another directory with --data, or restore \
                     the store alone with --store-only",
                    name.to_string_lossy()
                );
            }
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // The next restore removes what is left; until then no process serves the directory.
        let mut is_clear = true;
        for path in &self.placed {
            is_clear &= remove(path).is_ok();
        }
        // An earlier, interrupted restore may have filled the database: keep the mark that it did not finish.
        is_clear = is_clear && !self.was_interrupted && remove(&self.path()).is_ok();
        if self.was_made && is_clear {
            let _ = fs::remove_file(self.root.join("lock"));
            let _ = fs::remove_dir(&self.root);
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path).or_else(|_| {
            // A directory of a sandbox may be read-only.
            open_up(path)?;
            fs::remove_dir_all(path)
        }),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn open_up(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}
