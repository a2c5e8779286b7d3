//! A disk that fails on command: a library that stands before the system's own calls in a process.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The library with the files that tell it what to do (`tests/fixtures/failing_disk.c`).
pub(crate) struct Shim {
    directory: TempDir,
}

impl Shim {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let shim = Self { directory };
        // PostgreSQL runs as another user.
        fs::set_permissions(shim.directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/failing_disk.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]);
        let status = compiler.arg(shim.library()).arg(source).arg("-ldl").status().unwrap();
        assert!(status.success());
        shim
    }

    /// What a process needs in its environment.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", self.library().into()), ("FAILING_DISK", self.directory.path().into())]
    }

    /// No file beneath this directory grows from now on.
    pub(crate) fn fill(&self, beneath: &Path) {
        self.tell("full", beneath);
    }

    /// No file beneath this directory reaches the disk from now on.
    pub(crate) fn break_fsync(&self, beneath: &Path) {
        self.tell("fsync", beneath);
    }

    /// Everything works again.
    pub(crate) fn clear(&self) {
        for word in ["full", "fsync", "hits"] {
            let _ = fs::remove_file(self.file(word));
        }
    }

    /// How many calls have failed since everything worked.
    pub(crate) fn hits(&self) -> u64 {
        fs::metadata(self.file("hits")).map_or(0, |file| file.len())
    }

    fn tell(&self, word: &str, beneath: &Path) {
        self.clear();
        fs::write(self.file("hits"), "").unwrap();
        fs::set_permissions(self.file("hits"), fs::Permissions::from_mode(0o666)).unwrap();
        // Whole or not at all: it is read while it is written.
        fs::write(self.file("draft"), fs::canonicalize(beneath).unwrap().to_str().unwrap())
            .unwrap();
        fs::rename(self.file("draft"), self.file(word)).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn library(&self) -> PathBuf {
        self.file("failing_disk.so")
    }
}
