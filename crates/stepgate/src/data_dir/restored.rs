//! What must be remembered of a restore until all earlier runs are over. A run that was sent names the sandbox that
//! it was sent to and the file that it acted on. A run that waits for a person names the sandbox too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use stepgate_core::ids::RunId;
use stepgate_core::ports::{Store, StoreError};
use stepgate_exec::{Earlier, Sandbox};
use stepgate_gateway::durable;

use super::DataDir;
use crate::backup::files_of;

const RESTORED: &str = "restored.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Restored {
    /// The identity of the sandbox before the restore.
    pub(crate) sandbox: Earlier,
    pub(crate) runs: Vec<RunId>,
}

impl Restored {
    pub(crate) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let path = directory.join(RESTORED);
        let written = durable::write(&path, &serde_json::to_vec_pretty(self)?);
        written.with_context(|| format!("cannot write `{}`: free some space", path.display()))
    }
}

impl DataDir {
    fn restored_file(&self) -> PathBuf {
        self.root.join(RESTORED)
    }

    /// What the directory was restored from; kept until runs from before the restore are over.
    pub(crate) fn restored(&self) -> anyhow::Result<Option<Restored>> {
        let path = self.restored_file();
        match fs::read(&path) {
            Ok(text) => Ok(Some(
                serde_json::from_slice(&text)
                    .with_context(|| format!("`{}` is damaged: restore again", path.display()))?,
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        }
    }

    pub(crate) fn earlier(&self) -> anyhow::Result<Option<Earlier>> {
        Ok(self.restored()?.map(|restored| restored.sandbox))
    }

    /// Forgets what no run needs any more. Above all the files: the file system may reuse an old identity for another
    /// file.
    pub(crate) async fn forget_restored(
        &self,
        store: &dyn Store,
        sandbox: &Sandbox,
    ) -> anyhow::Result<()> {
        let Some(mut restored) = self.restored()? else { return Ok(()) };
        let (mut open, mut recorded) = (Vec::new(), Vec::new());
        for run_id in &restored.runs {
            if is_open(store, *run_id).await? {
                open.push(*run_id);
                recorded.extend(files_of(store, *run_id).await?);
            }
        }
        if open.is_empty() {
            sandbox.set_earlier(None);
            let path = self.restored_file();
            let removed = fs::remove_file(&path);
            return removed.with_context(|| format!("cannot remove `{}`", path.display()));
        }
        if open != restored.runs {
            restored.runs = open;
            restored.sandbox.files.retain(|moved| recorded.contains(&moved.was));
            restored.write(&self.root)?;
            sandbox.set_earlier(Some(restored.sandbox));
        }
        Ok(())
    }
}

/// Whether a run may still continue, on any node. True for a run that does not verify.
async fn is_open(store: &dyn Store, run_id: RunId) -> Result<bool, StoreError> {
    match store.dossier(run_id).await {
        Ok(dossier) => Ok(dossier.is_some_and(|dossier| !dossier.run.status.is_final())),
        Err(StoreError::State(_)) => Ok(true),
        Err(error) => Err(error),
    }
}
