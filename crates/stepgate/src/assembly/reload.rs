//! Policies reload while steps run: a changed file, or a changed tool, is looked at within a moment. A
//! set that cannot be loaded leaves the one before in force, and the operator is told once.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use stepgate_core::gate::Gate;
use stepgate_exec::servers::Servers;
use stepgate_policy::ToolShape;

use super::{Control, note_policy, shapes, show_warnings};
use crate::show;

/// What a directory and the tools looked like: enough to see that something has changed.
#[derive(Clone, PartialEq)]
pub(super) struct Look {
    files: Vec<(std::ffi::OsString, u64, Option<SystemTime>)>,
    tools: Vec<ToolShape>,
}

impl Look {
    pub(super) fn at(policies: &Path, servers: &Servers, turned_off: &[String]) -> Self {
        Self { files: files(policies), tools: shapes(servers, turned_off, policies) }
    }

    pub(super) fn tools(&self) -> &[ToolShape] {
        &self.tools
    }
}

fn files(directory: &Path) -> Vec<(std::ffi::OsString, u64, Option<SystemTime>)> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            // Of what is read, also through a link.
            let meta = std::fs::metadata(entry.path()).ok()?;
            Some((entry.file_name(), meta.len(), meta.modified().ok()))
        })
        .collect();
    files.sort();
    files
}

/// Looks again and again, until the process ends.
pub(crate) async fn keep_reloading(gate: Gate, control: Arc<Control>, pause: Duration) {
    let mut seen = control.loaded.clone();
    loop {
        tokio::time::sleep(pause).await;
        // A server that was away at the start may have come.
        if let Err(error) = control.accept_first_seen(&gate).await {
            show::note(format!("new tool servers were not written down: {error:#}"));
        }
        let look = Look::at(&control.policies, &control.servers, &control.turned_off);
        if look != seen {
            reload(&gate, &control, &look.tools).await;
            seen = look;
        }
    }
}

async fn reload(gate: &Gate, control: &Arc<Control>, tools: &[ToolShape]) {
    let (loader, tools) = (Arc::clone(control), tools.to_vec());
    let loaded =
        tokio::task::spawn_blocking(move || loader.policy.reload(&loader.policies, &tools)).await;
    match loaded {
        Ok(Ok(reloaded)) if reloaded.changed => {
            let (policies, cases) = (reloaded.policies, reloaded.cases);
            show::note(format!("policies reloaded: {policies} in force, {cases} cases hold"));
            show_warnings(&reloaded.warnings);
            if let Err(error) = note_policy(gate, reloaded.policy_hash).await {
                show::note(format!("the policies in force were not noted: {error:#}"));
            }
        }
        Ok(Ok(_)) => {}
        Ok(Err(error)) => show::note(format!(
            "{}policies not reloaded:{:#} the ones before stay in force\n{}",
            show::ERROR,
            show::ERROR,
            show::printable_lines(&error.to_string())
        )),
        Err(error) => show::note(format!("policies not reloaded: {error}")),
    }
}
