//! Erasable arguments, against the journals that have their digests and the events that say that they were stored or erased.

use std::collections::BTreeSet;

use crate::erasable::{PAGE, erased};
use crate::event::EventType;
use crate::ids::RunId;
use crate::json::{Map, Value};
use crate::ports::{Dossier, ErasableArgs, Store, StoreError};
use crate::run::Run;
use crate::tool::are_written_as_digests;

use super::{Problem, Walk, place_of};

/// What was found about erasable arguments.
#[derive(Default)]
pub(super) struct Erasable {
    /// The runs whose events say that there are some.
    stored: BTreeSet<RunId>,
    /// Those that were erased before the walk.
    erased: BTreeSet<RunId>,
}

impl Erasable {
    /// Before the walk.
    pub(super) async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        Ok(Self { stored: BTreeSet::new(), erased: erased(store).await? })
    }

    pub(super) fn add(&mut self, dossier: &Dossier) {
        if stores_erasable(dossier) {
            self.stored.insert(dossier.run.arrival.run_id);
        }
    }
}

fn stores_erasable(dossier: &Dossier) -> bool {
    dossier.events.iter().any(|it| it.event.event_type == EventType::ErasableStored)
}

impl Walk {
    /// After the runs and the archives. What is erased meanwhile is no problem.
    pub(super) async fn erasable(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let Erasable { mut stored, erased: before } = std::mem::take(&mut self.erasable);
        let mut after = None;
        loop {
            let page = self.readable("erasable_args", store.erasable_page(after, PAGE).await)?;
            let page = page.unwrap_or_default();
            let Some(last) = page.last() else { break };
            after = Some(last.run_id);
            for row in &page {
                let was_stored = stored.remove(&row.run_id);
                if before.contains(&row.run_id) {
                    self.erasable_problem(row.run_id, "they were erased, and are there");
                }
                // A run that cannot be read is a problem of its own.
                let run = self.readable("tool_runs", store.recall(row.run_id).await)?;
                match run {
                    Some(Some(it)) => {
                        self.erasable_of_run(store, row, &it.run, was_stored).await?;
                    }
                    Some(None) if store.archived_run(row.run_id).await?.is_some() => {}
                    Some(None) => self.erasable_problem(row.run_id, "there is no such run"),
                    None => {}
                }
            }
        }
        if !stored.is_empty() {
            let erased = self.readable("events", erased(store).await)?.unwrap_or_default();
            for run_id in stored.difference(&erased) {
                let what = "they are gone, and no event says that they were erased";
                self.erasable_problem(*run_id, what);
            }
        }
        Ok(())
    }

    async fn erasable_of_run(
        &mut self,
        store: &dyn Store,
        row: &ErasableArgs,
        run: &Run,
        was_stored: bool,
    ) -> Result<(), StoreError> {
        if row.session_id != run.arrival.session_id {
            self.erasable_problem(row.run_id, "session_id does not follow from the rest");
        }
        // A run that began after the walk.
        if !was_stored {
            let dossier = store.dossier(row.run_id).await;
            let dossier = self.readable("erasable_args", dossier)?.flatten();
            if dossier.is_some_and(|dossier| !stores_erasable(&dossier)) {
                self.erasable_problem(row.run_id, "no event says that they were stored");
            }
        }
        match row.arguments() {
            Ok(Some(arguments)) if !are_of_run(&arguments, run) => {
                self.erasable_problem(row.run_id, "they are not those of the run");
            }
            // Without the key there is nothing to compare.
            Ok(Some(_) | None) => {}
            Err(error) => self.erasable_problem(row.run_id, error),
        }
        Ok(())
    }

    fn erasable_problem(&mut self, run_id: RunId, what: impl ToString) {
        self.problems.push(Problem::new(place_of("erasable_args", run_id), what));
    }
}

/// Whether the run's arguments have the digests of these.
fn are_of_run(arguments: &Map<String, Value>, run: &Run) -> bool {
    let written = run.input_json.as_deref().and_then(|text| serde_json::from_str(text).ok());
    written.is_some_and(|written| are_written_as_digests(arguments, &written))
}
