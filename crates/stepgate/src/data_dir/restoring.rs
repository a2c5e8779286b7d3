//! A data directory that is filled from a backup. Until everything is in its place, a directory inside
//! says so, and nobody holds it: a restore that was interrupted never looks like a store.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::syncfs;

use super::DataDir;
use super::lock::Lock;
use crate::backup::{DATABASE, MANIFEST, cannot_write};

/// Where a restore puts things before all of them are there: everything, or the store alone.
pub(super) const STAGING: &str = ".restoring";
pub(super) const STAGING_STORE: &str = ".restoring-store";
/// What is put into its place, written down there before any of it is.
const PLACING: &str = "placing.json";
/// What becomes of such a directory when everything is in its place.
const OVER: &str = ".restoring-over";
/// What SQLite keeps beside a database. Left over from another one, it would be played back into the one
/// that is restored.
const BESIDE_DATABASE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// How much of a backup is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything, into a directory where nothing is.
    Everything,
    /// The store alone; the rest of the directory stays as it is.
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

/// A directory in the filling. Dropped, it leaves what was there before.
pub(crate) struct Staging {
    root: PathBuf,
    extent: Extent,
    /// What stands in its place already.
    placed: Vec<PathBuf>,
    was_made: bool,
    was_interrupted: bool,
    is_finished: bool,
    _lock: Lock,
}

impl DataDir {
    /// Takes the directory to fill it.
    pub(crate) fn stage(&self, extent: Extent) -> anyhow::Result<Staging> {
        let was_made = !self.root.exists();
        super::create_durably(&self.root).map_err(|error| cannot_write(&self.root, error))?;
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

    /// Refuses a backup: whoever writes into one damages it.
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
        // Of one that was stopped when it had nothing left to do.
        let _ = remove(&self.root.join(OVER));
        Ok(())
    }
}

impl Staging {
    fn path(&self) -> PathBuf {
        self.root.join(self.extent.staging())
    }

    /// Whether an earlier restore into the same place came to no end.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    /// Where a part goes before it is placed.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Makes a directory, with those above it, beneath the staging one.
    pub(crate) fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.at(name);
        let made = DirBuilder::new().mode(0o700).recursive(true).create(&path);
        made.map_err(|error| cannot_write(&path, error))?;
        Ok(path)
    }

    /// Makes everything durable and puts it where it belongs: the database last, because with it there is
    /// a store.
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

    /// Says that it is whole, at one moment: until then it is known what was put where.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.is_finished = true;
        let over = self.root.join(OVER);
        remove(&over)
            .and_then(|()| fs::rename(self.path(), &over))
            .and_then(|()| self.sync())
            .and_then(|()| remove(&over))
            .with_context(|| format!("everything is restored; remove `{}`", self.path().display()))
    }

    /// Makes the directory, or makes it empty. One that is there stays: it says that a restore has begun.
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

    /// Removes what an interrupted restore has put into its place. None of it was there when that began, and
    /// nobody could hold the directory since. Without a list, or with half of one, nothing was put anywhere.
    fn clear(&self) -> anyhow::Result<()> {
        let list = fs::read(self.at(PLACING)).unwrap_or_default();
        let names: Vec<String> = serde_json::from_slice(&list).unwrap_or_default();
        // Somebody may have looked at the database meanwhile.
        let beside = BESIDE_DATABASE.map(|beside| format!("{DATABASE}{beside}"));
        let beside = beside.into_iter().filter(|_| names.iter().any(|name| name == DATABASE));
        for name in names.iter().cloned().chain(beside) {
            let is_one_name = Path::new(&name).file_name() == Some(OsStr::new(&name));
            let path = self.root.join(&name);
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
            let beside = BESIDE_DATABASE.map(|beside| format!("{DATABASE}{beside}"));
            let mut names = [DATABASE.to_owned()].into_iter().chain(beside);
            let is_there = |name: &String| self.root.join(name).symlink_metadata().is_ok();
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
        // What stays is removed by the next restore, and nobody holds the directory before that.
        let mut is_clear = true;
        for path in &self.placed {
            is_clear &= remove(path).is_ok();
        }
        // One that was interrupted before may have filled the database: that it did not end stays known.
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
            // A directory of a sandbox may be one that nobody may write to.
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
