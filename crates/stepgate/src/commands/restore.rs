//! `stepgate restore`: copies everything to a staging directory, verifies it there, and then moves it into place.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::ensure;
use serde_json::json;
use stepgate_core::json::Value;
use stepgate_core::ports::Store;
use stepgate_core::verify::{self, Report, SavedHead};
use stepgate_exec::{Earlier, Identity, Moved, Now, file_at, files_in};
use stepgate_store::{BackupError, PostgresStore, Restoring, SqliteStore};

use crate::backup::manifest::{Engine, Manifest, SandboxPart};
use crate::backup::{
    Backup, CONFIG, DATABASE, POLICIES, SANDBOX, cannot_write, contents, files_under_way, progress,
};
use crate::cli::RestoreArgs;
use crate::config::Config;
use crate::data_dir::{DataDir, Extent, Restored, Staging};
use crate::show;

/// The name under which a configuration is set aside that names another store.
const CONFIG_ASIDE: &str = "stepgate.toml.restored";

/// Configuration keys that name files, in any table.
const NAMES_FILES: [&str; 5] =
    ["file", "key_file", "payload_key_file", "tls_certificate", "tls_key"];

pub(super) async fn restore(data: &DataDir, args: RestoreArgs) -> anyhow::Result<()> {
    let backup = Backup::open(&args.directory)?;
    let heads = backup.heads()?;
    let config = data.load_config()?;
    let url = data.store_url(&config)?;
    let extent = if args.store_only { Extent::Store } else { Extent::Everything };
    let mut staging = data.stage(extent)?;
    let database = staging.at(DATABASE);
    backup.take(backup.file(DATABASE)?, &database)?;
    SqliteStore::bring_up_to_date(&database)?;
    let mut notes = match extent {
        Extent::Everything => take_files(&backup, &staging, url.as_deref())?,
        Extent::Store => Vec::new(),
    };
    let report = match url {
        None => {
            let store = SqliteStore::open_read_only(&database)?;
            let report = verified(&store, &heads).await?;
            note_restored(&store, &backup, data, &staging, extent).await?;
            drop(store);
            place(&mut staging, &backup, data, extent)?;
            report
        }
        Some(url) => {
            let filled = Filled::of(&url, &config, &database, &staging, &heads).await?;
            let report = verified(filled.store(), &heads).await?;
            note_restored(filled.store(), &backup, data, &staging, extent).await?;
            fs::remove_file(&database).map_err(|error| cannot_write(&database, error))?;
            place(&mut staging, &backup, data, extent)?;
            filled.finish().await?;
            report
        }
    };
    staging.finish()?;
    tell(data, &args.directory, &backup, &report)?;
    if extent == Extent::Everything {
        notes.extend(missing_files(data));
    }
    notes.into_iter().for_each(show::note);
    Ok(())
}

enum Filled {
    /// Filled by this restore, in a transaction: not visible to other connections yet.
    Now(Restoring),
    /// Filled by an earlier restore that was interrupted after the database's commit and before it noted that.
    Before(PostgresStore),
}

impl Filled {
    async fn of(
        url: &str,
        config: &Config,
        database: &Path,
        staging: &Staging,
        heads: &[SavedHead],
    ) -> anyhow::Result<Self> {
        let bar = progress("rows restored");
        let told = bar.clone();
        let told = move |rows, _| told.set_position(rows);
        let options = config.postgres_options();
        match PostgresStore::restore(url, options.clone(), database, told).await {
            Ok(restoring) => {
                bar.finish_and_clear();
                Ok(Self::Now(restoring))
            }
            Err(error @ BackupError::NotEmpty { .. }) if staging.was_interrupted => {
                let store = PostgresStore::open_read_only(url, options).await?;
                match ends_at(&verify::verify(&store, &[], |_| ()).await?, heads) {
                    true => Ok(Self::Before(store)),
                    // Another store, or the restored one was used since.
                    false => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn store(&self) -> &dyn Store {
        match self {
            Self::Now(restoring) => restoring.store(),
            Self::Before(store) => store,
        }
    }

    async fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Now(restoring) => Ok(restoring.finish().await?),
            Self::Before(_) => Ok(()),
        }
    }
}

/// Copies everything except the store, and returns notes for the operator.
fn take_files(
    backup: &Backup,
    staging: &Staging,
    url: Option<&str>,
) -> anyhow::Result<Vec<String>> {
    let mut notes = Vec::new();
    match &backup.manifest.sandbox {
        Some(SandboxPart { directories, .. }) => {
            staging.directory(SANDBOX)?;
            for directory in directories {
                staging.directory(&format!("{SANDBOX}/{directory}"))?;
            }
            let bar = progress("files restored");
            for (file, beneath) in backup.beneath(SANDBOX) {
                backup.take(file, &staging.at(SANDBOX).join(beneath))?;
                bar.inc(1);
            }
            bar.finish_and_clear();
        }
        None => notes.push(
            "the sandbox is not in the backup: put its files back before the first start"
                .to_owned(),
        ),
    }
    let policies = backup.manifest.policy_directory.as_deref();
    let place = policies.unwrap_or(POLICIES);
    let mut files = backup.beneath(POLICIES).peekable();
    if files.peek().is_some() {
        let directory = staging.directory(place)?;
        files.try_for_each(|(file, beneath)| backup.take(file, &directory.join(beneath)))?;
        if policies.is_none() {
            notes.push(format!(
                "the configuration names a directory of policies elsewhere: those of the backup are in \
                 `{POLICIES}`; put them where it says before the first start"
            ));
        }
    } else {
        notes.push(
            "there are no policies in the backup: put them back before the first start".into(),
        );
    }
    notes.extend(take_config(backup, staging, url)?);
    Ok(notes)
}

/// Moves everything into place, with its permissions.
fn place(
    staging: &mut Staging,
    backup: &Backup,
    data: &DataDir,
    extent: Extent,
) -> anyhow::Result<()> {
    staging.place()?;
    match extent {
        Extent::Everything => set_modes(backup, data),
        Extent::Store => Ok(()),
    }
}

/// Sets the permissions of the sandbox's directories. Last, and the deepest first: a read-only directory could neither
/// be filled nor moved into place.
fn set_modes(backup: &Backup, data: &DataDir) -> anyhow::Result<()> {
    let Some(SandboxPart { directories, directory_modes, .. }) = &backup.manifest.sandbox else {
        return Ok(());
    };
    for (path, mode) in directory_modes.iter().rev() {
        if path.is_empty() || directories.contains(path) {
            let path = data.sandbox().join(path);
            let set = fs::set_permissions(&path, Permissions::from_mode(mode & 0o777));
            set.map_err(|error| cannot_write(&path, error))?;
        }
    }
    Ok(())
}

/// Copies the configuration. Sets it aside if it names another store: the first start would use that store.
fn take_config(
    backup: &Backup,
    staging: &Staging,
    url: Option<&str>,
) -> anyhow::Result<Option<String>> {
    let Ok(file) = backup.file(CONFIG) else { return Ok(None) };
    let path = staging.at(CONFIG);
    backup.take(file, &path)?;
    let named = Config::load(Some(&path), |_| None).map(|config| config.store.url);
    match named {
        Ok(named) if named.is_empty() || Some(named.as_str()) == url => Ok(None),
        Ok(_) | Err(_) => {
            let aside = staging.at(CONFIG_ASIDE);
            fs::rename(&path, &aside).map_err(|error| cannot_write(&aside, error))?;
            Ok(Some(format!(
                "the configuration in the backup names another store, or cannot be read: it is in \
                 `{CONFIG_ASIDE}`; look at `store.url` in it, and call it `{CONFIG}` again"
            )))
        }
    }
}

/// Files that the configuration names and that do not exist. They are secrets or belong to other programs, so they are
/// never in a backup. Without them `serve` would not start.
fn missing_files(data: &DataDir) -> Vec<String> {
    let config = data.load_config().ok().and_then(|config| serde_json::to_value(config).ok());
    let mut named = Vec::new();
    files_named("", &config.unwrap_or_default(), &mut named);
    let base = data.base();
    named.retain(|(_, file)| !base.join(file).exists());
    let told = named.into_iter().map(|(key, file)| {
        format!("`{key}` names `{file}`, which is in no backup and not here: put it back before the first start")
    });
    told.collect()
}

/// The files that a configuration names, each with its key.
fn files_named(key: &str, value: &Value, named: &mut Vec<(String, String)>) {
    let Value::Object(members) = value else { return };
    for (name, value) in members {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        match value.as_str().filter(|text| !text.is_empty()) {
            Some(file) if NAMES_FILES.contains(&name.as_str()) => {
                named.push((key, file.to_owned()));
            }
            // A command without a slash is found in `PATH`.
            Some(program) if name == "command" && program.contains('/') => {
                named.push((key, program.to_owned()));
            }
            Some(_) | None => files_named(&key, value, named),
        }
    }
}

/// Verifies the whole store, and that it ends where the backup does.
async fn verified(store: &dyn Store, heads: &[SavedHead]) -> anyhow::Result<Report> {
    let why = "what was restored does not verify, and is taken back; use another backup";
    let report = super::verify::verified(store, heads, why).await?;
    ensure!(
        ends_at(&report, heads),
        "what was restored does not end where the backup does, and is taken back; use another backup"
    );
    Ok(report)
}

fn ends_at(report: &Report, heads: &[SavedHead]) -> bool {
    report.heads.len() == heads.len() && report.heads.iter().all(|head| heads.contains(head))
}

/// Writes down how runs that are not over identify the sandbox and its files.
async fn note_restored(
    store: &dyn Store,
    backup: &Backup,
    data: &DataDir,
    staging: &Staging,
    extent: Extent,
) -> anyhow::Result<()> {
    let runs = store.unfinished_runs().await?;
    if runs.is_empty() {
        return Ok(());
    }
    let recorded = files_under_way(store).await?;
    let (executor_ids, files) = match extent {
        Extent::Everything => (backup.manifest.sandbox_ids(), put_back(recorded, backup, staging)),
        Extent::Store => (staying_as(&backup.manifest), stayed(recorded, data)?),
    };
    Restored { sandbox: Earlier { executor_ids, files }, runs }.write(&staging.at(""))
}

/// The new identities of files in a sandbox that is restored with the store.
fn put_back(recorded: Vec<Identity>, backup: &Backup, staging: &Staging) -> Vec<Moved> {
    let place = staging.at(SANDBOX);
    let now = |was: &Identity| {
        let Some(sandbox) = &backup.manifest.sandbox else { return Now::Unknown };
        if sandbox.unknown.contains(was) {
            return Now::Unknown;
        }
        let there = sandbox.under_way.iter().find(|file| file.was == *was);
        match there.and_then(|file| file_at(&place.join(&file.path))) {
            Some(now) if backup.manifest.proves_files() => Now::Is(now),
            None if backup.manifest.proves_files() => Now::Gone,
            Some(_) | None => Now::Unknown,
        }
    };
    recorded.into_iter().map(|was| Moved { now: now(&was), was }).collect()
}

/// The new identities of files in a sandbox that stays as it is. A missing file was deleted by the call, or the files
/// here are copies: that cannot be told apart.
fn stayed(recorded: Vec<Identity>, data: &DataDir) -> anyhow::Result<Vec<Moved>> {
    let there = match data.sandbox().exists() && !recorded.is_empty() {
        true => files_in(&data.sandbox())?,
        false => Vec::new(),
    };
    let earlier = data.earlier()?;
    let now = |was: &Identity| {
        let now = match earlier.as_ref().and_then(|earlier| earlier.became(was)) {
            None => was,
            Some(Now::Is(now)) => now,
            Some(Now::Gone | Now::Unknown) => return Now::Unknown,
        };
        let found = there.iter().find(|file| now.is_certainly(file));
        found.map_or(Now::Unknown, |now| Now::Is(now.clone()))
    };
    Ok(recorded.into_iter().map(|was| Moved { now: now(&was), was }).collect())
}

/// The earlier names of a sandbox that stays as it is. With several nodes it may not be the sandbox of the node that
/// made the backup, so it keeps its present name.
fn staying_as(manifest: &Manifest) -> Vec<String> {
    match manifest.engine {
        Engine::Sqlite => manifest.sandbox_ids(),
        Engine::Postgresql => Vec::new(),
    }
}

fn tell(data: &DataDir, from: &Path, backup: &Backup, report: &Report) -> anyhow::Result<()> {
    let manifest = &backup.manifest;
    if data.global.json {
        return show::json(&json!({
            "backup": from,
            "data": data.root(),
            "entries": report.entries,
            "made_at": manifest.made_at,
            "runs": report.runs,
            "sessions": report.heads.len(),
            "verified": true,
        }));
    }
    let sessions = u64::try_from(report.heads.len()).unwrap_or(u64::MAX);
    let of_store = contents(report.runs, Some(report.entries), sessions);
    let (good, made_at) = (show::GOOD, manifest.made_at);
    show::say(format!("{good}restored and verified:{good:#} {of_store}, as of {made_at}"))?;
    show::note("what came after that is forgotten: a step that is asked again runs again");
    Ok(())
}
