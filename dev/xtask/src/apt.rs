//! Packages of Debian, installed as root.

use std::process::Command;

use crate::run;

/// Installs packages. Where that fails, the lists of packages may be too old: they are fetched, and it is tried again.
pub(crate) fn install(what: &str, packages: &[&str]) -> anyhow::Result<()> {
    let apt_get = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let install = || {
        let mut command = apt_get(&["install", "--yes", "--no-install-recommends"]);
        command.args(packages);
        command
    };
    if run(what, install()).is_ok() {
        return Ok(());
    }
    run("lists of packages", apt_get(&["update"]))?;
    run(what, install())
}
