//! `stepgate doctor`: looks at everything that must be right, changes nothing.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, ensure};
use serde::Serialize;
use stepgate_core::ports::{Store, Unreached};
use stepgate_exec::{Sandbox, SandboxLimits, launcher};
use stepgate_store::sqlite::SqliteStore;

use crate::data_dir::DataDir;
use crate::server::Tls;
use crate::{assembly, show, store};

/// Below this much free space a store may soon be unable to record.
const FREE_BYTES_MIN: u64 = 256 * 1024 * 1024;

#[derive(Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    detail: String,
}

pub(super) async fn doctor(data: &DataDir, json: bool) -> anyhow::Result<u8> {
    let checks = [
        check("configuration", configuration(data)),
        check("data directory", directory(data)),
        check("free space", free_space(data)),
        check("holder", Ok(holder(data))),
        check("database", database(data).await),
        check("sandbox", sandbox(data)),
        check("certificate", certificate(data)),
        check("tool servers", tool_servers(data)),
        check("interrupted runs", interrupted(data).await),
        check("executors", executors(data).await),
    ];
    for Check { name, ok, detail } in &checks {
        if json {
            show::json(&Check { name, ok: *ok, detail: detail.clone() })?;
        } else {
            let (style, word) = if *ok { (show::GOOD, "ok   ") } else { (show::ERROR, "wrong") };
            let detail = show::printable_lines(detail);
            show::say(format!("{style}{word}{style:#}  {name:<16}  {detail}"))?;
        }
    }
    Ok(if checks.iter().all(|check| check.ok) { 0 } else { super::FAULT })
}

fn check(name: &'static str, found: anyhow::Result<String>) -> Check {
    match found {
        Ok(detail) => Check { name, ok: true, detail },
        Err(error) => Check { name, ok: false, detail: format!("{error:#}") },
    }
}

fn configuration(data: &DataDir) -> anyhow::Result<String> {
    data.load_config()?;
    Ok("valid".into())
}

fn directory(data: &DataDir) -> anyhow::Result<String> {
    let root = data.root();
    if !root.exists() {
        // With a store elsewhere this command may be a visitor.
        return Ok(format!("`{}` is not there: `stepgate serve` makes it", root.display()));
    }
    let mode = root.metadata()?.permissions().mode() & 0o777;
    ensure!(
        mode & 0o077 == 0,
        "`{0}` is open to others (mode {mode:o}): `chmod 700 {0}`",
        root.display()
    );
    Ok(format!("`{}`, for its owner alone", root.display()))
}

fn free_space(data: &DataDir) -> anyhow::Result<String> {
    let free = data.free_bytes().context("cannot ask the file system")?;
    let mebibytes = free / (1024 * 1024);
    ensure!(free >= FREE_BYTES_MIN, "only {mebibytes} MiB: without space nothing can be recorded");
    Ok(format!("{mebibytes} MiB"))
}

fn holder(data: &DataDir) -> String {
    match data.holder() {
        Some(holder) => format!("{holder} holds the directory"),
        None => "nobody holds the directory".into(),
    }
}

async fn database(data: &DataDir) -> anyhow::Result<String> {
    if data.store_url(&data.load_config()?)?.is_some() {
        let counts = store::read(data).await?.counts().await?;
        return Ok(format!("PostgreSQL, {} runs, {} entries", counts.runs, counts.entries));
    }
    if !data.database().exists() {
        return Ok("not there yet".into());
    }
    let store = SqliteStore::open_read_only(&data.database())?;
    let damage = store.quick_check().await?;
    ensure!(
        damage.is_empty(),
        "damaged: {}: restore a backup; the sandbox is not affected",
        damage.join("; ")
    );
    let counts = store.counts().await?;
    Ok(format!("sound, {} runs, {} journal entries", counts.runs, counts.entries))
}

fn sandbox(data: &DataDir) -> anyhow::Result<String> {
    if !data.sandbox().exists() {
        return Ok("not there yet".into());
    }
    Sandbox::open(&data.sandbox(), "doctor".into(), SandboxLimits::default())?;
    Ok("paths are resolved by the kernel".into())
}

fn certificate(data: &DataDir) -> anyhow::Result<String> {
    let Some(files) = data.load_config()?.serve.tls(&data.base())? else {
        return Ok("none in the configuration".into());
    };
    let tls = Tls::load(files)?;
    let warnings = tls.warnings();
    ensure!(warnings.is_empty(), "{}", warnings.join("; "));
    Ok(tls.described())
}

fn tool_servers(data: &DataDir) -> anyhow::Result<String> {
    let config = data.load_config()?;
    let count = config.servers.len();
    ensure!(
        count == 0 || launcher::is_available(),
        "this kernel has no Landlock: the processes of tool servers can read the data directory; run \
         them as another user, or take a kernel with it"
    );
    let out_of_reach = assembly::out_of_reach(data, &config)?;
    ensure!(out_of_reach.is_empty(), "{}", out_of_reach.join("; "));
    Ok(match count {
        0 => "none in the configuration".into(),
        count => format!("{count}, kept away from the data directory by Landlock"),
    })
}

async fn interrupted(data: &DataDir) -> anyhow::Result<String> {
    let is_elsewhere = data.store_url(&data.load_config()?)?.is_some();
    if !is_elsewhere && !data.database().exists() {
        return Ok("none".into());
    }
    let store = store::read(data).await?;
    Ok(match store.unfinished_runs().await?.len() {
        0 => "none".into(),
        count => format!("{count}: the next step, or `stepgate recover`, goes on with them"),
    })
}

/// Where nobody serves, whoever comes next may reach everything.
async fn executors(data: &DataDir) -> anyhow::Result<String> {
    if data.store_url(&data.load_config()?)?.is_none() {
        return Ok("this directory's own".into());
    }
    let store = store::read(data).await?;
    let is_living = store.nodes().await?.iter().any(|node| node.lease_left.is_some());
    let unreached = store.unreached().await?;
    let waiting: Vec<String> = unreached.iter().map(waiting_for).collect();
    ensure!(waiting.is_empty() || !is_living, "{}", waiting.join("; "));
    Ok(match waiting.is_empty() {
        true => "no run waits for one that is out of reach".into(),
        false => waiting.join("; "),
    })
}

fn waiting_for(unreached: &Unreached) -> String {
    let Unreached { executor_id, runs, last_node_id, .. } = unreached;
    let way_out = match last_node_id {
        Some(node_id) => format!("start node `{node_id}` again"),
        None => "start a node that has it".into(),
    };
    format!("{runs} runs wait for `{executor_id}`, which no living node reaches: {way_out}")
}
