//! Writing rows: every statement that changes the database, each for all rows of a batch at once.

use stepgate_core::approval::Approval;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{IdempotencyKey, RunId, SessionId};
use stepgate_core::journal::{Appended, Checkpoint};
use stepgate_core::json::canonical;
use stepgate_core::lease::Ownership;
use stepgate_core::ports::{ApprovalChange, KeyChange};
use stepgate_core::record::Record;
use stepgate_core::run::{Ending, Status};
use stepgate_core::session::{Head, Link, Session};

use super::cells::escaped;
use super::link::{IS_KEPT, Query, Value};
use super::listen::CHANNEL;
use crate::plan::{Chain, NewRun, Rows, SealedChange};

/// The plan of one write.
pub(super) struct Planned<'a> {
    /// The rows.
    pub(super) rows: Rows<'a>,
    /// The owner of its run afterwards; none where it is about no run.
    pub(super) after: Option<Ownership>,
    /// The owner of its run before, where the run existed.
    pub(super) held: Option<Ownership>,
    /// The notification to other nodes.
    pub(super) telling: Option<&'static str>,
}

/// The state of a session before and after a batch.
pub(super) struct Moved {
    pub(super) session_id: SessionId,
    pub(super) before: Chain,
    pub(super) after: Chain,
}

/// The stamp by which a node recognizes its own commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) incarnation: i64,
    pub(super) batch: i64,
}

/// The statements of a batch. Events come last, so that the row that counts them, which every node writes,
/// is locked only for the duration of the commit.
pub(super) fn statements(planned: &[Planned<'_>], moved: &[Moved], stamp: Stamp) -> Vec<Query> {
    let mut out = vec![mark(stamp)];
    let mut add = |query: Option<Query>| out.extend(query);
    let rows = || planned.iter().map(|planned| &planned.rows);
    add(sessions(rows().filter_map(|rows| rows.session).collect()));
    let new = planned.iter().filter_map(|planned| Some((planned.rows.run?, planned.after?)));
    add(new_runs(new.collect()));
    add(changed_runs(planned));
    add(entries(rows().flat_map(|rows| rows.entries.iter().copied()).collect()));
    add(checkpoints(rows().filter_map(|rows| rows.checkpoint).collect()));
    let (mut asked, mut decided) = (Vec::new(), Vec::new());
    for change in rows().filter_map(|rows| rows.approval) {
        match change {
            ApprovalChange::Ask(approval) => asked.push(approval),
            ApprovalChange::Decide(approval) => decided.push(approval),
        }
    }
    add(questions(&asked));
    add(decisions(&decided));
    let (mut bound, mut settled) = (Vec::new(), Vec::new());
    for change in rows().filter_map(|rows| Some((rows.key?, rows.trace?.0))) {
        match change {
            (KeyChange::Bind(binding), _) => bound.push(binding),
            (KeyChange::Settle(key), run_id) => settled.push((key, run_id)),
        }
    }
    add(bindings(&bound));
    add(settlements(&settled));
    add(records(rows().filter_map(|rows| rows.record).collect()));
    let (mut kept, mut erased) = (Vec::new(), Vec::new());
    for change in rows().filter_map(|rows| rows.sealed) {
        match change {
            SealedChange::Keep(run_id, payload) => kept.push((run_id, payload)),
            SealedChange::Erase(run_id) => erased.push(run_id),
        }
    }
    add(sealed(&kept));
    add(erasures(&erased));
    add(tellings(planned, stamp));
    add(chains(moved));
    add(events(rows().flat_map(|rows| rows.events.iter().copied()).collect()));
    out
}

fn mark(Stamp { incarnation, batch }: Stamp) -> Query {
    let sql = format!(
        "WITH changed AS (UPDATE nodes SET last_batch = $2 WHERE incarnation = $1 RETURNING 1)
         SELECT stepgate_expect('nodes', count(*), 1), {IS_KEPT} FROM changed"
    );
    Query::new(sql, vec![Box::new(incarnation), Box::new(batch)])
}

fn sessions(rows: Vec<&Session>) -> Option<Query> {
    let sql = "INSERT INTO sessions
               (session_id, principal_id, kind, ts, node_id, head_number, head_digest,
                last_step_index)
               SELECT new.*, $6::bigint, $7::text, 0
               FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS new";
    some(&rows, sql, |rows| {
        vec![
            texts(rows, |session| session.session_id),
            texts(rows, |session| session.principal_id.as_str()),
            texts(rows, |session| session.kind.as_str()),
            texts(rows, |session| session.ts),
            maybe_texts(rows, |session| session.node_id.as_deref()),
            Box::new(integer(Head::EMPTY.number)),
            Box::new(Head::EMPTY.digest.to_string()),
        ]
    })
}

fn new_runs(rows: Vec<(NewRun<'_>, Ownership)>) -> Option<Query> {
    let sql = "INSERT INTO tool_runs
               (tool_run_id, ts, session_id, principal_id, step_index, tool_name, status,
                input_json, output_json, error_json, latency_ms, payload_bytes, payload, owner, epoch)
               SELECT *
               FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[],
                           $7::text[], $8::text[], $9::text[], $10::text[], $11::bigint[],
                           $12::bigint[], $13::bytea[], $14::bigint[], $15::bigint[])";
    some(&rows, sql, |rows| {
        let output = |ending: &Ending| ending.output_json.clone();
        let error = |ending: &Ending| ending.error_json.clone();
        vec![
            texts(rows, |(new, _)| new.run.arrival.run_id),
            texts(rows, |(new, _)| new.run.arrival.received_at),
            texts(rows, |(new, _)| new.run.arrival.session_id),
            texts(rows, |(new, _)| new.run.arrival.principal_id.as_str()),
            numbers(rows, |(new, _)| new.run.arrival.step_index),
            maybe_texts(rows, |(new, _)| new.run.tool_name.as_deref().map(escaped)),
            texts(rows, |(new, _)| new.status.as_str()),
            maybe_texts(rows, |(new, _)| new.run.input_json.as_deref()),
            maybe_texts(rows, |(new, _)| new.ending.and_then(output)),
            maybe_texts(rows, |(new, _)| new.ending.and_then(error)),
            maybe_numbers(rows, |(new, _)| new.ending.map(|ending| ending.latency_ms)),
            numbers(rows, |(new, _)| new.run.arrival.payload.length),
            bytes(rows, |(new, _)| &new.run.arrival.payload.bytes),
            Box::new(rows.iter().map(|(_, after)| after.owner).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|(_, after)| after.epoch).collect::<Vec<_>>()),
        ]
    })
}

/// A run that existed before, whatever changes in it: the condition on owner and epoch is the fence.
struct ChangedRun<'a> {
    run_id: RunId,
    status: Status,
    ending: Option<&'a Ending>,
    after: Ownership,
    held: Ownership,
}

fn changed_runs(planned: &[Planned<'_>]) -> Option<Query> {
    let changed = planned.iter().filter_map(|Planned { rows, after, held, .. }| {
        let (run_id, trace) = rows.trace?;
        let ending = rows.record.map(|(record, _)| &record.ending);
        Some(ChangedRun { run_id, status: trace.status, ending, after: (*after)?, held: (*held)? })
    });
    let rows: Vec<_> = changed.collect();
    let sql = "WITH changed AS (
                 UPDATE tool_runs AS run SET status = new.status, output_json = new.output_json,
                   error_json = new.error_json, latency_ms = new.latency_ms, owner = new.owner
                 FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[],
                             $6::bigint[], $7::bigint[], $8::bigint[])
                   AS new (run_id, status, output_json, error_json, latency_ms, owner, held, epoch)
                 WHERE run.tool_run_id = new.run_id AND run.epoch = new.epoch
                   AND run.owner IS NOT DISTINCT FROM new.held RETURNING 1)
               SELECT stepgate_expect('tool_runs', count(*), cardinality($1::text[])) FROM changed";
    some(&rows, sql, |rows| {
        vec![
            texts(rows, |row| row.run_id),
            texts(rows, |row| row.status.as_str()),
            maybe_texts(rows, |row| row.ending.and_then(|ending| ending.output_json.as_deref())),
            maybe_texts(rows, |row| row.ending.and_then(|ending| ending.error_json.as_deref())),
            maybe_numbers(rows, |row| row.ending.map(|ending| ending.latency_ms)),
            Box::new(rows.iter().map(|row| row.after.owner).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| row.held.owner).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| row.held.epoch).collect::<Vec<_>>()),
        ]
    })
}

fn entries(rows: Vec<(&Appended, Option<Link>)>) -> Option<Query> {
    let sql = "INSERT INTO journal
               (trace_id, sequence_number, prev_entry_digest, entry_digest, ts, from_state,
                to_state, artifact_type, artifact_id, artifact_digest, tool_call_id,
                idempotency_key, artifact, link_number, link_prev, link_digest)
               SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[],
                 $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
                 $12::text[], $13::text[], $14::bigint[], $15::text[], $16::text[])";
    some(&rows, sql, |rows| {
        let mut values = vec![
            texts(rows, |(row, _)| row.entry.trace_id),
            numbers(rows, |(row, _)| row.entry.sequence_number),
            texts(rows, |(row, _)| row.entry.prev_entry_digest),
            texts(rows, |(row, _)| row.entry.entry_digest),
            texts(rows, |(row, _)| row.entry.ts),
            texts(rows, |(row, _)| row.entry.from_state.as_str()),
            texts(rows, |(row, _)| row.entry.to_state.as_str()),
            texts(rows, |(row, _)| row.entry.artifact_type.as_str()),
            texts(rows, |(row, _)| row.entry.artifact_id),
            texts(rows, |(row, _)| row.entry.artifact_digest),
            maybe_texts(rows, |(row, _)| row.entry.tool_call_id),
            maybe_texts(rows, |(row, _)| {
                row.entry.idempotency_key.as_ref().map(IdempotencyKey::as_str)
            }),
            texts(rows, |(row, _)| row.artifact.text.as_str()),
        ];
        values.extend(links(rows, |(_, link)| *link));
        values
    })
}

fn checkpoints(rows: Vec<&Checkpoint>) -> Option<Query> {
    let sql = "INSERT INTO checkpoints
               (trace_id, checkpoint_sequence_number, checkpoint_state, checkpoint_digest, ts)
               SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[])";
    some(&rows, sql, |rows| {
        vec![
            texts(rows, |row| row.trace_id),
            numbers(rows, |row| row.checkpoint_sequence_number),
            texts(rows, |row| canonical::text_of(&row.checkpoint_state)),
            texts(rows, |row| row.checkpoint_digest),
            texts(rows, |row| row.ts),
        ]
    })
}

fn questions(rows: &[&Approval]) -> Option<Query> {
    let sql = "INSERT INTO approvals
               (approval_id, tool_run_id, ts_requested, status, approval_context_json)
               SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])";
    some(rows, sql, |rows| {
        vec![
            texts(rows, |row| row.approval_id),
            texts(rows, |row| row.tool_run_id),
            texts(rows, |row| row.ts_requested),
            texts(rows, |row| row.status.as_str()),
            texts(rows, |row| row.context.text()),
        ]
    })
}

fn decisions(rows: &[&Approval]) -> Option<Query> {
    let sql = "WITH changed AS (
                 UPDATE approvals SET status = new.status, ts_resolved = new.ts_resolved,
                   approver_id = new.approver_id, note = new.note
                 FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
                   AS new (approval_id, status, ts_resolved, approver_id, note)
                 WHERE approvals.approval_id = new.approval_id AND approvals.status = 'pending'
                 RETURNING 1)
               SELECT stepgate_expect('approvals', count(*), cardinality($1::text[])) FROM changed";
    some(rows, sql, |rows| {
        let resolved = |row: &&Approval| row.resolution.clone();
        vec![
            texts(rows, |row| row.approval_id),
            texts(rows, |row| row.status.as_str()),
            maybe_texts(rows, |row| resolved(row).map(|resolution| resolution.ts_resolved)),
            maybe_texts(rows, |row| {
                let approver_id = resolved(row)?.approver_id?;
                Some(approver_id.as_str().to_owned())
            }),
            maybe_texts(rows, |row| Some(escaped(&resolved(row)?.note?).into_owned())),
        ]
    })
}

fn bindings(rows: &[&Binding]) -> Option<Query> {
    let sql = "INSERT INTO effects
               (idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled)
               SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[],
                                    $6::bigint[])";
    some(rows, sql, |rows| {
        vec![
            texts(rows, |row| row.idempotency_key.as_str()),
            texts(rows, |row| row.tool_server.as_str()),
            texts(rows, |row| row.tool_name.as_str()),
            texts(rows, |row| row.asked_digest),
            texts(rows, |row| row.trace_id),
            numbers(rows, |row| u64::from(row.settled)),
        ]
    })
}

fn settlements(rows: &[(&IdempotencyKey, RunId)]) -> Option<Query> {
    let sql = "WITH changed AS (
                 UPDATE effects SET settled = 1
                 FROM unnest($1::text[], $2::text[]) AS new (idempotency_key, trace_id)
                 WHERE effects.idempotency_key = new.idempotency_key
                   AND effects.trace_id = new.trace_id AND effects.settled = 0 RETURNING 1)
               SELECT stepgate_expect('effects', count(*), cardinality($1::text[])) FROM changed";
    some(rows, sql, |rows| {
        vec![texts(rows, |(key, _)| key.as_str()), texts(rows, |(_, run_id)| *run_id)]
    })
}

fn events(rows: Vec<(&Event, Option<Link>)>) -> Option<Query> {
    let sql = "WITH counted AS (
                 UPDATE event_counter SET last = last + cardinality($1::text[])
                 RETURNING last - cardinality($1::text[]) AS before)
               INSERT INTO events
               (event_id, ts, session_id, tool_run_id, event_type, payload_json,
                sequence_number, link_number, link_prev, link_digest, position)
               SELECT event_id, ts, session_id, tool_run_id, event_type, payload_json,
                      sequence_number, link_number, link_prev, link_digest, before + place
               FROM counted, unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[],
                 $6::text[], $7::bigint[], $8::bigint[], $9::text[], $10::text[]) WITH ORDINALITY
                 AS new (event_id, ts, session_id, tool_run_id, event_type, payload_json,
                         sequence_number, link_number, link_prev, link_digest, place)";
    some(&rows, sql, |rows| {
        let mut values = vec![
            texts(rows, |(row, _)| row.event_id),
            texts(rows, |(row, _)| row.ts),
            texts(rows, |(row, _)| row.session_id),
            maybe_texts(rows, |(row, _)| row.run_id),
            texts(rows, |(row, _)| row.event_type.as_str()),
            texts(rows, |(row, _)| canonical::text_of(&row.payload)),
            numbers(rows, |(row, _)| row.sequence_number),
        ];
        values.extend(links(rows, |(_, link)| *link));
        values
    })
}

fn records(rows: Vec<(&Record, Link)>) -> Option<Query> {
    let sql = "INSERT INTO records
               (tool_run_id, record, record_digest, link_number, link_prev, link_digest)
               SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[],
                                    $6::text[])";
    some(&rows, sql, |rows| {
        let mut values = vec![
            texts(rows, |(row, _)| row.run_id),
            texts(rows, |(row, _)| row.text.as_str()),
            texts(rows, |(row, _)| row.digest),
        ];
        values.extend(links(rows, |(_, link)| Some(*link)));
        values
    })
}

fn sealed(rows: &[(RunId, &[u8])]) -> Option<Query> {
    let sql = "INSERT INTO sealed_payloads (tool_run_id, payload)
               SELECT * FROM unnest($1::text[], $2::bytea[])";
    some(rows, sql, |rows| {
        vec![texts(rows, |(run_id, _)| *run_id), bytes(rows, |(_, payload)| payload)]
    })
}

/// After the runs have ended: before that, a trigger refuses.
fn erasures(rows: &[RunId]) -> Option<Query> {
    let sql = "WITH gone AS (
                 DELETE FROM sealed_payloads WHERE tool_run_id = ANY($1::text[]) RETURNING 1)
               SELECT stepgate_expect('sealed_payloads', count(*), cardinality($1::text[]))
               FROM gone";
    some(rows, sql, |rows| vec![texts(rows, |run_id| *run_id)])
}

/// Only from their known state: another node may write in the same sessions.
fn chains(rows: &[Moved]) -> Option<Query> {
    let sql = "WITH changed AS (
                 UPDATE sessions SET head_number = new.head_number, head_digest = new.head_digest,
                   last_step_index = greatest(sessions.last_step_index, new.last_step_index)
                 FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[],
                             $6::text[])
                   AS new (session_id, head_number, head_digest, last_step_index, old_number,
                           old_digest)
                 WHERE sessions.session_id = new.session_id
                   AND sessions.head_number = new.old_number
                   AND sessions.head_digest = new.old_digest RETURNING 1)
               SELECT stepgate_expect('sessions', count(*), cardinality($1::text[])) FROM changed";
    some(rows, sql, |rows| {
        vec![
            texts(rows, |row| row.session_id),
            numbers(rows, |row| row.after.head.number),
            texts(rows, |row| row.after.head.digest),
            numbers(rows, |row| row.after.last_step_index),
            numbers(rows, |row| row.before.head.number),
            texts(rows, |row| row.before.head.digest),
        ]
    })
}

/// Notifies other nodes, where a caller may wait for a person's decision.
fn tellings(planned: &[Planned<'_>], stamp: Stamp) -> Option<Query> {
    let told = planned.iter().filter_map(|planned| {
        let (run_id, _) = planned.rows.trace?;
        Some(format!("{} {run_id} {}", planned.telling?, stamp.incarnation))
    });
    let rows: Vec<_> = told.collect();
    let sql = format!("SELECT pg_notify({CHANNEL}, telling) FROM unnest($1::text[]) AS telling");
    (!rows.is_empty()).then(|| Query::new(sql, vec![texts(&rows, String::clone)]))
}

fn some<T>(rows: &[T], sql: &'static str, values: impl Fn(&[T]) -> Vec<Value>) -> Option<Query> {
    (!rows.is_empty()).then(|| Query::new(sql, values(rows)))
}

fn texts<T, S: ToString>(rows: &[T], text: impl Fn(&T) -> S) -> Value {
    Box::new(rows.iter().map(|row| text(row).to_string()).collect::<Vec<_>>())
}

fn maybe_texts<T, S: ToString>(rows: &[T], text: impl Fn(&T) -> Option<S>) -> Value {
    Box::new(rows.iter().map(|row| text(row).map(|text| text.to_string())).collect::<Vec<_>>())
}

fn numbers<T>(rows: &[T], number: impl Fn(&T) -> u64) -> Value {
    Box::new(rows.iter().map(|row| integer(number(row))).collect::<Vec<_>>())
}

fn maybe_numbers<T>(rows: &[T], number: impl Fn(&T) -> Option<u64>) -> Value {
    Box::new(rows.iter().map(|row| number(row).map(integer)).collect::<Vec<_>>())
}

fn bytes<T>(rows: &[T], bytes: impl Fn(&T) -> &[u8]) -> Value {
    Box::new(rows.iter().map(|row| bytes(row).to_vec()).collect::<Vec<_>>())
}

/// The three columns of a link.
fn links<T>(rows: &[T], link: impl Fn(&T) -> Option<Link>) -> [Value; 3] {
    [
        maybe_numbers(rows, |row| link(row).map(|link| link.number)),
        maybe_texts(rows, |row| link(row).map(|link| link.prev)),
        maybe_texts(rows, |row| link(row).map(|link| link.digest)),
    ]
}

/// A number in PostgreSQL's type. Counts and indexes do not come near the limit.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
