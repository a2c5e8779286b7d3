//! Podman, with which the tests build and run the image. Where it is not installed, Debian's packages are unpacked beside
//! the build's own output: nothing of the system changes.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::run;

/// What podman needs that a Debian may lack.
const PACKAGES: [&str; 9] = [
    "conmon",
    "crun",
    "golang-github-containers-common",
    "golang-github-containers-image",
    "libassuan0",
    "libgpgme11",
    "libsubid4",
    "libyajl2",
    "podman",
];

/// Unpacks podman into this directory, where the system has none.
pub(crate) fn install(directory: &Path) -> anyhow::Result<()> {
    let stamp = directory.join("unpacked");
    if Path::new("/usr/bin/podman").exists() || stamp.exists() {
        return Ok(());
    }
    let packages = directory.join("packages");
    fs::create_dir_all(&packages)?;
    let mut download = Command::new("apt-get");
    download.arg("download").args(PACKAGES).current_dir(&packages);
    run("podman, which the tests run the image with (once)", download)
        .context("install podman by hand, or run this command on Debian")?;
    for package in fs::read_dir(&packages)? {
        let mut unpack = Command::new("dpkg");
        unpack.arg("--extract").arg(package?.path()).arg(directory);
        run("unpack", unpack)?;
    }
    fs::write(&stamp, PACKAGES.join("\n"))?;
    Ok(())
}
