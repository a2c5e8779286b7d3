//! What `doctor` checks of the machine: directory, permissions, disk, clock and certificate.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail, ensure};
use stepgate_core::ports::{RunQuery, Store, World};
use stepgate_core::run::Arrival;
use stepgate_core::time::Timestamp;
use stepgate_gateway::control::{refuse_writable, refuse_writable_policies};
use stepgate_gateway::disk;
use stepgate_gateway::world::RealWorld;
use stepgate_http::server::Tls;

use crate::config::{Config, audit, notify, servers};
use crate::data_dir::DataDir;
use crate::store;

/// How far the newest run may be ahead of the clock: another node started it, and clocks differ a little.
const AHEAD_MAX_MS: u64 = 5000;
/// The beginning of 2026: a clock before it was never set.
const EARLIEST_MS: i64 = 1_767_225_600_000;

pub(super) fn directory(data: &DataDir) -> anyhow::Result<String> {
    let root = data.root();
    if !root.exists() {
        // With a remote store this machine may have no data directory.
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

/// Whether others can change what decides, or read what is secret.
pub(super) fn permissions(data: &DataDir) -> anyhow::Result<String> {
    let config = data.load_config()?;
    data.config_file().map_or(Ok(()), |file| refuse_writable(&file))?;
    refuse_writable_policies(&data.policies(&config))?;
    let exposed: Vec<_> = secrets(data, &config).iter().filter_map(|it| exposed(it)).collect();
    ensure!(exposed.is_empty(), "{}", exposed.join("\n"));
    Ok("what decides is the owner's to change, and what is secret the owner's to read".into())
}

/// The files with secrets: of the data directory, and those that the configuration names. The certificate's key has its own
/// check.
fn secrets(data: &DataDir, config: &Config) -> Vec<PathBuf> {
    let base = data.base();
    let own = ["operator.token", "agent.token", "stepgate.db", "stepgate.db-wal"];
    let own = own.map(|name| data.root().join(name));
    let named = servers::secret_files(&config.servers, &base);
    let named = named.into_iter().chain(notify::secret_files(&config.notify, &base));
    let named = named.chain(audit::secret_files(&config.audit, &base));
    let named = named.chain(config.otlp.secret_files(&base));
    let keys = [Some(data.payload_key_file(config)), config.agent.key_file(&base)];
    own.into_iter().chain(named).chain(keys.into_iter().flatten()).collect()
}

/// A file that others can read, with the way out. One that another user owns, as with secrets that are mounted into a
/// container, is only looked at for the right to write.
fn exposed(file: &Path) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    let (mode, others) = (metadata.mode() & 0o777, if is_ours { 0o077 } else { 0o002 });
    (mode & others != 0).then(|| {
        format!("`{0}` is open to others (mode {mode:o}): `chmod 600 {0}`", file.display())
    })
}

/// Free space, of which a part is reserved for operators.
pub(super) fn free_space(data: &DataDir) -> anyhow::Result<String> {
    let reserved = data.load_config().unwrap_or_default().store.free_bytes_min;
    let free = disk::free_bytes(data.root()).context("cannot ask the file system")?;
    let [free_mib, reserved_mib] = [free, reserved].map(|bytes| bytes / (1024 * 1024));
    ensure!(
        free >= reserved,
        "only {free_mib} MiB, and {reserved_mib} MiB are reserved for operators: agents are refused; free \
         some space, or lower store.free_bytes_min"
    );
    Ok(format!("{free_mib} MiB, of which {reserved_mib} MiB are reserved for operators"))
}

/// Whether archives find room, on their own disk or on that of the data directory.
pub(super) fn space_for_archives(data: &DataDir) -> anyhow::Result<String> {
    let config = data.load_config()?;
    let (directory, reserved) = (data.archives(&config).directory, config.store.free_bytes_min);
    let free = disk::free_bytes(&directory).context("cannot ask the file system")?;
    let [free_mib, reserved_mib] = [free, reserved].map(|bytes| bytes / (1024 * 1024));
    let shown = directory.display();
    ensure!(
        free >= reserved,
        "only {free_mib} MiB are free for `{shown}`, and {reserved_mib} MiB are reserved: no run leaves the store; \
         free some space, or lower store.free_bytes_min"
    );
    Ok(format!("{free_mib} MiB are free for `{shown}`"))
}

/// Whether the clock goes right, as far as the store shows: expiries of approvals, tokens and grants depend on it. Leases are
/// measured by the database's clock, which is compared where there is one.
pub(super) async fn clock(
    data: &DataDir,
    store: anyhow::Result<Option<Arc<dyn Store>>>,
) -> anyhow::Result<String> {
    let now = RealWorld.now();
    ensure!(now > Timestamp::from_millisecond(EARLIEST_MS), "it is {now}: set it");
    if let Some(database) = store::clock(data).await? {
        // The database was asked between the two.
        let after = RealWorld.now().plus_ms(AHEAD_MAX_MS);
        ensure!(
            database.plus_ms(AHEAD_MAX_MS) >= now && database <= after,
            "it is {now}, and {database} by the database's clock: set one of them"
        );
    }
    let Some(store) = store? else { return Ok(format!("it is {now}")) };
    let since = Some(now.plus_ms(AHEAD_MAX_MS));
    let later = store.runs(RunQuery { since, limit: 1, ..RunQuery::default() }).await?;
    if let Some(Arrival { run_id, received_at, .. }) = later.first().map(|run| &run.arrival) {
        bail!(
            "it is {now}, and run {run_id} came at {received_at}: the clock was put back, or another node's is \
             ahead"
        );
    }
    Ok(format!("it is {now}, and no run is later"))
}

pub(super) fn certificate(data: &DataDir) -> anyhow::Result<String> {
    let Some(files) = data.load_config()?.serve.tls(&data.base())? else {
        return Ok("none in the configuration".into());
    };
    let tls = Tls::load(files)?;
    let trouble = tls.trouble_at(SystemTime::now());
    let wrong: Vec<_> = tls.warnings().into_iter().chain(trouble).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(tls.described())
}
