//! What Landlock keeps a server away from.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;
use stepgate_exec::launcher;

use super::house::{House, spec};

/// A world with a hidden directory, and a server that is kept away from it.
struct World {
    house: House,
}

impl World {
    async fn new() -> Self {
        assert!(launcher::is_available(), "these tests need a kernel with Landlock");
        let keep = tempfile::tempdir().unwrap();
        let at = |name: &str| keep.path().join(name);
        for directory in ["data/sandbox", "other"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        for file in ["data/stepgate.db", "data/sandbox/note.txt", "other/file", "file"] {
            fs::write(at(file), file).unwrap();
        }
        symlink(at("data"), at("link")).unwrap();
        let mut spec = spec("house", "normal");
        spec.hidden = vec![at("data")];
        let house = House { keep, ..House::of(vec![spec]).await };
        Self { house }
    }

    async fn tries(&self, tool: &str, path: &str) -> String {
        let path = self.house.keep.path().join(path);
        self.house.text(&format!("house.{tool}"), json!({ "path": path.to_str().unwrap() })).await
    }
}

const DENIED: &str = "error: PermissionDenied";

#[tokio::test]
async fn a_server_reads_and_writes_nothing_beneath_the_data_directory() {
    let world = World::new().await;
    for path in [
        "data/stepgate.db",
        "data/sandbox/note.txt",
        "link/stepgate.db",
        "other/../data/stepgate.db",
    ] {
        assert_eq!(world.tries("read_path", path).await, DENIED, "{path}");
        assert_eq!(world.tries("write_path", path).await, DENIED, "{path}");
    }
    assert_eq!(world.tries("write_path", "data/new").await, DENIED);
    for directory in ["data", "data/sandbox", "link"] {
        assert_eq!(world.tries("list_path", directory).await, DENIED, "{directory}");
    }
    let here = fs::read_to_string(world.house.keep.path().join("data/stepgate.db")).unwrap();
    assert_eq!(here, "data/stepgate.db");
}

#[tokio::test]
async fn a_server_reads_and_writes_elsewhere_as_its_user_can() {
    let world = World::new().await;
    assert_eq!(world.tries("read_path", "other/file").await, "other/file");
    assert_eq!(world.tries("write_path", "other/new").await, "written");
    assert_eq!(world.tries("write_path", "file").await, "written");
    assert_eq!(
        world.tries("list_path", "/usr").await.split(' ').filter(|n| *n == "bin").count(),
        1
    );
}

#[tokio::test]
async fn what_stands_on_the_way_to_the_data_directory_cannot_be_listed_or_added_to() {
    let world = World::new().await;
    assert_eq!(world.tries("list_path", "").await, DENIED);
    assert_eq!(world.tries("write_path", "new").await, DENIED);
    assert_eq!(world.tries("list_path", "/").await, DENIED);
}

#[tokio::test]
async fn a_server_has_no_capability_and_gets_none_back() {
    let world = World::new().await;
    let status = world.tries("read_path", "/proc/self/status").await;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("{name} is not in\n{status}")).trim().to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs"), "1");
    // Only who has CAP_SETPCAP can empty this one.
    if rustix::process::geteuid().is_root() {
        assert_eq!(field("CapBnd"), "0000000000000000");
    }
}

#[tokio::test]
async fn a_hidden_file_is_hidden_also_when_it_comes_later() {
    let keep = tempfile::tempdir().unwrap();
    for directory in ["secrets", "other"] {
        fs::create_dir(keep.path().join(directory)).unwrap();
    }
    let [now, later] = ["secrets/now", "secrets/later"].map(|name| keep.path().join(name));
    fs::write(&now, "now").unwrap();
    let mut spec = spec("house", "normal");
    spec.hidden = vec![now, later.clone()];
    let world = World { house: House { keep, ..House::of(vec![spec]).await } };
    fs::write(&later, "later").unwrap();
    for path in ["secrets/now", "secrets/later"] {
        assert_eq!(world.tries("read_path", path).await, DENIED, "{path}");
    }
    assert_eq!(world.tries("write_path", "other/new").await, "written");
}
