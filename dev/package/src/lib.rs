//! The Debian package of a program that is built already. The program makes its own manual pages and completions, and
//! cargo-deb packs them with what `[package.metadata.deb]` of `crates/stepgate/Cargo.toml` names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// The version of cargo-deb that `cargo xtask` installs.
pub const CARGO_DEB_VERSION: &str = "3.8.0";

/// The build of the program that is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As it is shipped.
    Release,
    /// For tests: built in a minute instead of a quarter of an hour, and packed with less effort.
    Dev,
}

impl Profile {
    /// Its folder in the target directory.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dev => "debug",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Release => &["--profile", "release"],
            Self::Dev => &["--profile", "dev", "--fast"],
        }
    }
}

/// What is packed, and where it goes.
pub struct Packing<'a> {
    /// The root of the repository.
    pub repository: &'a Path,
    /// The target directory, with the program, and with cargo-deb in `tools/bin`.
    pub target: &'a Path,
    /// Which build of the program.
    pub profile: Profile,
    /// The package's version; that of the manifest otherwise.
    pub version: Option<&'a str>,
    /// The directory that the package is written into.
    pub output: &'a Path,
}

/// Makes the package, and returns its file.
pub fn make(packing: &Packing<'_>) -> anyhow::Result<PathBuf> {
    let folder = packing.target.join(packing.profile.folder());
    generate(&folder.join("stepgate"), &folder.join("package"))?;
    let mut deb = Command::new(cargo_deb(packing.target));
    deb.args(["--no-build", "--strip", "--locked", "--package", "stepgate"]);
    deb.args(packing.profile.options());
    deb.args(packing.version.iter().flat_map(|version| ["--deb-version", version]));
    deb.arg("--output").arg(packing.output).current_dir(packing.repository);
    deb.env("CARGO_TARGET_DIR", packing.target);
    let printed = run(&mut deb)?;
    let file = printed.lines().last().context("cargo-deb names no file")?;
    Ok(file.into())
}

/// Where cargo-deb is, once it is installed.
pub fn cargo_deb(target: &Path) -> PathBuf {
    target.join("tools/bin/cargo-deb")
}

/// The manual pages and completions that the program makes.
fn generate(program: &Path, into: &Path) -> anyhow::Result<()> {
    let pages = into.join("man");
    if into.exists() {
        fs::remove_dir_all(into)?;
    }
    fs::create_dir_all(&pages)?;
    run(Command::new(program).arg("man").arg(&pages))?;
    for shell in ["bash", "zsh", "fish"] {
        let script = run(Command::new(program).args(["completions", shell]))?;
        fs::write(into.join(format!("stepgate.{shell}")), script)?;
    }
    Ok(())
}

/// Runs a command to its end, and returns what it printed.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {error}");
    Ok(String::from_utf8(output.stdout)?)
}
