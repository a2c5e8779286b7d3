//! A backup to restore from. Only files with the right digest are used.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use stepgate_core::verify::SavedHead;

use super::manifest::{BackupFile, Manifest};
use super::target::digest_of;
use super::{HEADS, cannot_write};

pub(crate) struct Backup {
    directory: PathBuf,
    pub(crate) manifest: Manifest,
}

impl Backup {
    pub(crate) fn open(directory: &Path) -> anyhow::Result<Self> {
        let manifest = Manifest::read(directory)?;
        Ok(Self { directory: directory.to_owned(), manifest })
    }

    pub(crate) fn file(&self, path: &str) -> anyhow::Result<&BackupFile> {
        let file = self.manifest.files.iter().find(|file| file.path == path);
        let shown = self.directory.display();
        file.with_context(|| format!("`{shown}` has no `{path}`; use another backup"))
    }

    /// The files below a directory, each with its path relative to it.
    pub(crate) fn beneath<'a>(
        &'a self,
        directory: &'a str,
    ) -> impl Iterator<Item = (&'a BackupFile, &'a str)> {
        self.manifest.files.iter().filter_map(move |file| {
            let beneath = file.path.strip_prefix(directory)?.strip_prefix('/')?;
            Some((file, beneath))
        })
    }

    pub(crate) fn heads(&self) -> anyhow::Result<Vec<SavedHead>> {
        let file = self.file(HEADS)?;
        let mut text = Vec::new();
        self.read(file, &mut text)?;
        let shown = self.directory.display();
        serde_json::from_slice(&text).with_context(|| format!("`{HEADS}` of `{shown}` is damaged"))
    }

    /// Copies a file to a path that must not exist yet.
    pub(crate) fn take(&self, file: &BackupFile, to: &Path) -> anyhow::Result<()> {
        let mut out = OpenOptions::new();
        let out = out.write(true).create_new(true).mode(0o600).open(to);
        let mut out = out.map_err(|error| cannot_write(to, error))?;
        self.read(file, &mut out)?;
        let mode = Permissions::from_mode(file.mode & 0o777);
        fs::set_permissions(to, mode).map_err(|error| cannot_write(to, error))
    }

    fn read(&self, file: &BackupFile, to: &mut impl std::io::Write) -> anyhow::Result<()> {
        let path = self.directory.join(&file.path);
        let shown = path.display();
        let mut from = match File::open(&path) {
            Ok(from) => from,
            Err(error) => {
                bail!("`{shown}` cannot be read ({error}): the backup is not whole; use another")
            }
        };
        let (bytes, sha256) = digest_of(&mut from, to).with_context(|| {
            format!("cannot copy `{shown}`: check both disks, and free some space")
        })?;
        ensure!(
            (bytes, sha256) == (file.bytes, file.sha256),
            "`{shown}` is damaged: it does not have the digest that the manifest names; use another backup"
        );
        Ok(())
    }
}
