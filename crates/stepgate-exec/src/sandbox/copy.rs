//! Copies the files of a sandbox while they may change.
//!
//! Every copied file is complete, because actions replace files and never write into them. But a file can be
//! renamed during a walk of the directories and be missed under both names. So the walk is repeated until no
//! directory has changed since the previous walk, or up to a limit. A file that vanished between two walks
//! is kept, unless it now has another name: it existed when the copy began.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Dir, FileType, Statx};
use rustix::io::Errno;
use stepgate_core::digest::{Digest, Digesting};
use stepgate_core::path::TEMPORARY_PREFIX;

use super::identity::Identity;
use super::resolve::{Root, joined, kind, kind_of, stat_of, stat_of_open};
use super::{SandboxError, SandboxLimits};

/// Limit of the walks. A sandbox that never stops changing is copied as the last walk found it.
pub const COPY_WALKS_MAX: u32 = 4;
/// Pause before a sandbox that has just changed is walked again.
const PAUSE: Duration = Duration::from_millis(50);
/// Resolution of file system times: a file that changed this shortly before it was read may change again
/// without a new time.
const TICK: Duration = Duration::from_millis(20);
/// Most files and directories that are copied.
pub const COPY_ENTRIES_MAX: usize = 1_000_000;

/// The result of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxCopy {
    /// Directories beneath the root, parents first.
    pub directories: Vec<String>,
    /// The permissions of the originals, and of the root under the empty name. The copies are readable by
    /// their owner only.
    pub directory_modes: BTreeMap<String, u32>,
    /// Files.
    pub files: Vec<CopiedFile>,
    /// The entries that were left out.
    pub skipped: Skipped,
    /// Whether nothing changed during the copy, so that it shows a single moment.
    pub is_settled: bool,
}

/// How many entries were left out, because no action reaches them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Neither files nor directories: symbolic links, devices, pipes and sockets.
    pub special: u64,
    /// Files with more than one hard link: the other names may be anywhere, and a copy would have only one.
    pub linked: u64,
    /// Files and directories with names that are not UTF-8.
    pub unnamed: u64,
}

/// One copied file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedFile {
    /// The path beneath the root.
    pub path: String,
    /// The length.
    pub bytes: u64,
    /// The content's digest.
    pub sha256: Digest,
    /// The permissions of the original. The copy is readable by its owner only.
    pub mode: u32,
    /// The identity of the original file.
    pub identity: Identity,
}

/// Copies everything that actions can reach in a sandbox into an empty directory. `progress` gets the number
/// of files so far. The copy is not synced to disk here.
pub fn copy(
    sandbox: &Path,
    to: &Path,
    mut progress: impl FnMut(u64),
) -> Result<SandboxCopy, SandboxError> {
    let root = Root::open(sandbox, SandboxLimits::default())?;
    let mut copy = Copy { root, to, files: BTreeMap::new(), directories: BTreeSet::new() };
    let mut walks = 0;
    loop {
        let found = copy.walk()?;
        copy.follow(&found, &mut progress)?;
        let again = copy.walk()?;
        // INVARIANT: what was the same before and after was there in between, all at the same time.
        let is_settled =
            found.was_quiet && found.directories == again.directories && copy.has(&again);
        walks += 1;
        if is_settled || walks == COPY_WALKS_MAX {
            return copy.done(&found, is_settled);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The files that actions can reach in a sandbox now. Nothing is copied.
pub fn files_in(sandbox: &Path) -> Result<Vec<Identity>, SandboxError> {
    let root = Root::open(sandbox, SandboxLimits::default())?;
    let copy = Copy { root, to: sandbox, files: BTreeMap::new(), directories: BTreeSet::new() };
    Ok(copy.walk()?.files.into_values().map(|fingerprint| fingerprint.identity).collect())
}

/// The state of a file or directory in a walk. It has changed if any field differs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    identity: Identity,
    bytes: u64,
    changed: (i64, u32),
    mode: u32,
}

impl Fingerprint {
    fn of(stat: &Statx) -> Self {
        Self {
            identity: Identity::of(stat),
            bytes: stat.stx_size,
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            mode: u32::from(stat.stx_mode) & 0o777,
        }
    }

    fn is_older_than(&self, age: Duration) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        let changed = UNIX_EPOCH + Duration::new(seconds, self.changed.1);
        SystemTime::now().duration_since(changed).is_ok_and(|since| since > age)
    }
}

#[derive(Default)]
struct Found {
    /// Includes the root, under the empty name.
    directories: BTreeMap<String, Fingerprint>,
    /// Whether no directory changed so shortly before that a further change could go unnoticed.
    was_quiet: bool,
    files: BTreeMap<String, Fingerprint>,
    skipped: Skipped,
}

struct Copy<'a> {
    root: Root,
    to: &'a Path,
    directories: BTreeSet<String>,
    files: BTreeMap<String, (Fingerprint, CopiedFile)>,
}

impl Copy<'_> {
    fn walk(&self) -> Result<Found, SandboxError> {
        let mut found = Found { was_quiet: true, ..Found::default() };
        let mut waiting = vec![String::new()];
        while let Some(beneath) = waiting.pop() {
            match self.look_into(&beneath, &mut found, &mut waiting) {
                // Removed or replaced meanwhile: the next walk finds the new state.
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(failed(&beneath, errno)),
            }
            if found.files.len() + found.directories.len() > COPY_ENTRIES_MAX {
                return Err(SandboxError::TooMany);
            }
        }
        Ok(found)
    }

    fn look_into(
        &self,
        beneath: &str,
        found: &mut Found,
        waiting: &mut Vec<String>,
    ) -> Result<(), Errno> {
        let directory = self.root.open_directory(beneath)?;
        // Before it is read: a change from here on shows in the next walk.
        let fingerprint = Fingerprint::of(&stat_of_open(&directory)?);
        found.was_quiet &= fingerprint.is_older_than(TICK);
        found.directories.insert(beneath.to_owned(), fingerprint);
        let mut reader = Dir::new(directory)?;
        while let Some(entry) = reader.read() {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                found.skipped.unnamed += 1;
                continue;
            };
            // Temporary files and lock files are not content.
            if name == "." || name == ".." || name.starts_with(TEMPORARY_PREFIX) {
                continue;
            }
            let path = joined(beneath, name);
            match kind_of(&reader, &entry) {
                Ok(FileType::Directory) => waiting.push(path),
                Ok(FileType::RegularFile) => match stat_of(reader.fd()?, name) {
                    Ok(stat) if stat.stx_nlink > 1 => found.skipped.linked += 1,
                    Ok(stat) => drop(found.files.insert(path, Fingerprint::of(&stat))),
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                },
                Ok(_) => found.skipped.special += 1,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Adds what a walk found to the copy. Files that it did not find stay for now.
    fn follow(&mut self, found: &Found, progress: &mut dyn FnMut(u64)) -> Result<(), SandboxError> {
        for path in found.directories.keys().filter(|path| !path.is_empty()) {
            if self.files.remove(path).is_some() {
                fs::remove_file(self.to.join(path)).map_err(|error| wrote(path, error))?;
            }
            if self.directories.insert(path.clone()) {
                let made = DirBuilder::new().mode(0o700).create(self.to.join(path));
                made.map_err(|error| wrote(path, error))?;
            }
        }
        for (path, fingerprint) in &found.files {
            if self.directories.contains(path) {
                self.remove_directory(path)?;
            }
            if self.files.get(path).is_none_or(|(copied, _)| copied != fingerprint) {
                self.take(path)?;
                progress(u64::try_from(self.files.len()).unwrap_or(u64::MAX));
            }
        }
        Ok(())
    }

    /// Removes a directory from the copy, to make room for a file.
    fn remove_directory(&mut self, path: &str) -> Result<(), SandboxError> {
        let beneath = format!("{path}/");
        self.directories.retain(|other| other != path && !other.starts_with(&beneath));
        self.files.retain(|other, _| !other.starts_with(&beneath));
        fs::remove_dir_all(self.to.join(path)).map_err(|error| wrote(path, error))
    }

    /// Copies one file, unless it no longer exists.
    fn take(&mut self, path: &str) -> Result<(), SandboxError> {
        let mut from = match self.root.open_file(path) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(failed(path, errno)),
        };
        let stat = stat_of_open(&from).map_err(|errno| failed(path, errno))?;
        if kind(&stat) != FileType::RegularFile || stat.stx_nlink > 1 {
            return Ok(());
        }
        let fingerprint = Fingerprint::of(&stat);
        let mut to = OpenOptions::new();
        to.write(true).create(true).truncate(true).mode(0o600);
        let mut to = to.open(self.to.join(path)).map_err(|error| wrote(path, error))?;
        let (mut digesting, mut bytes) = (Digesting::default(), 0);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = from.read(&mut buffer).map_err(|error| read(path, error))?;
            let part = buffer.get(..count).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            digesting.update(part);
            bytes += u64::try_from(count).unwrap_or(0);
            to.write_all(part).map_err(|error| wrote(path, error))?;
        }
        let file = CopiedFile {
            path: path.to_owned(),
            bytes,
            sha256: digesting.finish(),
            mode: fingerprint.mode,
            identity: fingerprint.identity.clone(),
        };
        self.files.insert(path.to_owned(), (fingerprint, file));
        Ok(())
    }

    fn has(&self, found: &Found) -> bool {
        let is_copied = |(path, fingerprint): (&String, &Fingerprint)| {
            self.files.get(path).is_some_and(|(copied, _)| copied == fingerprint)
        };
        found.files.iter().all(is_copied)
    }

    /// Removes from the copy what no longer exists.
    fn done(mut self, found: &Found, is_settled: bool) -> Result<SandboxCopy, SandboxError> {
        let is_there = |path: &String| found.files.contains_key(path);
        let there = self.files.iter().filter(|(path, _)| is_there(path));
        let named: HashSet<_> =
            there.map(|(_, (fingerprint, _))| fingerprint.identity.lasting()).collect();
        let is_gone = |path: &String, fingerprint: &Fingerprint| {
            !is_there(path) && (is_settled || named.contains(&fingerprint.identity.lasting()))
        };
        let gone = self.files.iter().filter(|(path, (fingerprint, _))| is_gone(path, fingerprint));
        for path in gone.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            fs::remove_file(self.to.join(&path)).map_err(|error| wrote(&path, error))?;
            self.files.remove(&path);
        }
        // The deepest first; a directory that still has files stays.
        let gone =
            self.directories.iter().rev().filter(|path| !found.directories.contains_key(*path));
        for path in gone.cloned().collect::<Vec<_>>() {
            if fs::remove_dir(self.to.join(&path)).is_ok() {
                self.directories.remove(&path);
            }
        }
        let modes =
            found.directories.iter().map(|(path, fingerprint)| (path.clone(), fingerprint.mode));
        Ok(SandboxCopy {
            directory_modes: modes.collect(),
            directories: self.directories.into_iter().collect(),
            files: self.files.into_values().map(|(_, file)| file).collect(),
            skipped: found.skipped,
            is_settled,
        })
    }
}

fn failed(path: &str, errno: Errno) -> SandboxError {
    read(path, errno.into())
}

fn read(path: &str, source: io::Error) -> SandboxError {
    SandboxError::Read { path: path.to_owned(), source }
}

fn wrote(path: &str, source: io::Error) -> SandboxError {
    SandboxError::Write { path: path.to_owned(), source }
}
