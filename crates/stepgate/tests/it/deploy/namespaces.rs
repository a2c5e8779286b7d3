//! Processes with mounts, process ids and control groups of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::mcp_scene::fixture;
use crate::scene::until;

/// They end, all of them, when it goes out of sight.
pub(super) struct Namespaces {
    keeper: Child,
    /// The first process, as this system numbers it.
    init: u32,
    directory: TempDir,
}

impl Namespaces {
    /// Whose first process a script of the fixtures becomes: the program of this name.
    pub(super) fn of(script: &str, becomes: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let mut keeper = Command::new("unshare");
        keeper.args(["--fork", "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--kill-child"]);
        keeper.arg("sh").arg(fixture(script)).arg(directory.path());
        let mut keeper = keeper.stdin(Stdio::null()).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", keeper.id());
        let mut init = 0;
        until("the first process is there", || {
            assert!(keeper.try_wait().unwrap().is_none(), "`{script}` has failed");
            let children = fs::read_to_string(&children).unwrap_or_default();
            let Some(child) = children.split_whitespace().next() else { return false };
            init = child.parse().unwrap();
            fs::read_to_string(format!("/proc/{init}/comm")).is_ok_and(|it| it.trim() == becomes)
        });
        Self { keeper, init, directory }
    }

    /// A directory that only these processes and this test use.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A file as the first process sees it.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        Path::new("/proc").join(self.init.to_string()).join("root").join(&path[1..])
    }

    /// A command in there, with nothing of our environment.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--mount", "--uts", "--ipc", "--pid"]);
        command.args(["--cgroup", "--root", "--wd=/", "--"]).arg(program);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // `unshare --kill-child` ends the first process, and the kernel ends all others with it.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
