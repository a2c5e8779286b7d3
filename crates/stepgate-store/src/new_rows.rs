//! The rows that a plan adds: the values in the order of their table's columns, after the position.

use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::Account;
use stepgate_core::decimal::Decimal;
use stepgate_core::digest::Digest;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{IdempotencyKey, PrincipalId, RunId};
use stepgate_core::journal::{Appended, Checkpoint};
use stepgate_core::json::canonical;
use stepgate_core::ports::Place;
use stepgate_core::record::Record;
use stepgate_core::session::{Head, Link, LinkKind, Session};

use crate::plan::{NewRun, Rows};
use crate::tables::Cell;

/// A session, with an empty chain.
pub(crate) fn session_row(session: &Session) -> Vec<Cell<'_>> {
    vec![
        Cell::text_of(session.session_id),
        session.principal_id.as_str().into(),
        session.kind.as_str().into(),
        Cell::text_of(session.ts),
        session.node_id.as_deref().into(),
        Head::EMPTY.number.into(),
        Cell::text_of(Head::EMPTY.digest),
        Cell::Number(0),
    ]
}

pub(crate) fn run_row(new: NewRun<'_>) -> Vec<Cell<'_>> {
    let arrival = &new.run.arrival;
    let mut row = vec![
        Cell::text_of(arrival.run_id),
        Cell::text_of(arrival.received_at),
        Cell::text_of(arrival.session_id),
        arrival.principal_id.as_str().into(),
        arrival.step_index.into(),
        new.run.tool_name.as_deref().into(),
        new.status.as_str().into(),
        new.run.input_json.as_deref().into(),
        new.ending.and_then(|ending| ending.output_json.as_deref()).into(),
        new.ending.and_then(|ending| ending.error_json.as_deref()).into(),
        new.ending.map(|ending| ending.latency_ms).into(),
        arrival.payload.length.into(),
        Cell::from(&*arrival.payload.bytes),
    ];
    row.extend(binding_cells(new.binding));
    row
}

/// The binding of a key in the row of its run.
pub(crate) fn binding_cells(binding: Option<&Binding>) -> [Cell<'_>; 5] {
    let Some(binding) = binding else { return [const { Cell::Nothing }; 5] };
    [
        binding.idempotency_key.as_str().into(),
        binding.tool_server.as_str().into(),
        binding.tool_name.as_str().into(),
        Cell::Bytes(binding.asked_digest.as_bytes().to_vec().into()),
        Cell::Number(binding.settled.into()),
    ]
}

/// What a commit adds to a trace; none where it adds nothing.
pub(crate) fn chunk_row<'a>(rows: &'a Rows<'_>) -> Option<Vec<Cell<'a>>> {
    let (packed, (run_id, _)) = (rows.packed?, rows.trace?);
    let first = rows.entries.first();
    let link = match rows.record {
        Some((_, link)) => Some(link),
        None => first.and_then(|(_, link)| *link),
    };
    let bytes = |digest: Digest| Cell::Bytes(digest.as_bytes().to_vec().into());
    Some(vec![
        Cell::text_of(run_id),
        first.map(|(appended, _)| appended.entry.sequence_number).into(),
        u64::try_from(rows.entries.len()).unwrap_or(u64::MAX).into(),
        u64::from(rows.checkpoint.is_some()).into(),
        u64::from(rows.record.is_some()).into(),
        link.map(|link| link.number).into(),
        link.map(|link| bytes(link.prev)).into(),
        link.map(|link| bytes(link.digest)).into(),
        packed.into(),
    ])
}

/// An entry in a chunk.
pub(crate) fn entry_row(appended: &Appended) -> Vec<Cell<'_>> {
    let Appended { entry, artifact } = appended;
    vec![
        entry.sequence_number.into(),
        entry.from_state.as_str().into(),
        entry.to_state.as_str().into(),
        entry.artifact_type.as_str().into(),
        entry.tool_call_id.map(Cell::text_of).into(),
        entry.idempotency_key.as_ref().map(IdempotencyKey::as_str).into(),
        Cell::text_of(entry.prev_entry_digest),
        Cell::text_of(entry.entry_digest),
        Cell::text_of(entry.ts),
        Cell::text_of(entry.artifact_id),
        Cell::text_of(entry.artifact_digest),
        artifact.text.as_str().into(),
    ]
}

/// A checkpoint in a chunk.
pub(crate) fn checkpoint_row(checkpoint: &Checkpoint) -> Vec<Cell<'_>> {
    vec![
        checkpoint.checkpoint_sequence_number.into(),
        Cell::Text(canonical::text_of(&checkpoint.checkpoint_state).into()),
        Cell::text_of(checkpoint.checkpoint_digest),
        Cell::text_of(checkpoint.ts),
    ]
}

pub(crate) fn approval_row(approval: &Approval) -> Vec<Cell<'_>> {
    let resolution = approval.resolution.as_ref();
    let approver_id = resolution.and_then(|resolution| resolution.approver_id.as_ref());
    vec![
        Cell::text_of(approval.approval_id),
        Cell::text_of(approval.tool_run_id),
        Cell::text_of(approval.ts_requested),
        resolution.map(|resolution| Cell::text_of(resolution.ts_resolved)).into(),
        approval.status.as_str().into(),
        approval.context.text().into(),
        approver_id.map(PrincipalId::as_str).into(),
        resolution.and_then(|resolution| resolution.note.as_deref()).into(),
    ]
}

pub(crate) fn event_row(event: &Event, link: Option<Link>) -> Vec<Cell<'_>> {
    let mut row = vec![
        Cell::text_of(event.event_id),
        Cell::text_of(event.ts),
        Cell::text_of(event.session_id),
        event.run_id.map(Cell::text_of).into(),
        event.event_type.as_str().into(),
        Cell::Text(canonical::text_of(&event.payload).into()),
        event.sequence_number.into(),
    ];
    row.extend(link_cells(link));
    row
}

/// A record in a chunk.
pub(crate) fn record_row(record: &Record) -> Vec<Cell<'_>> {
    vec![record.text.as_str().into(), Cell::text_of(record.digest)]
}

pub(crate) fn account_row(account: &Account, used: Decimal) -> Vec<Cell<'_>> {
    vec![
        account.budget.as_str().into(),
        Cell::text_of(account.window),
        account.key.as_str().into(),
        Cell::Number(used.units()),
    ]
}

pub(crate) fn sealed_row(run_id: RunId, payload: &[u8]) -> Vec<Cell<'_>> {
    vec![Cell::text_of(run_id), payload.into()]
}

pub(crate) fn erasable_row(place: Place, arguments: &[u8]) -> Vec<Cell<'_>> {
    vec![Cell::text_of(place.run_id), Cell::text_of(place.session_id), arguments.into()]
}

/// What is kept of an archived run: the columns of [`GIVEN_OF_ARCHIVED`].
pub(crate) fn archived_row(run: &ArchivedRun) -> Vec<Cell<'static>> {
    vec![
        Cell::text_of(run.run_id),
        Cell::text_of(run.session_id),
        Cell::text_of(run.archive_id),
        run.step_index.into(),
        run.events.into(),
        run.approvals.into(),
        run.binding_digest.map(|digest| Cell::Bytes(digest.as_bytes().to_vec().into())).into(),
        Cell::Bytes(archived_links(run).into()),
    ]
}

/// The columns of `archived_runs` that a commit gives; the database adds what it knows itself.
pub(crate) const GIVEN_OF_ARCHIVED: &str =
    "tool_run_id, session_id, archive_id, step_index, events, approvals, binding_digest, links";

/// Bytes of a link: its kind, its number, the link before and what it links.
pub(crate) const LINK_BYTES: usize = 1 + 8 + 32 + 32;

fn archived_links(run: &ArchivedRun) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(run.links.len() * LINK_BYTES);
    for link in &run.links {
        bytes.push(kind_mark(link.kind));
        bytes.extend(link.number.to_be_bytes());
        bytes.extend(link.prev.as_bytes());
        bytes.extend(link.body.as_bytes());
    }
    bytes
}

pub(crate) fn kind_mark(kind: LinkKind) -> u8 {
    match kind {
        LinkKind::Open => b'o',
        LinkKind::Close => b'c',
        LinkKind::Event => b'e',
    }
}

/// The three columns of a link.
fn link_cells(link: Option<Link>) -> [Cell<'static>; 3] {
    [
        link.map(|link| link.number).into(),
        link.map(|link| Cell::text_of(link.prev)).into(),
        link.map(|link| Cell::text_of(link.digest)).into(),
    ]
}
