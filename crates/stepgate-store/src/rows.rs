//! Parses rows of any engine. A row that does not parse was not written by Stepgate: the error names the
//! table, the row and the column, and `verify` reports it.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use stepgate_core::approval::{Approval, ApprovalStatus, Resolution, StoredContext};
use stepgate_core::archive::{ArchivedLink, ArchivedRun};
use stepgate_core::budget::{Account, AccountKey, Balance};
use stepgate_core::decimal::Decimal;
use stepgate_core::digest::Digest;
use stepgate_core::event::{Event, EventType};
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{IdempotencyKey, PrincipalId};
use stepgate_core::journal::checkpoint::CheckpointState;
use stepgate_core::journal::{Appended, Checkpoint, Entry, Kind, Sealed, StateError, Tail};
use stepgate_core::json::{canonical, strict};
use stepgate_core::machine::State;
use stepgate_core::ports::{Cursor, EndedRun, KeptRun, LinkedEvent, StoreError, Unfinished};
use stepgate_core::record::Record;
use stepgate_core::run::{Arrival, Ending, Payload, Run, Status};
use stepgate_core::session::{Head, Link, LinkKind, Session, SessionKind};

use crate::Result;
use crate::new_rows::{LINK_BYTES, kind_mark};
use crate::plan::Chain;
use crate::tables::{self, Table};

/// One row of an engine. The error says what the cell contains instead.
pub(crate) trait Row {
    /// A text, where there is one.
    fn text(&self, column: &str) -> Result<Option<&str>, String>;

    /// A number, where there is one.
    fn number(&self, column: &str) -> Result<Option<i64>, String>;

    /// Bytes, where there are any.
    fn bytes(&self, column: &str) -> Result<Option<&[u8]>, String>;

    /// A text from outside Stepgate, where there is one: it may contain any character.
    fn free_text(&self, column: &str) -> Result<Option<String>, String> {
        Ok(self.text(column)?.map(str::to_owned))
    }
}

/// One row of a table.
pub(crate) struct Cells<'a> {
    row: &'a dyn Row,
    table: Table,
}

impl<'a> Cells<'a> {
    pub(crate) fn of(row: &'a dyn Row, table: Table) -> Self {
        Self { row, table }
    }

    /// The error for a cell.
    pub(crate) fn mismatch(&self, column: &str, why: impl Display) -> StoreError {
        let Table { name, key, .. } = self.table;
        let key = self.row.text(key).ok().flatten().unwrap_or("?");
        let detail = format!("{name} row {key}: column {column}: {why}");
        StateError::checksum(detail).into()
    }

    pub(crate) fn maybe_text(&self, column: &str) -> Result<Option<&str>> {
        self.row.text(column).map_err(|why| self.mismatch(column, why))
    }

    pub(crate) fn text(&self, column: &str) -> Result<&str> {
        self.maybe_text(column)?.ok_or_else(|| self.mismatch(column, "is empty"))
    }

    pub(crate) fn owned(&self, column: &str) -> Result<Option<String>> {
        Ok(self.maybe_text(column)?.map(str::to_owned))
    }

    pub(crate) fn free_text(&self, column: &str) -> Result<Option<String>> {
        self.row.free_text(column).map_err(|why| self.mismatch(column, why))
    }

    pub(crate) fn maybe_number(&self, column: &str) -> Result<Option<u64>> {
        let number = self.row.number(column).map_err(|why| self.mismatch(column, why))?;
        let number = number.map(u64::try_from).transpose();
        number.map_err(|_| self.mismatch(column, "is negative"))
    }

    pub(crate) fn number(&self, column: &str) -> Result<u64> {
        self.maybe_number(column)?.ok_or_else(|| self.mismatch(column, "is empty"))
    }

    pub(crate) fn maybe_bytes(&self, column: &str) -> Result<Option<&[u8]>> {
        self.row.bytes(column).map_err(|why| self.mismatch(column, why))
    }

    pub(crate) fn bytes(&self, column: &str) -> Result<&[u8]> {
        self.maybe_bytes(column)?.ok_or_else(|| self.mismatch(column, "is empty"))
    }

    /// A digest, as text or as bytes.
    fn maybe_digest(&self, column: &str) -> Result<Option<Digest>> {
        if self.table.kind(column) != tables::Kind::Bytes {
            return self.maybe_parsed(column);
        }
        let Some(bytes) = self.maybe_bytes(column)? else { return Ok(None) };
        let digest = bytes.try_into().map(Digest::from_stored);
        digest.map(Some).map_err(|_| self.mismatch(column, "not the bytes of a digest"))
    }

    /// A text that is parsed: an id, a digest, an instant.
    pub(crate) fn parsed<T>(&self, column: &str) -> Result<T>
    where
        T: FromStr<Err: Display>,
    {
        let text = self.text(column)?;
        text.parse().map_err(|error| self.mismatch(column, error))
    }

    pub(crate) fn maybe_parsed<T>(&self, column: &str) -> Result<Option<T>>
    where
        T: FromStr<Err: Display>,
    {
        let parsed = self.maybe_text(column)?.map(str::parse).transpose();
        parsed.map_err(|error| self.mismatch(column, error))
    }

    pub(crate) fn maybe_principal(&self, column: &str) -> Result<Option<PrincipalId>> {
        let parsed = self.maybe_text(column)?.map(PrincipalId::parse).transpose();
        parsed.map_err(|error| self.mismatch(column, error))
    }

    pub(crate) fn principal(&self, column: &str) -> Result<PrincipalId> {
        self.maybe_principal(column)?.ok_or_else(|| self.mismatch(column, "is empty"))
    }

    /// A text that is a variant of one of our enums.
    pub(crate) fn spelled<T>(&self, column: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        let text = self.text(column)?;
        parse(text).ok_or_else(|| self.mismatch(column, format!("`{text}` is unknown")))
    }

    /// The link in the row: all three of its columns, or none.
    pub(crate) fn maybe_link(&self) -> Result<Option<Link>> {
        let number = self.maybe_number("link_number")?;
        let (prev, digest) = (self.maybe_digest("link_prev")?, self.maybe_digest("link_digest")?);
        match (number, prev, digest) {
            (None, None, None) => Ok(None),
            (Some(number), Some(prev), Some(digest)) => Ok(Some(Link { number, prev, digest })),
            _ => Err(self.mismatch("link_number", "a link is whole or absent")),
        }
    }
}

pub(crate) fn chain_from(cells: &Cells<'_>) -> Result<Chain> {
    Ok(Chain { head: head_of(cells)?, last_step_index: cells.number("last_step_index")? })
}

/// The end of a journal, from its last entry.
pub(crate) fn tail_of(cells: &Cells<'_>) -> Result<Tail> {
    let entry = entry_from(cells)?;
    if entry.entry_digest != entry.recomputed_digest() {
        let run_id = entry.trace_id;
        let detail = format!("journal row {run_id}: the last entry does not have its digest");
        return Err(StateError::checksum(detail).into());
    }
    Ok(Tail {
        state: Some(entry.to_state),
        sequence_number: entry.sequence_number,
        entry_digest: entry.entry_digest,
    })
}

/// An entry of the journal, with its artifact.
pub(crate) fn appended_from(cells: &Cells<'_>) -> Result<Appended> {
    let entry = entry_from(cells)?;
    let artifact = Sealed {
        kind: entry.artifact_type,
        id: entry.artifact_id,
        ts: entry.ts,
        digest: entry.artifact_digest,
        text: cells.text("artifact")?.to_owned(),
    };
    Ok(Appended { entry, artifact })
}

/// A record, without the columns of the run's row.
pub(crate) struct SealedRecord {
    text: String,
    digest: Digest,
    link: Link,
}

/// A record with the CLOSE link of its chunk.
pub(crate) fn sealed_record_from(cells: &Cells<'_>, link: Option<Link>) -> Result<SealedRecord> {
    Ok(SealedRecord {
        text: cells.text("record")?.to_owned(),
        digest: cells.parsed("record_digest")?,
        link: link.ok_or_else(|| cells.mismatch("link_number", "is empty"))?,
    })
}

impl SealedRecord {
    /// The record of this run.
    pub(crate) fn of(self, run: &Run) -> Result<(Record, Link)> {
        let run_id = run.arrival.run_id;
        let Some(ending) = run.ending.clone() else {
            let why = "a record of a run that is not over";
            let detail = format!("records row {run_id}: column tool_run_id: {why}");
            return Err(StateError::checksum(detail).into());
        };
        let Self { text, digest, link } = self;
        Ok((Record { run_id, text, digest, status: run.status, ending }, link))
    }
}

pub(crate) fn session_from(cells: &Cells<'_>) -> Result<Session> {
    Ok(Session {
        session_id: cells.parsed("session_id")?,
        principal_id: cells.principal("principal_id")?,
        kind: cells.spelled("kind", SessionKind::parse)?,
        node_id: cells.owned("node_id")?,
        ts: cells.parsed("ts")?,
        head: head_of(cells)?,
        last_step_index: cells.number("last_step_index")?,
    })
}

/// The end of a session's chain.
pub(crate) fn head_of(cells: &Cells<'_>) -> Result<Head> {
    Ok(Head { number: cells.number("head_number")?, digest: cells.parsed("head_digest")? })
}

/// A journal entry, without its artifact.
pub(crate) fn entry_from(cells: &Cells<'_>) -> Result<Entry> {
    let key = cells.owned("idempotency_key")?;
    Ok(Entry {
        artifact_digest: cells.parsed("artifact_digest")?,
        artifact_id: cells.parsed("artifact_id")?,
        artifact_type: cells.spelled("artifact_type", Kind::parse)?,
        entry_digest: cells.parsed("entry_digest")?,
        from_state: cells.spelled("from_state", State::parse)?,
        idempotency_key: key.map(IdempotencyKey::from_stored),
        prev_entry_digest: cells.parsed("prev_entry_digest")?,
        schema_id: Entry::SCHEMA_ID.into(),
        schema_version: Entry::SCHEMA_VERSION.into(),
        sequence_number: cells.number("sequence_number")?,
        to_state: cells.spelled("to_state", State::parse)?,
        tool_call_id: cells.maybe_parsed("tool_call_id")?,
        trace_id: cells.parsed("trace_id")?,
        ts: cells.parsed("ts")?,
    })
}

pub(crate) fn checkpoint_from(cells: &Cells<'_>) -> Result<Checkpoint> {
    let text = cells.text("checkpoint_state")?;
    let state: CheckpointState =
        serde_json::from_str(text).map_err(|error| cells.mismatch("checkpoint_state", error))?;
    if canonical::text_of(&state) != text {
        return Err(cells.mismatch("checkpoint_state", "not in canonical form"));
    }
    Ok(Checkpoint {
        checkpoint_digest: cells.parsed("checkpoint_digest")?,
        checkpoint_sequence_number: cells.number("checkpoint_sequence_number")?,
        checkpoint_state: state,
        schema_id: Checkpoint::SCHEMA_ID.into(),
        schema_version: Checkpoint::SCHEMA_VERSION.into(),
        trace_id: cells.parsed("trace_id")?,
        ts: cells.parsed("ts")?,
    })
}

pub(crate) fn key_from(cells: &Cells<'_>) -> Result<IdempotencyKey> {
    Ok(IdempotencyKey::from_stored(cells.text("idempotency_key")?.to_owned()))
}

/// What a key is bound to.
pub(crate) fn binding_from(cells: &Cells<'_>) -> Result<Binding> {
    Ok(Binding {
        idempotency_key: key_from(cells)?,
        tool_server: cells.text("tool_server")?.to_owned(),
        tool_name: cells.text("tool_name")?.to_owned(),
        asked_digest: cells.parsed("asked_digest")?,
        trace_id: cells.parsed("trace_id")?,
        settled: is_settled(cells)?,
    })
}

/// The binding in the row of a run: all of its columns, or none.
fn own_binding_from(cells: &Cells<'_>) -> Result<Option<Binding>> {
    let (server, tool) = (cells.maybe_text("tool_server")?, cells.maybe_text("bound_tool")?);
    let (asked, settled) = (cells.maybe_digest("asked_digest")?, cells.maybe_number("settled")?);
    let Some(key) = cells.owned("idempotency_key")? else {
        let is_none = (server, tool, asked, settled) == (None, None, None, None);
        let why = "is empty beside a tool, a digest or a mark";
        return if is_none { Ok(None) } else { Err(cells.mismatch("idempotency_key", why)) };
    };
    Ok(Some(Binding {
        idempotency_key: IdempotencyKey::from_stored(key),
        tool_server: cells.text("tool_server")?.to_owned(),
        tool_name: cells.text("bound_tool")?.to_owned(),
        asked_digest: asked.ok_or_else(|| cells.mismatch("asked_digest", "is empty"))?,
        trace_id: cells.parsed("tool_run_id")?,
        settled: is_settled(cells)?,
    }))
}

fn is_settled(cells: &Cells<'_>) -> Result<bool> {
    match cells.number("settled")? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(cells.mismatch("settled", format!("`{other}` is unknown"))),
    }
}

pub(crate) fn approval_from(cells: &Cells<'_>) -> Result<Approval> {
    let approver_id = cells.maybe_principal("approver_id")?;
    let note = cells.free_text("note")?;
    let resolution = match cells.maybe_parsed("ts_resolved")? {
        Some(ts_resolved) => Some(Resolution { approver_id, note, ts_resolved }),
        None if approver_id.is_some() || note.is_some() => {
            return Err(cells.mismatch("ts_resolved", "is empty beside an approver or a note"));
        }
        None => None,
    };
    Ok(Approval {
        context: StoredContext::stored(cells.text("approval_context_json")?.to_owned()),
        approval_id: cells.parsed("approval_id")?,
        resolution,
        status: cells.spelled("status", ApprovalStatus::parse)?,
        tool_run_id: cells.parsed("tool_run_id")?,
        ts_requested: cells.parsed("ts_requested")?,
    })
}

pub(crate) fn run_from(cells: &Cells<'_>) -> Result<Run> {
    let (output_json, error_json) = (cells.owned("output_json")?, cells.owned("error_json")?);
    let ending = match cells.maybe_number("latency_ms")? {
        Some(latency_ms) => Some(Ending { output_json, error_json, latency_ms }),
        None if output_json.is_some() || error_json.is_some() => {
            return Err(cells.mismatch("latency_ms", "is empty beside an output or an error"));
        }
        None => None,
    };
    Ok(Run {
        arrival: Arrival {
            run_id: cells.parsed("tool_run_id")?,
            session_id: cells.parsed("session_id")?,
            principal_id: cells.principal("principal_id")?,
            step_index: cells.number("step_index")?,
            received_at: cells.parsed("ts")?,
            payload: Payload {
                bytes: Arc::from(cells.bytes("payload")?),
                length: cells.number("payload_bytes")?,
            },
        },
        tool_name: cells.free_text("tool_name")?,
        input_json: cells.owned("input_json")?,
        status: cells.spelled("status", Status::parse)?,
        ending,
    })
}

/// A run, with the binding of its key where its own row has it.
pub(crate) fn bound_run_from(cells: &Cells<'_>) -> Result<(Run, Option<Binding>)> {
    Ok((run_from(cells)?, own_binding_from(cells)?))
}

/// A run that is not over, from a row that has `is_waiting` as a number.
pub(crate) fn unfinished_from(cells: &Cells<'_>) -> Result<Unfinished> {
    Ok(Unfinished {
        run_id: cells.parsed("tool_run_id")?,
        tool_name: cells.free_text("tool_name")?,
        is_waiting: cells.number("is_waiting")? == 1,
    })
}

/// An event, with the link in its row.
pub(crate) fn event_from(cells: &Cells<'_>) -> Result<LinkedEvent> {
    let text = cells.text("payload_json")?;
    let payload = strict::parse(text.as_bytes(), strict::DEPTH_MAX, strict::Integers::Any)
        .map_err(|refusal| cells.mismatch("payload_json", refusal))?;
    if canonical::text_of(&payload) != text {
        return Err(cells.mismatch("payload_json", "not in canonical form"));
    }
    let event = Event {
        event_id: cells.parsed("event_id")?,
        event_type: cells.spelled("event_type", EventType::parse)?,
        payload,
        run_id: cells.maybe_parsed("tool_run_id")?,
        sequence_number: cells.number("sequence_number")?,
        session_id: cells.parsed("session_id")?,
        ts: cells.parsed("ts")?,
    };
    let link = cells.maybe_link()?;
    Ok(LinkedEvent { position: cells.number("position")?, event, link })
}

/// What is kept of an archived run.
pub(crate) fn archived_from(cells: &Cells<'_>) -> Result<ArchivedRun> {
    let links = cells.bytes("links")?;
    let (links, rest) = links.as_chunks::<LINK_BYTES>();
    let links: Option<Vec<_>> = links.iter().map(archived_link).collect();
    let links = links.filter(|links| !links.is_empty() && rest.is_empty());
    Ok(ArchivedRun {
        archive_id: cells.parsed("archive_id")?,
        run_id: cells.parsed("tool_run_id")?,
        session_id: cells.parsed("session_id")?,
        step_index: cells.number("step_index")?,
        events: cells.number("events")?,
        approvals: cells.number("approvals")?,
        binding_digest: cells.maybe_digest("binding_digest")?,
        links: links.ok_or_else(|| cells.mismatch("links", "not the links of a run"))?,
    })
}

fn archived_link(bytes: &[u8; LINK_BYTES]) -> Option<ArchivedLink> {
    let (mark, rest) = bytes.split_first()?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    let (prev, rest) = rest.split_first_chunk::<32>()?;
    let body: [u8; 32] = rest.try_into().ok()?;
    let kinds = [LinkKind::Open, LinkKind::Close, LinkKind::Event];
    Some(ArchivedLink {
        kind: kinds.into_iter().find(|kind| kind_mark(*kind) == *mark)?,
        number: u64::from_be_bytes(*number),
        prev: Digest::from_stored(*prev),
        body: Digest::from_stored(body),
    })
}

/// An archived run with the binding of its key, where the row has one.
pub(crate) fn kept_from(cells: &Cells<'_>) -> Result<KeptRun> {
    let binding = match cells.maybe_text("idempotency_key")? {
        Some(_) => Some(binding_from(cells)?),
        None => None,
    };
    Ok(KeptRun { position: cells.number("position")?, run: archived_from(cells)?, binding })
}

/// A run that is over.
pub(crate) fn ended_from(cells: &Cells<'_>) -> Result<EndedRun> {
    Ok(EndedRun {
        run_id: cells.parsed("tool_run_id")?,
        received_at: cells.parsed("ts")?,
        tool_name: cells.free_text("tool_name")?,
        status: cells.spelled("status", Status::parse)?,
        last_event: cells.number("last_event")?,
    })
}

/// An account of a budget.
pub(crate) fn balance_from(cells: &Cells<'_>) -> Result<Balance> {
    let units = i64::try_from(cells.number("used")?);
    Ok(Balance {
        account: Account {
            budget: cells.parsed("budget")?,
            key: AccountKey::from_stored(cells.text("account_key")?.to_owned()),
            window: cells.parsed("account_window")?,
        },
        used: Decimal::from_units(units.map_err(|error| cells.mismatch("used", error))?),
    })
}

pub(crate) fn cursor_from(cells: &Cells<'_>) -> Result<Cursor> {
    Ok(Cursor {
        name: cells.text("name")?.to_owned(),
        reached: cells.number("reached")?,
        error: cells.free_text("error")?,
    })
}
