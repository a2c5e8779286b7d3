//! `/v1/archives`: runs that have left the store, and the order to archive now.

use axum::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::archive::NamedArchive;
use stepgate_core::archive::select::{self, Stay};
use stepgate_core::digest::Digest;
use stepgate_core::gate::Fault;
use stepgate_core::ids::ArtifactId;
use stepgate_core::time::Timestamp;
use stepgate_gateway::service::Archived;
use tracing::warn;

use super::{JsonBody, Operator, Problem, Watcher};

/// An archive as people see it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Archive")]
pub(super) struct ArchiveObject {
    archive_id: ArtifactId,
    /// The name of its file.
    file: String,
    file_bytes: u64,
    /// SHA-256 of the file.
    file_digest: Digest,
    /// How many runs it has.
    runs: u64,
    /// When they left the store.
    archived_at: Timestamp,
}

impl From<NamedArchive> for ArchiveObject {
    fn from(NamedArchive { archive_id, archived, ts }: NamedArchive) -> Self {
        Self {
            archive_id,
            file: archived.file,
            file_bytes: archived.file_bytes,
            file_digest: archived.file_digest,
            runs: archived.runs,
            archived_at: ts,
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Archives {
    archives: Vec<ArchiveObject>,
}

/// Every archive, oldest first.
pub(super) async fn list(Watcher(app, _): Watcher) -> Result<Json<Archives>, Problem> {
    let named = select::named(&*app.service.gate.store).await?;
    Ok(Json(Archives { archives: named.into_iter().map(ArchiveObject::from).collect() }))
}

/// What to archive.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MakeArchives {
    /// Runs that ended before this time, whatever the configuration says; otherwise those that are older than it says.
    #[serde(default)]
    before: Option<Timestamp>,
}

/// What was archived.
#[derive(Serialize, JsonSchema)]
pub(super) struct MadeArchives {
    /// The archives that were made.
    archives: Vec<ArchiveObject>,
    /// Archives that were given up, because a run got a hold or an event meanwhile.
    given_up: u64,
    /// Old runs that stay: a hold covers them.
    held: u64,
    /// Old runs that stay: a receiver of notifications has not read their events.
    unread: u64,
    /// Old runs that stay: they used a grant that is still good.
    granted: u64,
    /// Old runs that stay: they do not verify.
    unsound: u64,
}

fn nothing() -> Problem {
    Problem::conflict("this process knows no archives")
}

/// What a person can put right, such as a directory that cannot be written, is told to who asked.
fn why_not(error: anyhow::Error) -> Problem {
    match error.downcast::<Fault>() {
        Ok(fault) => fault.into(),
        Err(error) => {
            warn!("runs are not archived: {error:#}");
            Problem::conflict(format!("{error:#}; what was archived before this stays so"))
        }
    }
}

pub(super) async fn make(
    Operator(app, _): Operator,
    JsonBody(MakeArchives { before }): JsonBody<MakeArchives>,
) -> Result<Json<MadeArchives>, Problem> {
    let archived = app.service.archive(before).await.map_err(why_not)?.ok_or_else(nothing)?;
    let Archived { archives, stay, given_up } = archived;
    let Stay { held, unread, granted, unsound } = stay;
    let archives = archives.into_iter().map(ArchiveObject::from).collect();
    Ok(Json(MadeArchives { archives, given_up, held, unread, granted, unsound }))
}
