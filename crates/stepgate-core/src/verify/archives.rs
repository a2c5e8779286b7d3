//! Archived runs: what the store keeps of them, against the events that name their archives, and against the files.

use std::collections::{BTreeMap, HashMap};

use crate::archived::{ArchivedLink, ArchivedRun, Kept, NamedArchive, binding_digest};
use crate::digest::Digest;
use crate::event::{Event, EventType};
use crate::ids::ArtifactId;
use crate::ports::{Dossier, KeptRun, Store, StoreError};
use crate::session::{Link, LinkKind};
use crate::time::Timestamp;

use super::chain::Chains;
use super::run::{check, links};
use super::{Problem, Walk, consents, labels};

/// How many archived runs are read at a time.
const PAGE_KEPT: usize = 1024;

/// The files of archives.
pub trait ArchiveFiles: Send + Sync {
    /// What a file has; none where there is no such file. The error says why it cannot be read.
    fn read(&self, name: &str) -> Result<Option<Archive>, String>;
}

/// An archive that was read from its file.
#[derive(Clone, Debug)]
pub struct Archive {
    /// Its id.
    pub archive_id: ArtifactId,
    /// When it was made.
    pub made_at: Timestamp,
    /// SHA-256 of the file.
    pub digest: Digest,
    /// How many bytes it has.
    pub bytes: u64,
    /// Its runs.
    pub dossiers: Vec<Dossier>,
}

impl Archive {
    /// Everything in it that does not follow from the rest: each run, its links, and that neighbouring links name
    /// each other.
    pub fn verify(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut chains = Chains::default();
        for dossier in &self.dossiers {
            problems.extend(check(dossier));
            let arrival = &dossier.run.arrival;
            if dossier.record.is_none() {
                problems.push(Problem::new(format!("run {}", arrival.run_id), "is not over"));
            }
            for (kind, link, body) in links(dossier) {
                let run_id = Some(arrival.run_id);
                problems.extend(chains.add(arrival.session_id, kind, run_id, body, link));
            }
        }
        problems.extend(chains.neighbours());
        problems
    }

    /// What a store keeps of its runs.
    pub fn kept(&self) -> Vec<ArchivedRun> {
        let runs = self.dossiers.iter();
        runs.map(|dossier| ArchivedRun::of(dossier, self.archive_id)).collect()
    }
}

impl ArchivedRun {
    /// What the store keeps of a run.
    pub fn of(dossier: &Dossier, archive_id: ArtifactId) -> Self {
        let arrival = &dossier.run.arrival;
        let kept = |(kind, link, body): (LinkKind, Link, Digest)| ArchivedLink {
            kind,
            number: link.number,
            prev: link.prev,
            body,
        };
        Self {
            archive_id,
            run_id: arrival.run_id,
            session_id: arrival.session_id,
            step_index: arrival.step_index,
            events: u64::try_from(dossier.events.len()).unwrap_or(u64::MAX),
            approvals: u64::from(dossier.approval.is_some()),
            binding_digest: dossier.binding.as_ref().map(binding_digest),
            links: links(dossier).into_iter().map(kept).collect(),
        }
    }
}

/// What was found about archives.
#[derive(Default)]
pub(super) struct Archives {
    /// Those that events name.
    named: BTreeMap<ArtifactId, NamedArchive>,
    /// What the store keeps of their runs.
    kept: HashMap<ArtifactId, Kept>,
    pub(super) read: u64,
    pub(super) missing: Vec<String>,
}

impl Archives {
    pub(super) fn runs(&self) -> u64 {
        self.kept.values().map(|kept| kept.runs).sum()
    }

    pub(super) fn len(&self) -> u64 {
        u64::try_from(self.named.len()).unwrap_or(u64::MAX)
    }
}

impl Walk {
    /// Notes an event that names an archive.
    pub(super) fn archive_event(&mut self, event: &Event) {
        if event.event_type != EventType::RunsArchived {
            return;
        }
        match NamedArchive::read(event) {
            Some(named) => {
                self.ledger.add_archived(&named.archived.charges);
                self.archives.named.insert(named.archive_id, named);
            }
            None => {
                let place = format!("event {}", event.event_id);
                self.problems.push(Problem::new(place, "names an archive and cannot be read"));
            }
        }
    }

    /// What the store keeps of archived runs. Their links close the chains, and the events of the system session cover
    /// them.
    pub(super) async fn kept_runs(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let mut after = 0;
        loop {
            let page = store.archived_page(after, PAGE_KEPT).await;
            let page = self.readable("archived_runs", page)?.unwrap_or_default();
            let Some(last) = page.last() else { break };
            after = last.position;
            page.iter().for_each(|kept| self.kept_run(kept));
        }
        Ok(())
    }

    fn kept_run(&mut self, KeptRun { position: _, run, binding }: &KeptRun) {
        let kept = self.archives.kept.entry(run.archive_id).or_insert(Kept::NONE);
        *kept = kept.and(run);
        let steps = self.steps.entry(run.session_id).or_default();
        steps.last_index = steps.last_index.max(run.step_index);
        for (_, link) in run.chained() {
            self.chains.add_kept(run.session_id, link);
        }
        let place = || format!("archived run {}", run.run_id);
        if binding.as_ref().map(binding_digest) != run.binding_digest {
            self.problems.push(Problem::new(place(), "the binding of its key has changed"));
        }
        if let Some(binding) = binding {
            self.seen.bindings += 1;
            self.key(binding);
        }
    }

    /// Each archive that an event names, against what is kept of its runs, and against its file.
    pub(super) fn archives(&mut self, files: Option<&dyn ArchiveFiles>) {
        let named = std::mem::take(&mut self.archives.named);
        for archive in named.values() {
            let place = format!("archive {}", archive.archived.file);
            let kept = self.archives.kept.get(&archive.archive_id).copied();
            let kept = kept.unwrap_or(Kept::NONE);
            let said = Kept { runs: archive.archived.runs, digest: archive.archived.kept_digest };
            if kept != said {
                let what = format!(
                    "{} runs are archived, and what is kept of {} is not as the event says",
                    said.runs, kept.runs
                );
                self.problems.push(Problem::new(place.clone(), what));
            }
            if let Some(files) = files {
                self.archive_file(files, archive, &place);
            }
        }
        for archive_id in self.archives.kept.keys().filter(|id| !named.contains_key(id)) {
            let place = format!("archive {archive_id}");
            self.problems.push(Problem::new(place, "runs are archived, and no event says so"));
        }
        self.archives.named = named;
    }

    fn archive_file(&mut self, files: &dyn ArchiveFiles, named: &NamedArchive, place: &str) {
        let file = &named.archived.file;
        let archive = match files.read(file) {
            Ok(Some(archive)) => archive,
            Ok(None) => return self.archives.missing.push(file.clone()),
            Err(why) => return self.problems.push(Problem::new(place, why)),
        };
        self.archives.read += 1;
        if archive.digest != named.archived.file_digest || archive.archive_id != named.archive_id {
            return self.problems.push(Problem::new(place, "is not the file that the event names"));
        }
        let kept = Kept::of(&archive.kept());
        if kept.digest != named.archived.kept_digest {
            self.problems.push(Problem::new(place, "has other runs than the event says"));
        }
        self.problems.extend(archive.verify());
        for dossier in &archive.dossiers {
            self.problems.extend(consents::check(dossier, &self.consents));
            self.problems.extend(labels::check(dossier, &self.labels));
            self.erasable.add(dossier);
        }
    }
}
