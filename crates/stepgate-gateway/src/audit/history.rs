//! The events in the order of their positions, wherever they are: in the store, or, where their runs have left it, in the
//! files of archives.
//!
//! The store is read first, and after it which archives there are. So an event of a run that leaves the store meanwhile is
//! in one of the two, and one that is in both is returned once.

use std::collections::{BTreeSet, VecDeque};

use stepgate_core::archive::select::named_since;
use stepgate_core::archive::{ArchivedEvents, NamedArchive};
use stepgate_core::event::EventType;
use stepgate_core::ids::ArtifactId;
use stepgate_core::ports::{EventQuery, PlacedEvent, Store, StoreError};
use stepgate_core::verify::ArchiveFiles;

use super::PAGE;
use crate::service::ArchiveSettings;

/// Most archives that are read for one page, unless they begin with it: many can have no event of the wanted types.
const READ_MAX: usize = 8;

/// Events that follow each other.
pub(super) struct Page {
    pub(super) events: Vec<PlacedEvent>,
    /// Up to this position there is no other event of the wanted types.
    pub(super) end: u64,
}

/// Why there is no page.
#[derive(Debug)]
pub(super) enum Gap {
    Store(StoreError),
    Archive(Lost),
}

impl From<StoreError> for Gap {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// An archive whose events cannot be had.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) archive_id: ArtifactId,
    /// Which it is, how many events it has, and why they cannot be had.
    pub(super) why: String,
}

/// Reads page after page.
pub(super) struct History {
    types: Vec<EventType>,
    archives: ArchiveSettings,
    /// Everything up to this position was returned; none before the first page.
    after: Option<u64>,
    /// Archives that events up to this position name are known.
    looked_to: u64,
    /// Those that may have later events, by their first one.
    sources: Vec<Source>,
    /// Those that are passed over, because their events cannot be had.
    given_up: BTreeSet<ArtifactId>,
}

struct Source {
    named: NamedArchive,
    /// Where its events are; anywhere, where it does not say so.
    span: ArchivedEvents,
    /// Those that were not returned yet, once its file was read.
    events: Option<VecDeque<PlacedEvent>>,
}

impl History {
    /// Events of these types, all where none is named.
    pub(super) fn new(types: Vec<EventType>, archives: ArchiveSettings) -> Self {
        let (sources, given_up) = (Vec::new(), BTreeSet::new());
        Self { types, archives, after: None, looked_to: 0, sources, given_up }
    }

    /// The next events after a position. `newest` is the last position that there was before this call; archives are read
    /// only as far as `until`.
    pub(super) async fn page(
        &mut self,
        store: &dyn Store,
        after: u64,
        newest: u64,
        until: u64,
    ) -> Result<Page, Gap> {
        if self.after.is_none_or(|before| after < before) {
            (self.looked_to, self.sources) = (after, Vec::new());
        }
        self.after = Some(after);
        let query = EventQuery {
            after,
            event_types: self.types.clone(),
            limit: PAGE,
            ..EventQuery::default()
        };
        let mut events = store.events(query).await?;
        let last = events.last().map_or(after, |placed| placed.position);
        let known = newest.max(last);
        let mut end = if events.len() < PAGE { known } else { last };
        if end > after {
            self.look(store, after, known).await?;
            end = self.open(&events, after, end, until).await.map_err(Gap::Archive)?;
        }
        events.extend(self.sources.iter().flat_map(|source| source.up_to(end)).cloned());
        events.retain(|placed| placed.position <= end);
        events.sort_by_key(|placed| placed.position);
        events.dedup_by_key(|placed| placed.position);
        if events.len() > PAGE {
            events.truncate(PAGE);
            end = events.last().map_or(end, |placed| placed.position);
        }
        self.sources.iter_mut().for_each(|source| source.pass(end));
        self.after = Some(end);
        Ok(Page { events, end })
    }

    /// Passes this archive over from now on.
    pub(super) fn give_up(&mut self, archive_id: ArtifactId) {
        self.given_up.insert(archive_id);
    }

    /// Finds the archives that were named since the last look. Those that were named before a position have no later event.
    /// `known` is a position that the store had before.
    async fn look(&mut self, store: &dyn Store, after: u64, known: u64) -> Result<(), StoreError> {
        let named = named_since(store, self.looked_to).await?;
        self.looked_to = self.looked_to.max(known);
        // One that is named after that position is found again the next time.
        self.sources.extend(named.into_iter().map(Source::new));
        self.sources.sort_by_key(|source| (source.span.first, source.named.archive_id));
        self.sources.dedup_by_key(|source| source.named.archive_id);
        self.sources.retain(|source| source.span.last > after);
        self.sources.iter_mut().for_each(|source| source.pass(after));
        Ok(())
    }

    /// Reads the archives that have events up to `end`, but no more than a page needs. Returns how far that was done.
    async fn open(
        &mut self,
        stored: &[PlacedEvent],
        after: u64,
        end: u64,
        until: u64,
    ) -> Result<u64, Lost> {
        let mut read = 0;
        for at in 0..self.sources.len() {
            let Some(source) = self.sources.get(at) else { break };
            let first = source.span.first;
            if first > end.min(until) {
                break;
            }
            if source.events.is_some() || self.given_up.contains(&source.named.archive_id) {
                continue;
            }
            let is_later = first > after + 1;
            if is_later && (read >= READ_MAX || self.known_before(stored, first) >= PAGE) {
                return Ok(first - 1);
            }
            read += 1;
            if let Some(source) = self.sources.get_mut(at) {
                source.read(&self.archives, &self.types, after).await?;
            }
        }
        Ok(end)
    }

    /// How many events before a position are at hand, in the store and in the archives that were read.
    fn known_before(&self, stored: &[PlacedEvent], position: u64) -> usize {
        let stored = stored.iter().filter(|placed| placed.position < position).count();
        let archived = self.sources.iter().map(|it| it.up_to(position - 1).count());
        stored + archived.sum::<usize>()
    }
}

impl Source {
    fn new(named: NamedArchive) -> Self {
        let anywhere = ArchivedEvents { count: 0, first: 0, last: u64::MAX };
        let span = named.archived.events.unwrap_or(anywhere);
        Self { named, span, events: None }
    }

    async fn read(
        &mut self,
        archives: &ArchiveSettings,
        types: &[EventType],
        after: u64,
    ) -> Result<(), Lost> {
        let (files, file) = (archives.clone(), self.named.archived.file.clone());
        let read = tokio::task::spawn_blocking(move || files.read(&file)).await;
        let archive = match read {
            Ok(Ok(Some(archive))) => archive,
            Ok(Ok(None)) => {
                let why = format!("is not in `{}`", archives.directory.display());
                return Err(self.lost(&why));
            }
            Ok(Err(why)) => return Err(self.lost(&why)),
            Err(error) => return Err(self.lost(&error.to_string())),
        };
        if archive.digest != self.named.archived.file_digest {
            return Err(self.lost("is not the file that its event names"));
        }
        let events = archive.dossiers.into_iter().flat_map(|dossier| dossier.events);
        let placed = events.map(|it| PlacedEvent { position: it.position, event: it.event });
        let mut events: Vec<_> = placed.collect();
        if events.iter().any(|placed| placed.position == 0) {
            return Err(self.lost("was made before archives kept the positions of events"));
        }
        events.retain(|placed| {
            let is_wanted = types.is_empty() || types.contains(&placed.event.event_type);
            is_wanted && placed.position > after
        });
        events.sort_by_key(|placed| placed.position);
        self.events = Some(events.into());
        Ok(())
    }

    fn lost(&self, why: &str) -> Lost {
        let NamedArchive { archive_id, archived, .. } = &self.named;
        let events = match archived.events {
            Some(ArchivedEvents { count, first, last }) => {
                format!("{count} events, at positions {first} to {last}")
            }
            None => format!("the events of {} runs", archived.runs),
        };
        Lost { archive_id: *archive_id, why: format!("archive {} ({events}) {why}", archived.file) }
    }

    fn up_to(&self, end: u64) -> impl Iterator<Item = &PlacedEvent> {
        self.events.iter().flatten().take_while(move |placed| placed.position <= end)
    }

    fn pass(&mut self, end: u64) {
        if let Some(events) = &mut self.events {
            while events.pop_front_if(|placed| placed.position <= end).is_some() {}
        }
    }
}
