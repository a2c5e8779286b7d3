//! Podman with a storage of its own, and the image that it builds from `deploy/Containerfile`.
//!
//! No registry is asked. The runtime stage's base is made of this system's C library, which is what the real one has; the
//! build stage is replaced by its result, with the program that is tested.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::namespaces::Namespaces;
use super::{is_root, target};
use crate::binary::{Output, copy_program, finish};
use crate::docs::root;

/// The user of the image.
pub(super) const UID: u32 = 65_532;

/// The base that `deploy/Containerfile` names.
const BASE: &str = "gcr.io/distroless/cc-debian12:nonroot";

/// What every container is started with: no rights, nothing to write to but its volumes. The network is this machine's,
/// and limits and control groups stay as they are, because a virtual machine may not let them be changed.
const CONFINED: [&str; 9] = [
    "--read-only",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--network=host",
    "--cgroups=disabled",
    "--log-driver=k8s-file",
    "--ulimit=nofile=4096:4096",
    "--ulimit=nproc=4096:4096",
    "--pull=never",
];

pub(super) struct Podman {
    namespaces: Namespaces,
    /// Where podman was unpacked; none where the system has it.
    unpacked: Option<PathBuf>,
}

impl Podman {
    /// None where no container can be started.
    pub(super) fn new() -> Option<Self> {
        if !is_root() {
            return None;
        }
        let unpacked = target().join("tools/podman");
        let unpacked = unpacked.join("usr/bin/podman").exists().then_some(unpacked);
        let is_installed = Path::new("/usr/bin/podman").exists();
        assert!(unpacked.is_some() || is_installed, "run `cargo xtask setup` once");
        let podman = Self { namespaces: Namespaces::of("podman.sh", "sleep"), unpacked };
        podman.prepare();
        Some(podman)
    }

    pub(super) fn directory(&self) -> &Path {
        self.namespaces.directory()
    }

    /// The runtime needs its libraries, and the system's filter of calls stands where the packages have it.
    fn prepare(&self) {
        let Some(unpacked) = self.unpacked.as_deref().map(Path::display) else { return };
        let runtime = format!(
            "#!/bin/sh\nLD_LIBRARY_PATH={unpacked}/usr/lib/{0} exec {unpacked}/usr/bin/crun \"$@\"\n",
            libraries()
        );
        let settings = format!(
            "[containers]\nseccomp_profile = \"{unpacked}/usr/share/containers/seccomp.json\"\n\
             [engine]\nconmon_path = [\"{unpacked}/usr/bin/conmon\"]\n"
        );
        fs::write(self.directory().join("containers.conf"), settings).unwrap();
        fs::write(self.directory().join("crun"), runtime).unwrap();
        fs::set_permissions(self.directory().join("crun"), PermissionsExt::from_mode(0o755))
            .unwrap();
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let directory = self.directory();
        let mut command = match &self.unpacked {
            Some(unpacked) => {
                let program = unpacked.join("usr/bin/podman");
                let mut command = self.namespaces.command(program.to_str().unwrap());
                command.env("LD_LIBRARY_PATH", unpacked.join("usr/lib").join(libraries()));
                command.env("CONTAINERS_CONF", directory.join("containers.conf"));
                command.arg("--runtime").arg(directory.join("crun"));
                command
            }
            None => self.namespaces.command("/usr/bin/podman"),
        };
        command.arg("--root").arg(directory.join("storage"));
        command.arg("--runroot").arg(directory.join("run"));
        command.args([
            "--storage-driver=vfs",
            "--cgroup-manager=cgroupfs",
            "--events-backend=file",
        ]);
        command.args(args);
        command
    }

    pub(super) fn run(&self, args: &[&str]) -> Output {
        finish(&mut self.command(args), b"")
    }

    /// The same, which must succeed: what it printed.
    pub(super) fn must(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.code, 0, "{args:?}: {output:?}");
        output.stdout.trim().to_owned()
    }

    /// Starts podman, and does not wait for it.
    pub(super) fn begin(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Starts a container of this name, confined, with these options before the image and these words after it.
    pub(super) fn start(&self, name: &str, options: &[&str], image: &str, words: &[&str]) {
        let run = ["run", "--detach", "--name", name];
        self.must(&[&run[..], &CONFINED, options, &[image], words].concat());
    }

    /// What a container said.
    pub(super) fn log(&self, name: &str) -> String {
        let output = self.run(&["logs", name]);
        output.stdout + &output.stderr
    }

    /// Builds the image under this name, with this label.
    pub(super) fn build(&self, tag: &str, label: &str) {
        let (base, build) = (self.directory().join("base"), self.directory().join("build"));
        if !base.exists() {
            lay_base(&base);
            lay_build(&build.join("out"));
            let file = self.directory().join("base.Containerfile");
            fs::write(&file, "FROM scratch\nCOPY . /\nUSER 65532\n").unwrap();
            self.build_file(&file, &base, "localhost/base", &[]);
        }
        let replaced = [
            format!("--build-context=build={}", build.display()),
            format!("--build-context={BASE}=container-image://localhost/base"),
            format!("--label=test={label}"),
        ];
        let replaced: Vec<&str> = replaced.iter().map(String::as_str).collect();
        let repository = root().canonicalize().unwrap();
        self.build_file(&repository.join("deploy/Containerfile"), &build, tag, &replaced);
    }

    fn build_file(&self, file: &Path, context: &Path, tag: &str, options: &[&str]) {
        let policy = self.directory().join("policy.json");
        fs::write(&policy, r#"{"default": [{"type": "insecureAcceptAnything"}]}"#).unwrap();
        let policy = format!("--signature-policy={}", policy.display());
        // Docker's form of an image has the health check.
        let build = [
            "build",
            "--format=docker",
            "--isolation=chroot",
            "--layers=false",
            "--pull=never",
            &policy,
        ];
        let file = ["--tag", tag, "--file", file.to_str().unwrap()];
        self.must(&[&build[..], &file, options, &[context.to_str().unwrap()]].concat());
    }
}

/// The folder of this machine's libraries below `/usr/lib`.
pub(super) fn libraries() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// What distroless' base for C has, of this system: the loader, the C library, certificates, a user.
fn lay_base(into: &Path) {
    let copy = |from: &str, to: &str| {
        let to = into.join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        copy_program(from, to);
    };
    let folder = format!("usr/lib/{}", libraries());
    for name in ["libc.so.6", "libgcc_s.so.1", "libm.so.6"] {
        copy(&format!("/{folder}/{name}"), &format!("{folder}/{name}"));
    }
    let needed = finish(Command::new("ldd").arg(env!("CARGO_BIN_EXE_stepgate")), b"").stdout;
    let loader = needed.lines().find(|line| line.contains("/ld-linux")).unwrap();
    let loader = loader.split_whitespace().next().unwrap();
    copy(loader, &format!("usr{loader}"));
    copy("/etc/ssl/certs/ca-certificates.crt", "etc/ssl/certs/ca-certificates.crt");
    for folder in ["lib", "lib64"] {
        fs::create_dir_all(into.join("usr").join(folder)).unwrap();
        symlink(format!("usr/{folder}"), into.join(folder)).unwrap();
    }
    fs::write(into.join("etc/passwd"), "nonroot:x:65532:65532::/home/nonroot:/sbin/nologin\n")
        .unwrap();
    fs::write(into.join("etc/group"), "nonroot:x:65532:\n").unwrap();
}

/// What the build stage leaves in `/out`.
fn lay_build(out: &Path) {
    let repository = root();
    for folder in ["usr/bin", "etc/stepgate/policies", "var/lib/stepgate"] {
        fs::create_dir_all(out.join(folder)).unwrap();
    }
    let program = out.join("usr/bin/stepgate");
    let mut strip = Command::new("strip");
    strip.arg(env!("CARGO_BIN_EXE_stepgate")).arg("-o").arg(&program);
    assert_eq!(finish(&mut strip, b"").code, 0);
    fs::copy(repository.join("deploy/stepgate.toml"), out.join("etc/stepgate/stepgate.toml"))
        .unwrap();
    for (name, _) in stepgate_policy::DEFAULTS {
        let policy = repository.join("policies").join(name);
        fs::copy(policy, out.join("etc/stepgate/policies").join(name)).unwrap();
    }
}

/// Gives a file or directory to the image's user, or to its group alone.
pub(super) fn hand_over(path: &Path, owner: u32, mode: u32) {
    chown(path, Some(owner), Some(UID)).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}
