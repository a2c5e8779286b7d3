//! Backups, made while clients write and restored into either engine; and everything that can go wrong
//! with them.

mod damage;
mod kills;
mod load;
mod questions;
mod under_way;

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};
use stepgate_test_postgres::{Cluster, Settings};
use tempfile::TempDir;

use crate::binary::{Output, Place, command, finish};
use crate::gate::proposal;

static SERVER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(&Settings::default()).unwrap());

/// What a store is kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    const ALL: [Self; 2] = [Self::Sqlite, Self::Postgres];

    /// A data directory without anything in it, and with a database of its own where it needs one.
    fn place(self) -> Place {
        match self {
            Self::Sqlite => Place::new(),
            Self::Postgres => at(&SERVER.url(&SERVER.database().unwrap())),
        }
    }
}

/// A data directory of a node on this database.
fn at(url: &str) -> Place {
    node("first", url)
}

/// The same, of a node with this name.
fn node(name: &str, url: &str) -> Place {
    let name: OsString = name.into();
    Place::with(vec![("STEPGATE_STORE", url.into()), ("STEPGATE_STORE_NODE_ID", name)])
}

/// A place for backups.
struct Shelf(TempDir);

impl Shelf {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn stepgate(place: &Place, command: &str, path: &Path, flags: &[&str]) -> Output {
    let mut args = vec![command, path.to_str().unwrap()];
    args.extend(flags);
    place.stepgate(args, "")
}

fn backed_up(place: &Place, path: &Path) -> Value {
    let made = stepgate(place, "backup", path, &["--json"]);
    assert_eq!(made.code, 0, "{made:?}");
    serde_json::from_str(&made.stdout).unwrap()
}

fn restored(place: &Place, path: &Path) {
    let done = stepgate(place, "restore", path, &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.starts_with("restored and verified"), "{done:?}");
}

/// A command that is refused with this, and does nothing.
fn refused(output: &Output, why: &str) {
    assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{output:?}");
    assert!(output.stderr.contains(why), "`{why}` is not in {output:?}");
}

/// The ends of all chains, after everything was verified.
fn heads(place: &Place) -> Value {
    let verified = place.stepgate(["--json", "verify"], "");
    assert_eq!(verified.code, 0, "{verified:?}");
    let report: Value = serde_json::from_str(&verified.stdout).unwrap();
    report["heads"].clone()
}

fn heads_of(backup: &Path) -> Value {
    serde_json::from_slice(&fs::read(backup.join("heads.json")).unwrap()).unwrap()
}

/// A few steps, each with a file.
fn some_steps(place: &Place) -> Vec<(String, String)> {
    let write = |number: u32| {
        let path = format!("/sandbox/{number}.txt");
        proposal(number, "WRITE_FILE", json!({ "path": path, "content": number.to_string() }))
    };
    let lines: Vec<String> = (0..20).map(write).collect();
    let output = place.stepgate(["step", "--lines"], lines.join("\n"));
    assert_eq!(output.code, 0, "{output:?}");
    lines.into_iter().zip(output.stdout.lines().map(str::to_owned)).collect()
}

/// What was answered is answered again.
fn replayed(place: &Place, answered: &[(String, String)]) {
    let lines: Vec<&str> = answered.iter().map(|(line, _)| line.as_str()).collect();
    let output = place.stepgate(["step", "--lines"], lines.join("\n"));
    let expected: Vec<&str> = answered.iter().map(|(_, answer)| answer.as_str()).collect();
    assert_eq!(output.stdout.lines().collect::<Vec<_>>(), expected, "{}", output.stderr);
    let runs = place.stepgate(["runs", "--json", "--limit", "10000"], "");
    assert_eq!(runs.stdout.lines().count(), answered.len(), "{runs:?}");
}

#[test]
fn a_backup_has_everything_but_the_tokens_and_restores_into_either_engine() {
    for source in Engine::ALL {
        let (place, shelf) = (source.place(), Shelf::new());
        fs::create_dir_all(place.path().join("rules")).unwrap();
        let policy = "@id(\"core\") permit (principal, action in Action::\"core\", resource);";
        fs::write(place.path().join("rules/own.cedar"), policy).unwrap();
        let config = "[policy]\ndirectory = \"rules\"\n[limits]\njson_depth_max = 32\n";
        fs::write(place.path().join("stepgate.toml"), config).unwrap();
        let answered = some_steps(&place);
        fs::create_dir(place.path().join("sandbox/empty")).unwrap();
        let modes = [("sandbox", 0o755), ("sandbox/empty", 0o555), ("sandbox/3.txt", 0o640)];
        for (name, mode) in modes {
            fs::set_permissions(place.path().join(name), Permissions::from_mode(mode)).unwrap();
        }
        fs::write(place.path().join("sandbox/.stepgate-left"), "half a file").unwrap();
        for role in ["agent", "operator"] {
            fs::write(place.path().join(format!("{role}.token")), "a secret").unwrap();
        }
        let before = heads(&place);
        let path = shelf.path("monday");
        let told = backed_up(&place, &path);
        assert_eq!(told["verified"], true, "{told}");
        assert_eq!(told["sandbox_is_settled"], true, "{told}");
        assert_eq!(told["rows"]["tool_runs"], 20, "{told}");
        assert_eq!(heads_of(&path), before);
        let left: Vec<_> = fs::read_dir(shelf.0.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        for target in Engine::ALL {
            let restored_to = target.place();
            restored(&restored_to, &path);
            assert_eq!(heads(&restored_to), before, "{source:?} to {target:?}");
            let data = restored_to.path();
            assert_eq!(fs::read_to_string(data.join("rules/own.cedar")).unwrap(), policy);
            assert_eq!(fs::read_to_string(data.join("stepgate.toml")).unwrap(), config);
            assert_eq!(fs::read_to_string(data.join("sandbox/7.txt")).unwrap(), "7");
            for (name, mode) in modes {
                let kept = data.join(name).metadata().unwrap().permissions().mode() & 0o777;
                assert_eq!(kept, mode, "{name}");
            }
            assert!(!data.join("sandbox/.stepgate-left").exists());
            assert!(!data.join("agent.token").exists() && !data.join("operator.token").exists());
            assert!(!data.join(".restoring").exists() && !data.join("restored.json").exists());
            replayed(&restored_to, &answered);
            let next = restored_to.stepgate(["run", "READ_FILE", "path=/sandbox/3.txt"], "");
            assert_eq!(next.code, 0, "{next:?}");
            let heads = path.join("heads.json");
            let stand = restored_to.stepgate(["verify", "--heads", heads.to_str().unwrap()], "");
            assert_eq!(stand.code, 0, "{stand:?}");
        }
    }
}

#[test]
fn what_is_denied_before_a_backup_is_not_readable_after_it() {
    let (place, shelf) = (Place::new(), Shelf::new());
    some_steps(&place);
    let secret = shelf.path("secret");
    fs::write(&secret, "a secret of the host").unwrap();
    let linked = place.path().join("sandbox/linked.txt");
    fs::hard_link(&secret, &linked).unwrap();
    fs::write(place.path().join("sandbox").join(OsStr::from_bytes(b"no\xfftext")), "x").unwrap();
    let read = ["run", "READ_FILE", "path=/sandbox/linked.txt"];
    assert_eq!(place.stepgate(read, "").code, 11);
    let path = shelf.path("b");
    let made = stepgate(&place, "backup", &path, &[]);
    assert_eq!(made.code, 0, "{made:?}");
    let verified = "backed up and verified: ";
    assert!(made.stdout.contains(verified) && !made.stdout.contains(" 0 journal entries"));
    let told = "1 in the sandbox, files with more than one link";
    assert!(made.stderr.contains(told), "{made:?}");
    assert!(made.stderr.contains("1 in the sandbox, named by what is no UTF-8"), "{made:?}");
    assert!(!path.join("sandbox/linked.txt").exists());
    let other = Place::new();
    restored(&other, &path);
    let after = other.stepgate(read, "");
    assert!(!after.stdout.contains("secret") && after.code != 0, "{after:?}");
}

#[test]
fn what_came_after_a_backup_is_forgotten_and_saved_heads_show_it() {
    let (place, shelf) = (Place::new(), Shelf::new());
    let answered = some_steps(&place);
    backed_up(&place, &shelf.path("early"));
    let late = ["run", "--id", "550e8400-e29b-41d4-a716-446655449999", "THINK"];
    assert_eq!(place.stepgate(late, "").code, 0);
    let saved = shelf.path("heads.json");
    let save = place.stepgate(["verify", "--save-heads", saved.to_str().unwrap()], "");
    assert_eq!(save.code, 0, "{save:?}");
    let other = Place::new();
    restored(&other, &shelf.path("early"));
    let shown = other.stepgate(["verify", "--heads", saved.to_str().unwrap()], "");
    assert_eq!(shown.code, 1, "{shown:?}");
    // The step that is forgotten runs again, as one that never was.
    assert_eq!(other.stepgate(late, "").code, 0);
    let runs = other.stepgate(["runs", "--json", "--limit", "100"], "");
    assert_eq!(runs.stdout.lines().count(), answered.len() + 1);
}

#[test]
fn a_store_alone_is_restored_beside_the_files_that_are_there() {
    for engine in Engine::ALL {
        let (place, shelf) = (Place::new(), Shelf::new());
        let answered = some_steps(&place);
        let path = shelf.path("store");
        let made = stepgate(&place, "backup", &path, &["--no-sandbox"]);
        assert_eq!(made.code, 0, "{made:?}");
        assert!(!path.join("sandbox").exists());
        let other = engine.place();
        fs::create_dir_all(other.path().join("sandbox")).unwrap();
        fs::write(other.path().join("sandbox/mine.txt"), "mine").unwrap();
        refused(&stepgate(&other, "restore", &path, &[]), "--store-only");
        let done = stepgate(&other, "restore", &path, &["--store-only"]);
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(fs::read_to_string(other.path().join("sandbox/mine.txt")).unwrap(), "mine");
        replayed(&other, &answered);
        let again = stepgate(&other, "restore", &path, &["--store-only"]);
        refused(&again, "already");
    }
}

#[test]
fn files_that_the_configuration_names_and_a_backup_never_has_are_missed_at_the_restore() {
    let (place, shelf) = (Place::new(), Shelf::new());
    fs::create_dir_all(place.path()).unwrap();
    let config = "[agent]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\nkey_file = \"model.key\"\n\
                  [servers.house]\ncommand = \"./house\"\nmode = \"read_only\"\n\
                  [servers.house.secret_env.HOUSE]\nfile = \"house.key\"\n";
    some_steps(&place);
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
    for name in ["model.key", "house.key", "house"] {
        fs::write(place.path().join(name), "a secret").unwrap();
    }
    backed_up(&place, &shelf.path("b"));
    let other = Place::new();
    let done = stepgate(&other, "restore", &shelf.path("b"), &[]);
    assert_eq!(done.code, 0, "{done:?}");
    let keys = ["agent.key_file", "servers.house.command", "servers.house.secret_env.HOUSE.file"];
    for key in keys {
        assert!(done.stderr.contains(&format!("`{key}` names ")), "{key}: {done:?}");
    }
}

#[test]
fn a_configuration_that_names_another_store_is_put_aside() {
    let (url, shelf) = (SERVER.url(&SERVER.database().unwrap()), Shelf::new());
    let place = Place::new();
    fs::create_dir_all(place.path()).unwrap();
    fs::write(place.path().join("stepgate.toml"), format!("[store]\nurl = \"{url}\"\n")).unwrap();
    let answered = some_steps(&place);
    backed_up(&place, &shelf.path("b"));
    let other = Place::new();
    let done = stepgate(&other, "restore", &shelf.path("b"), &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("stepgate.toml.restored"), "{done:?}");
    assert!(other.database().exists() && !other.path().join("stepgate.toml").exists());
    replayed(&other, &answered);
}

#[test]
fn policies_are_put_where_the_configuration_names_them_or_it_is_said() {
    let policy = "@id(\"core\") permit (principal, action in Action::\"core\", resource);";
    let rows = [
        ("./rules", "rules"),
        ("rules/./of/house/", "rules/of/house"),
        ("../rules", "policies"),
        ("sandbox/../rules", "policies"),
        ("sandbox/rules", "policies"),
    ];
    for (named, place_of) in rows {
        let (place, shelf) = (Place::new(), Shelf::new());
        fs::create_dir_all(place.path().join("sandbox")).unwrap();
        fs::create_dir_all(place.path().join(named)).unwrap();
        fs::write(place.path().join(named).join("own.cedar"), policy).unwrap();
        let config = format!("[policy]\ndirectory = \"{named}\"\n");
        fs::write(place.path().join("stepgate.toml"), config).unwrap();
        assert_eq!(place.stepgate(["run", "THINK"], "").code, 0, "{named}");
        backed_up(&place, &shelf.path("b"));
        let other = Place::new();
        let done = stepgate(&other, "restore", &shelf.path("b"), &[]);
        assert_eq!(done.code, 0, "{named}: {done:?}");
        let put = fs::read_to_string(other.path().join(place_of).join("own.cedar"));
        assert_eq!(put.ok().as_deref(), Some(policy), "{named}");
        let is_said = done.stderr.contains("put them where it says");
        assert_eq!(is_said, place_of == "policies", "{named}: {done:?}");
    }
}

#[test]
fn everything_in_a_backup_is_its_owners_alone_and_gets_its_mode_back() {
    for source in Engine::ALL {
        let (place, shelf) = (source.place(), Shelf::new());
        some_steps(&place);
        let config = place.path().join("stepgate.toml");
        fs::write(&config, "").unwrap();
        fs::set_permissions(&config, Permissions::from_mode(0o640)).unwrap();
        backed_up(&place, &shelf.path("b"));
        let mut waiting = vec![shelf.path("b")];
        while let Some(path) = waiting.pop() {
            let meta = path.symlink_metadata().unwrap();
            let expected = if meta.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(meta.permissions().mode() & 0o777, expected, "{}", path.display());
            if meta.is_dir() {
                waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        let other = Place::new();
        restored(&other, &shelf.path("b"));
        let mode = other.path().join("stepgate.toml").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }
}

#[test]
fn a_backup_is_verified_where_it_is_and_cannot_be_worked_on() {
    for source in Engine::ALL {
        let (place, shelf) = (source.place(), Shelf::new());
        let answered = some_steps(&place);
        let path = shelf.path("b");
        backed_up(&place, &path);
        let on_backup = |args: &[&str]| finish(&mut command(&path, args), b"");
        let heads_file = path.join("heads.json");
        let verified = on_backup(&["--json", "verify", "--heads", heads_file.to_str().unwrap()]);
        assert_eq!(verified.code, 0, "{verified:?}");
        let report: Value = serde_json::from_str(&verified.stdout).unwrap();
        assert_eq!(report["heads"], heads(&place));
        refused(&on_backup(&["run", "THINK"]), "is a backup, and stays as it is");
        let other = Place::new();
        restored(&other, &path);
        replayed(&other, &answered);
    }
}
