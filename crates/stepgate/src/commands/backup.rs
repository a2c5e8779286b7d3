//! `stepgate backup`: first a snapshot of the store, then the files, then verification, and the final name last.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::json;
use stepgate_core::digest::Digest;
use stepgate_core::ports::{Sessions, World};
use stepgate_core::verify::SavedHead;
use stepgate_exec::{CopiedFile, Earlier, Identity, Now, SandboxCopy, Skipped};
use stepgate_gateway::durable::{self, PRIVATE};
use stepgate_gateway::world::RealWorld;
use stepgate_store::{PostgresStore, RowCounts, SqliteStore};

use super::verify::verified;
use crate::backup::manifest::{
    BackupFile, Engine, FORMAT, Manifest, SandboxPart, UnderWay, own_directory,
};
use crate::backup::{
    CONFIG, DATABASE, HEADS, POLICIES, SANDBOX, Target, cannot_write, contents, counted,
    files_under_way, progress,
};
use crate::cli::BackupArgs;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::show;

const NOT_VERIFIED: &str = "the copy does not verify, so there is no backup: `stepgate verify` tells whether the store does; \
     --no-verify keeps a copy of it as it is, as evidence: `stepgate restore` refuses it";

pub(super) async fn backup(data: &DataDir, args: BackupArgs) -> anyhow::Result<()> {
    let config = data.load_config()?;
    let copied = [data.sandbox(), data.policies(&config)];
    let target = Target::begin(&args.directory, &copied)?;
    let made_at = RealWorld.now();
    // Read before the store: it is deleted as soon as the runs that need it are over.
    let earlier = data.earlier()?;
    let (engine, rows) = copy_store(data, &config, &target).await?;
    let copy = SqliteStore::open_read_only(&target.at(DATABASE))?;
    // Right after the store: later changes in the sandbox are not in the store's copy.
    let (sandbox, mut files) = match args.no_sandbox {
        false => copy_sandbox(data, &copy, &target, earlier.as_ref()).await?,
        true => (None, Vec::new()),
    };
    files.extend(copy_policies(&data.policies(&config), &target)?);
    if let Some(file) = data.config_file() {
        files.push(copy_file(&file, CONFIG, &target)?);
    }
    let (heads, entries) = match args.no_verify {
        false => {
            let report = verified(&copy, &[], NOT_VERIFIED).await?;
            (report.heads, Some(report.entries))
        }
        true => (heads(&copy).await?, None),
    };
    drop(copy);
    let text = serde_json::to_string_pretty(&heads)? + "\n";
    files.push(target.write(HEADS, text.as_bytes(), PRIVATE)?);
    files.push(target.digested(DATABASE, PRIVATE)?);
    let manifest = Manifest {
        format: FORMAT,
        made_at,
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
        engine,
        schema_version: SqliteStore::schema_version(),
        rows,
        policy_directory: own_directory(&config.policy.directory),
        sandbox_id: config.sandbox_id(data.node_id(&config)?.as_deref()),
        earlier_sandbox_ids: earlier.map_or_else(Vec::new, |earlier| earlier.executor_ids),
        sandbox,
        files,
    };
    manifest.write(&target.at(""))?;
    let path = target.finish()?;
    tell(&path, &manifest, Digest::of_bytes(text.as_bytes()), entries, data.global.json)
}

/// Copies a consistent snapshot of the store, from either engine.
async fn copy_store(
    data: &DataDir,
    config: &Config,
    target: &Target,
) -> anyhow::Result<(Engine, RowCounts)> {
    let to = target.at(DATABASE);
    // Created here with private permissions: SQLite would create it readable for others.
    durable::write_new(&to, b"").map_err(|error| cannot_write(&to, error))?;
    if let Some(url) = data.store_url(config)? {
        let bar = progress("rows copied");
        let told = bar.clone();
        let rows = PostgresStore::back_up(&url, config.postgres_options(), &to, move |rows| {
            told.set_position(rows);
        });
        let rows = rows.await?;
        bar.finish_and_clear();
        return Ok((Engine::Postgresql, rows));
    }
    if !data.database().exists() {
        bail!(
            "there is no store in `{}` to back up; name its directory with --data",
            data.root().display()
        );
    }
    let bar = progress("pages copied");
    let rows = SqliteStore::back_up(&data.database(), &to, |done, _| bar.set_position(done))?;
    bar.finish_and_clear();
    Ok((Engine::Sqlite, rows))
}

/// Copies the sandbox, and notes where the files of calls under way are.
async fn copy_sandbox(
    data: &DataDir,
    copy: &SqliteStore,
    target: &Target,
    earlier: Option<&Earlier>,
) -> anyhow::Result<(Option<SandboxPart>, Vec<BackupFile>)> {
    if !data.sandbox().exists() {
        show::note(format!("`{}` is not there: it is not in the backup", data.sandbox().display()));
        return Ok((None, Vec::new()));
    }
    let under_way = files_under_way(copy).await?;
    let to = target.directory(SANDBOX)?;
    let bar = progress("files copied");
    let copied = stepgate_exec::copy(&data.sandbox(), &to, |files| bar.set_position(files))?;
    bar.finish_and_clear();
    let SandboxCopy { directories, directory_modes, files, skipped, is_settled } = copied;
    note_skipped(skipped);
    let (under_way, unknown) = find(under_way, earlier, &files);
    let part = SandboxPart { under_way, unknown, directories, directory_modes, is_settled };
    let files = files.into_iter().map(|file| BackupFile {
        path: format!("{SANDBOX}/{}", file.path),
        bytes: file.bytes,
        sha256: file.sha256,
        mode: file.mode,
    });
    Ok((Some(part), files.collect()))
}

/// Notes the entries that no action can reach, and that are therefore not in the backup.
fn note_skipped(skipped: Skipped) {
    let Skipped { special, linked, unnamed } = skipped;
    let kinds = [
        (special, "neither files nor directories"),
        (linked, "files with more than one link"),
        (unnamed, "named by what is no UTF-8"),
    ];
    for (count, what) in kinds.into_iter().filter(|(count, _)| *count > 0) {
        show::note(format!(
            "not in the backup, because no action reaches them: {count} in the sandbox, {what}"
        ));
    }
}

/// Finds the files that calls recorded, and lists those that cannot be identified. If the sandbox was itself restored,
/// a file recorded before that has another identity now.
fn find(
    recorded: Vec<Identity>,
    earlier: Option<&Earlier>,
    files: &[CopiedFile],
) -> (Vec<UnderWay>, Vec<Identity>) {
    let (mut under_way, mut unknown) = (Vec::new(), Vec::new());
    for was in recorded {
        let now = match earlier.and_then(|earlier| earlier.became(&was)) {
            None => Some(&was),
            Some(Now::Is(now)) => Some(now),
            Some(Now::Gone) => None,
            Some(Now::Unknown) => {
                unknown.push(was);
                continue;
            }
        };
        let there = now.and_then(|now| files.iter().find(|file| now.is_certainly(&file.identity)));
        match there {
            Some(CopiedFile { path, .. }) => under_way.push(UnderWay { path: path.clone(), was }),
            None if now.is_none_or(Identity::is_unmistakable) => {}
            // It may be one of the copied files, but nothing proves which.
            None => unknown.push(was),
        }
    }
    (under_way, unknown)
}

/// Copies the files in the policy directory. Follows links, as loading does.
fn copy_policies(from: &Path, target: &Target) -> anyhow::Result<Vec<BackupFile>> {
    let Ok(entries) = fs::read_dir(from) else {
        show::note(format!("`{}` is not there: no policies are in the backup", from.display()));
        return Ok(Vec::new());
    };
    target.directory(POLICIES)?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|_| path.is_file()) {
            files.push(copy_file(&path, &format!("{POLICIES}/{name}"), target)?);
        }
    }
    Ok(files)
}

fn copy_file(from: &Path, name: &str, target: &Target) -> anyhow::Result<BackupFile> {
    let shown = || format!("cannot read `{}`", from.display());
    let bytes = fs::read(from).with_context(shown)?;
    let mode = from.metadata().with_context(shown)?.permissions().mode() & 0o777;
    target.write(name, &bytes, mode)
}

async fn heads(copy: &SqliteStore) -> anyhow::Result<Vec<SavedHead>> {
    let sessions = copy.sessions().await?.into_iter();
    Ok(sessions
        .map(|session| SavedHead {
            session_id: session.session_id,
            number: session.head.number,
            digest: session.head.digest,
        })
        .collect())
}

fn tell(
    path: &Path,
    manifest: &Manifest,
    heads_digest: Digest,
    entries: Option<u64>,
    json: bool,
) -> anyhow::Result<()> {
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let is_settled = manifest.sandbox.as_ref().map(|sandbox| sandbox.is_settled);
    if json {
        return show::json(&json!({
            "backup": path,
            "bytes": bytes,
            "engine": manifest.engine,
            "files": manifest.files.len(),
            "heads_digest": heads_digest,
            "made_at": manifest.made_at,
            "rows": manifest.rows,
            "sandbox_is_settled": is_settled,
            "verified": entries.is_some(),
        }));
    }
    let word =
        if entries.is_some() { "backed up and verified:" } else { "backed up, not verified:" };
    let rows = |table: &str| manifest.rows.get(table).copied().unwrap_or(0);
    let of_store = contents(rows("tool_runs"), entries, rows("sessions"));
    let count = u64::try_from(manifest.files.len()).unwrap_or(u64::MAX);
    let files = counted(count, "file", "files");
    let (good, shown) = (show::GOOD, path.display());
    let bytes = counted(bytes, "byte", "bytes");
    show::say(format!("{good}{word}{good:#} {of_store}; {files}, {bytes} in `{shown}`"))?;
    show::say(format!("heads {heads_digest}"))?;
    if is_settled == Some(false) {
        show::note(
            "the sandbox changed for as long as it was copied: its files are not of one moment; a \
             snapshot of their file system is, with --no-sandbox",
        );
    }
    Ok(())
}
