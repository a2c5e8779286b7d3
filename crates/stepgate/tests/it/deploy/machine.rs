//! A machine with systemd as its first process, made of namespaces and this system's own programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::is_root;
use super::namespaces::Namespaces;
use crate::binary::{Output, copy_program, finish};
use crate::scene::until;

pub(super) struct Machine(Namespaces);

impl Machine {
    /// None where no such machine can be made.
    pub(super) fn boot() -> Option<Self> {
        if !is_root() {
            return None;
        }
        if ["/usr/lib/systemd/systemd", "/usr/bin/dpkg"]
            .iter()
            .any(|file| !Path::new(file).exists())
        {
            eprintln!("skipped: no systemd, or no dpkg, is installed here");
            return None;
        }
        let machine = Self(Namespaces::of("machine.sh", "systemd"));
        until("systemd is up", || {
            machine.file("/run/systemd/private").exists()
                && machine.run(&["systemctl", "is-active", "basic.target"]).code == 0
        });
        Some(machine)
    }

    /// A file in the machine.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.0.file(path)
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let file = self.file(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// Copies a file of this system into the machine.
    pub(super) fn copy(&self, from: &Path, to: &str) {
        fs::create_dir_all(self.file(to).parent().unwrap()).unwrap();
        copy_program(from, self.file(to));
    }

    /// Runs a command in the machine, as its root.
    pub(super) fn run(&self, line: &[&str]) -> Output {
        finish(self.0.command(line[0]).args(&line[1..]), b"")
    }

    /// The same, which must succeed: what it printed.
    pub(super) fn must(&self, line: &[&str]) -> String {
        let output = self.run(line);
        assert_eq!(output.code, 0, "{line:?}: {output:?}\n{}", self.log());
        output.stdout
    }

    /// Starts a command in the machine, and does not wait for it.
    pub(super) fn begin(&self, line: &[&str]) -> Child {
        self.0.command(line[0]).args(&line[1..]).stdin(Stdio::null()).spawn().unwrap()
    }

    /// What the unit said.
    pub(super) fn log(&self) -> String {
        self.run(&["journalctl", "--no-pager", "--output=cat", "--unit=stepgate"]).stdout
    }

    /// One property of the unit.
    pub(super) fn property(&self, name: &str) -> String {
        let shown = self.must(&["systemctl", "show", "--value", "--property", name, "stepgate"]);
        shown.trim().to_owned()
    }
}
