//! The file of an archive: a line of JSON for each run, in RFC 8785 form, between a header and a footer.

use serde::{Deserialize, Serialize};

use crate::approval::Approval;
use crate::archived::BindingObject;
use crate::bundle::Bundle;
use crate::digest::Digest;
use crate::event::{Event, EventType};
use crate::ids::{ArtifactId, RunId, SessionId};
use crate::journal::{Checkpoint, StateError};
use crate::json::{Value, canonical, strict};
use crate::ports::{Dossier, LinkedEvent};
use crate::session::Link;
use crate::time::Timestamp;

pub use crate::verify::Archive;

const FORMAT: &str = "stepgate.archive.v1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    archive_id: ArtifactId,
    format: String,
    made_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Footer {
    /// SHA-256 of all bytes before this line.
    digest: Digest,
    runs: u64,
}

/// A run: what `runs export` gives, and everything else that the store has of it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    approval: Option<Approval>,
    binding: Option<BindingObject>,
    bundle: Bundle,
    checkpoints: Vec<Checkpoint>,
    events: Vec<EventObject>,
    open_link: Option<Link>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventObject {
    event_id: ArtifactId,
    event_type: EventType,
    link: Option<Link>,
    #[serde(deserialize_with = "strict::value")]
    payload: Value,
    /// Files that were written before this was kept have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    run_id: Option<RunId>,
    sequence_number: u64,
    session_id: SessionId,
    ts: Timestamp,
}

impl EventObject {
    fn of(linked: &LinkedEvent) -> Self {
        let event = linked.event.clone();
        Self {
            event_id: event.event_id,
            event_type: event.event_type,
            link: linked.link,
            payload: event.payload,
            position: Some(linked.position).filter(|position| *position > 0),
            run_id: event.run_id,
            sequence_number: event.sequence_number,
            session_id: event.session_id,
            ts: event.ts,
        }
    }

    fn read(self) -> LinkedEvent {
        let event = Event {
            event_id: self.event_id,
            event_type: self.event_type,
            payload: self.payload,
            run_id: self.run_id,
            sequence_number: self.sequence_number,
            session_id: self.session_id,
            ts: self.ts,
        };
        let position = self.position.unwrap_or_default();
        LinkedEvent { position, event, link: self.link }
    }
}

impl Line {
    fn of(dossier: &Dossier) -> Result<Self, StateError> {
        Ok(Self {
            approval: dossier.approval.clone(),
            binding: dossier.binding.as_ref().map(BindingObject::of),
            bundle: Bundle::of(dossier)?,
            checkpoints: dossier.checkpoints.clone(),
            events: dossier.events.iter().map(EventObject::of).collect(),
            open_link: dossier.open_link,
        })
    }

    fn read(self) -> Result<Dossier, StateError> {
        let (run, entries) = self.bundle.rows()?;
        let record = self.bundle.record.map(|record| record.stored(&run));
        Ok(Dossier {
            run,
            entries,
            open_link: self.open_link,
            checkpoints: self.checkpoints,
            approval: self.approval,
            binding: self.binding.map(BindingObject::read),
            events: self.events.into_iter().map(EventObject::read).collect(),
            sealed: None,
            record,
        })
    }
}

/// The line of a run, without its end. An error where the run would not come back from it exactly as it is.
pub(super) fn line(dossier: &Dossier) -> Result<String, StateError> {
    let text = canonical::text_of(&Line::of(dossier)?);
    match read_line(&text) {
        Ok(back) if back == *dossier => Ok(text),
        Ok(_) => Err(StateError::checksum("the run does not come back from its line as it is")),
        Err(why) => Err(StateError::checksum(why)),
    }
}

fn read_line(text: &str) -> Result<Dossier, String> {
    let line: Line = read(text)?;
    if canonical::text_of(&line) != text {
        return Err("is not written as Stepgate writes it".into());
    }
    line.read().map_err(|error| error.to_string())
}

/// Strict JSON: with duplicate keys, a line could show one thing and prove another.
fn read<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, String> {
    let value = strict::stored(text).map_err(|refusal| refusal.to_string())?;
    T::deserialize(value).map_err(|error| error.to_string())
}

/// The file of an archive with these lines.
pub(super) fn text(archive_id: ArtifactId, made_at: Timestamp, lines: &[String]) -> String {
    let header = Header { archive_id, format: FORMAT.into(), made_at };
    let mut text = canonical::text_of(&header) + "\n";
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    let runs = u64::try_from(lines.len()).unwrap_or(u64::MAX);
    let footer = Footer { digest: Digest::of_bytes(text.as_bytes()), runs };
    text.push_str(&canonical::text_of(&footer));
    text.push('\n');
    text
}

impl Archive {
    /// Reads a file. The error says which line is not as it was written.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is not text")?;
        let whole = text.strip_suffix('\n').ok_or("is cut off: the last line has no end")?;
        let (body, last) = whole.rsplit_once('\n').ok_or("is cut off: there is no footer")?;
        let footer: Footer = read(last).map_err(|why| format!("footer: {why}"))?;
        let covered = text.get(..body.len() + 1).unwrap_or_default();
        if footer.digest != Digest::of_bytes(covered.as_bytes()) {
            return Err("footer: the lines before it have another digest".into());
        }
        let mut lines = body.split('\n');
        let header = lines.next().unwrap_or_default();
        let header: Header = read(header).map_err(|why| format!("header: {why}"))?;
        if header.format != FORMAT {
            return Err(format!("header: the format is not `{FORMAT}`"));
        }
        let numbered = lines.zip(2..);
        let dossiers = numbered
            .map(|(line, number)| read_line(line).map_err(|why| format!("line {number}: {why}")))
            .collect::<Result<Vec<_>, _>>()?;
        if u64::try_from(dossiers.len()).ok() != Some(footer.runs) {
            return Err(format!("footer: there are {} runs", dossiers.len()));
        }
        Ok(Self {
            archive_id: header.archive_id,
            made_at: header.made_at,
            digest: Digest::of_bytes(bytes),
            bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            dossiers,
        })
    }
}
