//! Processes: what they are given, and that none stays behind.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use stepgate_exec::launcher::WORD;

use super::house::{House, fixture, spec, until, with_env};

fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    // A zombie has ended; somebody just has not looked.
    status.is_ok_and(|status| !status.contains(") Z"))
}

async fn ends(pid: &str) {
    until("the end of the process", async || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn a_server_gets_what_is_configured_and_little_else() {
    let house = House::ordinary(|spec| with_env(spec, "HOUSE_TOKEN", "hunter2")).await;
    let given = house.text("house.environment", json!({})).await;
    let names: Vec<_> = given.lines().map(|line| line.split_once('=').unwrap().0).collect();
    for name in &names {
        assert!(["PATH", "HOME", "LANG", "HOUSE_TOKEN"].contains(name), "{name} was passed on");
    }
    assert!(given.contains("HOUSE_TOKEN=hunter2"), "{given}");
    // The tests themselves have more, so something was kept back.
    assert!(std::env::vars().count() > names.len());
}

#[tokio::test]
async fn a_secret_is_not_in_what_is_printed() {
    let spec = with_env(spec("house", "normal"), "HOUSE_TOKEN", "hunter2");
    let printed = format!("{spec:?}");
    assert!(printed.contains("HOUSE_TOKEN") && !printed.contains("hunter2"), "{printed}");
}

#[tokio::test]
async fn a_server_ends_with_the_gateway_and_so_does_what_it_started() {
    let house = House::of(vec![spec("house", "stubborn")]).await;
    let grandchild = house.text("house.children", json!({})).await;
    assert!(is_alive(&grandchild));
    house.servers.shutdown().await;
    ends(&grandchild).await;
}

#[tokio::test]
async fn a_server_ends_when_the_servers_are_dropped() {
    let house = House::of(vec![spec("house", "stubborn")]).await;
    let grandchild = house.text("house.children", json!({})).await;
    drop(house);
    ends(&grandchild).await;
}

#[tokio::test]
async fn what_a_server_started_ends_with_the_server() {
    let house = House::of(vec![spec("house", "normal")]).await;
    let grandchild = house.text("house.children", json!({})).await;
    house.run("house.crash", json!({})).await;
    ends(&grandchild).await;
}

/// The gateway's part is played by a shell that starts the launcher, tells the two ids and is killed.
#[tokio::test]
async fn nothing_outlives_a_gateway_that_is_killed() {
    let script = format!(
        "{program} {WORD} watch $$ -- sh -c 'sleep 600 & echo $!; sleep 600' & wait",
        program = fixture().display()
    );
    let mut gateway =
        Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(gateway.stdout.take().unwrap());
    let mut grandchild = String::new();
    std::io::BufRead::read_line(&mut told, &mut grandchild).unwrap();
    let grandchild = grandchild.trim();
    assert!(is_alive(grandchild));
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    ends(grandchild).await;
}

/// The launcher's last words go nowhere when the gateway has let go of the server.
#[tokio::test]
async fn nothing_stays_behind_where_nobody_listens_any_more() {
    let this = std::process::id().to_string();
    let script = "setsid sleep 600 & echo $!; read line";
    let mut launcher = Command::new(fixture())
        .args([WORD, "watch", &this, "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = std::io::BufReader::new(launcher.stdout.take().unwrap());
    let mut grandchild = String::new();
    std::io::BufRead::read_line(&mut told, &mut grandchild).unwrap();
    drop(launcher.stderr.take());
    drop(launcher.stdin.take());
    assert!(launcher.wait().unwrap().success());
    ends(grandchild.trim()).await;
}

#[test]
fn the_launchers_word_is_not_for_others() {
    for line in [vec![WORD], vec![WORD, "watch", "x"], vec![WORD, "watch", "1", "--", "true"]] {
        let ended = Command::new(fixture()).args(&line).output().unwrap();
        assert!(!ended.status.success(), "{line:?}");
    }
}
