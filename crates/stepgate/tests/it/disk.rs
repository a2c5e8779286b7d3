//! Disks that are full, and places that cannot be written: a clear message, and nothing lost.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::{Output, Place, command, copy_program, finish};
use crate::faults::shim::Shim;
use crate::gate::proposal;
use crate::http_client::Gateway;
use crate::scene::until;

/// Nothing is reserved for operators, unless a test says so: the disk is smaller than what is reserved by default.
pub(crate) const RESERVE: &str = "STEPGATE_STORE_FREE_BYTES_MIN";
const NOBODY: u32 = 65_534;
/// More than fits where space is scarce, and less than the small disk holds.
const STEPS: u32 = 60;

/// Proposals that write files of their own, one a line.
fn writes(count: u32) -> String {
    let line = |number: u32| {
        let path = format!("/sandbox/{number}.txt");
        let content = number.to_string().repeat(500);
        proposal(number, "WRITE_FILE", json!({"path": path, "content": content})) + "\n"
    };
    (0..count).map(line).collect()
}

/// A small file system of its own, in a mount namespace that a sleeping process keeps.
pub(crate) struct SmallDisk {
    keeper: Child,
    directory: TempDir,
    is_user: bool,
}

impl SmallDisk {
    /// None where this machine allows no mount namespace.
    pub(crate) fn mount() -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let is_user = !geteuid().is_root();
        let mut keeper = Command::new("unshare");
        if is_user {
            keeper.args(["--user", "--map-root-user"]);
        }
        let script = "mount -t tmpfs -o size=24m,mode=700 none \"$0\" && echo mounted && exec cat";
        keeper.args(["--mount", "sh", "-c", script]).arg(directory.path());
        let keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut disk = Self { keeper: keeper.ok()?, directory, is_user };
        let mut line = String::new();
        BufReader::new(disk.keeper.stdout.as_mut()?).read_line(&mut line).ok()?;
        (line == "mounted\n").then_some(disk)
    }

    /// A command that sees the disk.
    fn inside(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        if self.is_user {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--mount").arg("--target").arg(self.keeper.id().to_string());
        command.arg("--").arg(program);
        command.env(RESERVE, "0");
        // What tells the tests something is nothing that the binary knows.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("STEPGATE_") && name != RESERVE {
                command.env_remove(name);
            }
        }
        command
    }

    /// The binary, with a data directory on the disk.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.inside(env!("CARGO_BIN_EXE_stepgate"));
        command.arg("--data").arg(self.directory.path().join("data")).args(args);
        command
    }

    pub(crate) fn stepgate(&self, args: &[&str], input: &str) -> Output {
        finish(&mut self.command(args), input.as_bytes())
    }

    /// The path as this process reaches it.
    pub(crate) fn path(&self, beneath: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.directory.path().strip_prefix("/").unwrap()).join(beneath)
    }

    /// Takes all space but so many bytes.
    pub(crate) fn fill(&self, bytes_left: u64) {
        let mut filler = OpenOptions::new();
        let mut filler = filler.create(true).append(true).open(self.path("filler")).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
        let length = filler.metadata().unwrap().len();
        filler.set_len(length.saturating_sub(bytes_left)).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Its input ends, so it does, and its mounts go with it.
        drop(self.keeper.stdin.take());
        self.keeper.wait().unwrap();
    }
}

fn outcomes(output: &Output) -> Vec<Value> {
    output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_full_disk_is_said_with_the_way_out_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount() else {
        println!("no mount namespace here: only the limit on file sizes stands for a full disk");
        return;
    };
    let lines = writes(STEPS);
    for kilobytes_left in [0, 4, 16, 64, 150, 400] {
        disk.stepgate(&["run", "THINK"], "");
        disk.fill(kilobytes_left * 1024);
        let full = disk.stepgate(&["step", "--lines"], &lines);
        assert_eq!(full.code, 1, "{kilobytes_left}: {}", full.stderr);
        assert!(full.stderr.contains("free some space"), "{}", full.stderr);
        let answered = outcomes(&full);
        assert!(answered.len() < STEPS as usize);
        for response in &answered {
            let message = &response["error"]["message"];
            assert!(message.is_null() || message == "Storage is full", "{response}");
        }

        fs::remove_file(disk.path("filler")).unwrap();
        let again = disk.stepgate(&["step", "--lines"], &lines);
        assert_eq!(again.code, 0, "{}", again.stderr);
        assert!(again.stdout.starts_with(&full.stdout), "what was answered is answered again");
        for (number, response) in outcomes(&again).iter().enumerate() {
            let file = fs::read_to_string(disk.path(&format!("data/sandbox/{number}.txt")));
            let is_there = file.is_ok_and(|text| text == number.to_string().repeat(500));
            assert_eq!(response["outcome"] == "SUCCESS", is_there, "{response}");
        }
        let verified = disk.stepgate(&["verify"], "");
        assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
        fs::remove_dir_all(disk.path("data")).unwrap();
    }
}

#[test]
fn a_first_use_on_a_full_disk_is_said_with_the_way_out_and_can_be_repeated() {
    let Some(disk) = SmallDisk::mount() else { return };
    disk.fill(0);
    let full = disk.stepgate(&["run", "THINK"], "");
    assert_eq!((full.code, full.stdout.as_str()), (1, ""));
    assert!(full.stderr.contains("free some space"), "{}", full.stderr);
    fs::remove_file(disk.path("filler")).unwrap();
    assert_eq!(disk.stepgate(&["run", "THINK"], "").code, 0);
    assert_eq!(disk.stepgate(&["verify"], "").code, 0);
}

#[test]
fn a_backup_or_a_restore_without_space_leaves_nothing_and_can_be_repeated() {
    let Some(disk) = SmallDisk::mount() else { return };
    let lines = writes(STEPS);
    let answered = disk.stepgate(&["step", "--lines"], &lines);
    assert_eq!(answered.code, 0, "{}", answered.stderr);
    let (backup, other) =
        (disk.directory.path().join("backup"), disk.directory.path().join("other"));
    let backup = backup.to_str().unwrap();
    let on_other = |args: &[&str], input: &str| {
        let mut command = disk.inside(env!("CARGO_BIN_EXE_stepgate"));
        finish(command.arg("--data").arg(&other).args(args), input.as_bytes())
    };
    for kilobytes_left in [0, 40, 200, 600] {
        disk.fill(kilobytes_left * 1024);
        let full = disk.stepgate(&["backup", backup], "");
        assert_eq!((full.code, full.stdout.as_str()), (1, ""), "{kilobytes_left}: {}", full.stderr);
        assert!(full.stderr.contains("free some space"), "{kilobytes_left}: {}", full.stderr);
        for left in ["backup", ".backup.partial"] {
            assert!(!disk.path(left).exists(), "{kilobytes_left}: {left}");
        }
        fs::remove_file(disk.path("filler")).unwrap();
    }
    assert_eq!(disk.stepgate(&["backup", backup], "").code, 0);
    for kilobytes_left in [0, 40, 200, 600] {
        disk.fill(kilobytes_left * 1024);
        let full = on_other(&["restore", backup], "");
        assert_eq!((full.code, full.stdout.as_str()), (1, ""), "{kilobytes_left}: {}", full.stderr);
        assert!(full.stderr.contains("free some space"), "{kilobytes_left}: {}", full.stderr);
        assert!(!disk.path("other").exists(), "{kilobytes_left}");
        fs::remove_file(disk.path("filler")).unwrap();
    }
    assert_eq!(on_other(&["restore", backup], "").code, 0);
    assert_eq!(on_other(&["step", "--lines"], &lines).stdout, answered.stdout);
}

#[test]
fn a_limit_on_file_sizes_stops_the_process_and_loses_nothing() {
    let place = Place::new();
    assert_eq!(place.stepgate(["run", "THINK"], "").code, 0);
    let lines = writes(STEPS);
    for kibibytes in [160, 300] {
        // The signal is ignored, so that the limit is an error of the write, as a quota's is.
        let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", kibibytes * 2);
        let mut limited = Command::new("sh");
        limited.arg("-c").arg(script).arg("sh").arg(env!("CARGO_BIN_EXE_stepgate"));
        limited.env_clear().arg("--data").arg(place.path()).args(["step", "--lines"]);
        let stopped = finish(&mut limited, lines.as_bytes());
        assert_eq!(stopped.code, 1, "{}", stopped.stderr);
        assert!(stopped.stderr.contains("check the disk"), "{}", stopped.stderr);
        let again = place.stepgate(["step", "--lines"], &lines);
        assert_eq!(again.code, 0, "{}", again.stderr);
        assert!(again.stdout.starts_with(&stopped.stdout), "what was answered is answered again");
        assert!(outcomes(&again).iter().all(|response| response["outcome"] == "SUCCESS"));
        let verified = place.stepgate(["verify"], "");
        assert_eq!(verified.code, 0, "{}", verified.stdout);
        fs::remove_dir_all(place.path()).unwrap();
        assert_eq!(place.stepgate(["run", "THINK"], "").code, 0);
    }
}

/// Commands that only read: they need no right to write.
const READING: [&[&str]; 4] =
    [&["runs"], &["runs", "show", "last"], &["runs", "export", "last"], &["verify"]];

#[test]
fn a_read_only_file_system_is_said_with_the_way_out_and_can_still_be_read() {
    let Some(disk) = SmallDisk::mount() else { return };
    assert_eq!(disk.stepgate(&["run", "THINK"], "").code, 0);
    let remounted = disk
        .inside("mount")
        .args(["-o", "remount,ro"])
        .arg(disk.directory.path())
        .status()
        .unwrap();
    assert!(remounted.success());
    let refused = disk.stepgate(&["run", "THINK"], "");
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(refused.stderr.contains("make the file system writable"), "{}", refused.stderr);
    for args in READING {
        let output = disk.stepgate(args, "");
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
    }
}

/// Every file and directory, with its mode.
fn set_modes(root: &Path, directories: u32, files: u32) {
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            set_modes(&entry.path(), directories, files);
        } else {
            fs::set_permissions(entry.path(), Permissions::from_mode(files)).unwrap();
        }
    }
    fs::set_permissions(root, Permissions::from_mode(directories)).unwrap();
}

#[test]
fn a_directory_without_the_right_to_write_is_said_with_the_way_out_and_can_still_be_read() {
    let place = Place::new();
    assert_eq!(place.stepgate(["run", "THINK"], "").code, 0);
    let around = place.path().parent().unwrap().to_owned();
    // No permission binds root, so it becomes somebody else, who must reach the binary.
    let is_root = geteuid().is_root();
    let binary = around.join("stepgate");
    copy_program(env!("CARGO_BIN_EXE_stepgate"), &binary);
    fs::set_permissions(&around, Permissions::from_mode(0o755)).unwrap();
    set_modes(&place.path(), 0o555, 0o444);
    let stepgate = |data: &Path, args: &[&str]| {
        let mut command = Command::new(&binary);
        command.env_clear().arg("--data").arg(data).args(args);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        finish(&mut command, b"")
    };
    let before = fs::read(place.database()).unwrap();
    for data in [place.path(), place.path().join("beneath")] {
        let refused = stepgate(&data, &["run", "THINK"]);
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
        assert!(refused.stderr.contains("check the permissions"), "{}", refused.stderr);
    }
    for args in READING {
        let output = stepgate(&place.path(), args);
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
    }
    assert_eq!(fs::read(place.database()).unwrap(), before);
    set_modes(&place.path(), 0o700, 0o600);
    assert_eq!(finish(&mut command(&place.path(), ["run", "THINK"]), b"").code, 0);
}

#[test]
fn a_full_disk_is_not_ready_and_recorded_answers_are_given_all_the_same() {
    let Some(disk) = SmallDisk::mount() else {
        println!("no mount namespace here: no disk of its own that could be full");
        return;
    };
    let mut command = disk.command(&["serve", "--bind", "127.0.0.1:0"]);
    let tokens = disk.path("data");
    let gateway = Gateway::of(command.stderr(Stdio::piped()), &tokens);
    let payload = proposal(1, "THINK", json!({}));
    let first = gateway.propose(&payload);
    assert_eq!((first.status, gateway.send("GET", "/readyz", "", "").status), (200, 200));
    let fill = |gateway: &Gateway| {
        disk.fill(0);
        gateway.send("GET", "/readyz", "", "").status == 503
    };
    until("it is not ready", || fill(&gateway));
    // What is new cannot be recorded; what is recorded needs no room.
    until("nothing new is recorded", || {
        let new = crate::http_client::proposal("THINK", json!({}));
        gateway.propose(&new).status == 503
    });
    let again = gateway.propose(&payload);
    assert_eq!((again.status, &again.body), (200, &first.body));
    fs::remove_file(disk.path("filler")).unwrap();
    until("it is ready again", || gateway.send("GET", "/readyz", "", "").status == 200);
    assert_eq!(
        fs::read_dir(&tokens).unwrap().flatten().filter(|it| it.file_name() == ".ready").count(),
        0
    );
}

/// A power cut after a start must not leave a directory of empty policies: that denies everything.
#[test]
fn the_first_policies_have_their_name_only_once_they_are_on_the_disk() {
    let shim = Shim::new();
    let place = Place::with(shim.variables());
    // Where they are made before they get their name.
    let made = place.path().join("policies.new");
    fs::create_dir_all(&made).unwrap();
    shim.break_fsync(&made);
    let refused = place.stepgate(["run", "THINK"], "");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("cannot write the first policies"), "{}", refused.stderr);
    assert!(shim.hits() > 0 && !place.path().join("policies").exists());
    shim.clear();
    assert_eq!(place.stepgate(["run", "LIST_FILES", "path=/sandbox/"], "").code, 0);
}
