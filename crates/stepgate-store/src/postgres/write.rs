//! Writing rows: every statement that changes the database, each for all rows of a batch at once.

use std::collections::BTreeMap;

use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, BudgetChange};
use stepgate_core::decimal::Decimal;
use stepgate_core::ids::{IdempotencyKey, SessionId};
use stepgate_core::lease::Ownership;
use stepgate_core::ports::{ApprovalChange, KeyChange};

use super::columns::{arrays, by_column};
use super::link::{IS_KEPT, Query};
use super::listen::CHANNEL;
use crate::new_rows::{
    GIVEN_OF_ARCHIVED, account_row, approval_row, archived_row, binding_cells, chunk_row,
    erasable_row, event_row, run_row, sealed_row, session_row,
};
use crate::plan::{AccountChange, Chain, NewRun, Rows, SealedChange};
use crate::search::IS_UNFINISHED;
use crate::select::{self, Engine};
use crate::tables::{
    APPROVALS, ARCHIVED_RUNS, BUDGET_ACCOUNTS, CHUNKS, Cell, EFFECTS, ERASABLE_ARGS, EVENTS,
    SEALED_PAYLOADS, SESSIONS, TOOL_RUNS, Table, integer,
};

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
/// is locked only for the duration of the commit. After them, still under that lock, the last position of an event that
/// belongs to no run is read.
pub(super) fn statements(planned: &[Planned<'_>], moved: &[Moved], stamp: Stamp) -> Vec<Query> {
    let mut out = vec![mark(stamp)];
    let mut add = |query: Option<Query>| out.extend(query);
    let rows = || planned.iter().map(|planned| &planned.rows);
    add(insert(&SESSIONS, rows().filter_map(|rows| rows.session).map(session_row).collect()));
    let new = planned.iter().filter_map(|planned| Some((planned.rows.run?, planned.after?)));
    add(new_runs(new));
    add(bound_later(planned));
    add(changed_runs(planned));
    add(insert(&CHUNKS, rows().filter_map(chunk_row).collect()));
    let (mut asked, mut decided) = (Vec::new(), Vec::new());
    for change in rows().filter_map(|rows| rows.approval) {
        match change {
            ApprovalChange::Ask(approval) => asked.push(approval_row(approval)),
            ApprovalChange::Decide(approval) => decided.push(approval_row(approval)),
        }
    }
    add(insert(&APPROVALS, asked));
    add(decisions(decided));
    add(settled_elsewhere(rows()));
    let (mut kept, mut erased) = (Vec::new(), Vec::new());
    for change in rows().filter_map(|rows| rows.sealed) {
        match change {
            SealedChange::Keep(run_id, payload) => kept.push(sealed_row(run_id, payload)),
            SealedChange::Erase(run_id) => erased.push(run_id.to_string()),
        }
    }
    add(insert(&SEALED_PAYLOADS, kept));
    add(erasures(&SEALED_PAYLOADS, erased));
    let stored = rows().filter_map(|rows| rows.erasable);
    add(insert(&ERASABLE_ARGS, stored.map(|(place, args)| erasable_row(place, args)).collect()));
    let erased = rows().flat_map(|rows| rows.erased).map(ToString::to_string).collect();
    add(erasures(&ERASABLE_ARGS, erased));
    let archived: Vec<&ArchivedRun> = rows().flat_map(|rows| rows.archived).collect();
    archived_runs(&archived).into_iter().for_each(|query| add(Some(query)));
    add(tellings(planned, stamp));
    add(chains(moved));
    let charged = Charged::by(rows().flat_map(|rows| &rows.accounts));
    add(new_accounts(&charged));
    add(changed_accounts(&charged));
    let new = rows().flat_map(|rows| &rows.events);
    add(events(new.map(|(event, link)| event_row(event, *link)).collect()));
    add(Some(select::last_loose_position(Engine::Postgres).into()));
    out
}

fn mark(Stamp { incarnation, batch }: Stamp) -> Query {
    let sql = format!(
        "WITH changed AS (UPDATE nodes SET last_batch = $2 WHERE incarnation = $1 RETURNING 1)
         SELECT stepgate_expect('nodes', count(*), 1), {IS_KEPT} FROM changed"
    );
    Query::of(sql, [Cell::Number(incarnation), Cell::Number(batch)])
}

/// Adds rows of a table.
fn insert(table: &Table, rows: Vec<Vec<Cell<'_>>>) -> Option<Query> {
    insert_with(table, table.given(), rows)
}

fn insert_with(table: &Table, names: &str, rows: Vec<Vec<Cell<'_>>>) -> Option<Query> {
    (!rows.is_empty()).then(|| {
        let (name, columns) = (table.name, table.typed(names));
        let arrays = arrays(&columns);
        let sql = format!("INSERT INTO {name} ({names}) SELECT * FROM unnest({arrays})");
        Query::new(sql, by_column(&columns, rows))
    })
}

/// Changes rows of a table: each of the `new` rows exactly one of `there`, or the batch fails.
fn update(
    table: &Table,
    new_names: &str,
    changes: &str,
    condition: &str,
    rows: Vec<Vec<Cell<'_>>>,
) -> Option<Query> {
    (!rows.is_empty()).then(|| {
        let (name, columns) = (table.name, table.typed(new_names));
        let arrays = arrays(&columns);
        let sql = format!(
            "WITH changed AS (
               UPDATE {name} AS there SET {changes} FROM unnest({arrays}) AS new ({new_names})
               WHERE {condition} RETURNING 1)
             SELECT stepgate_expect('{name}', count(*), cardinality($1::text[])) FROM changed"
        );
        Query::new(sql, by_column(&columns, rows))
    })
}

fn new_runs<'a>(new: impl Iterator<Item = (NewRun<'a>, Ownership)>) -> Option<Query> {
    let rows = new.map(|(new, Ownership { owner, epoch })| {
        let mut row = run_row(new);
        row.extend([owner.map(Cell::Number).into(), Cell::Number(epoch)]);
        row
    });
    let names = format!("{}, owner, epoch", TOOL_RUNS.given());
    insert_with(&TOOL_RUNS, &names, rows.collect())
}

/// Keys of runs that were opened before. Before a run ends: after that, a trigger refuses.
fn bound_later(planned: &[Planned<'_>]) -> Option<Query> {
    let bound = planned.iter().filter_map(|Planned { rows, .. }| match (rows.run, rows.key?) {
        (None, KeyChange::Bind(binding)) => {
            let run_id = [Cell::text_of(binding.trace_id)].into_iter();
            Some(run_id.chain(binding_cells(Some(binding))).collect::<Vec<_>>())
        }
        (Some(_), KeyChange::Bind(_)) | (_, KeyChange::Settle(_)) => None,
    });
    update(
        &TOOL_RUNS,
        "tool_run_id, idempotency_key, tool_server, bound_tool, asked_digest, settled",
        "idempotency_key = new.idempotency_key, tool_server = new.tool_server,
         bound_tool = new.bound_tool, asked_digest = new.asked_digest, settled = new.settled",
        "there.tool_run_id = new.tool_run_id AND there.idempotency_key IS NULL",
        bound.collect(),
    )
}

/// The key that a plan settles, and whether it is in the run's own row.
fn settled_key<'a>(rows: &Rows<'a>) -> Option<(&'a IdempotencyKey, bool)> {
    match rows.key? {
        KeyChange::Settle(key) => Some((key, rows.trace?.1.has_own_key)),
        KeyChange::Bind(_) => None,
    }
}

/// Runs that existed before, whatever changes in them: the condition on owner and epoch is the fence.
fn changed_runs(planned: &[Planned<'_>]) -> Option<Query> {
    let changed = planned.iter().filter_map(|Planned { rows, after, held, .. }| {
        let (run_id, trace) = rows.trace?;
        let (after, held) = ((*after)?, (*held)?);
        let ending = rows.record.map(|(record, _)| &record.ending);
        let own_key = settled_key(rows).filter(|(_, is_own)| *is_own);
        Some(vec![
            Cell::text_of(run_id),
            trace.status.as_str().into(),
            ending.and_then(|ending| ending.output_json.as_deref()).into(),
            ending.and_then(|ending| ending.error_json.as_deref()).into(),
            ending.map(|ending| ending.latency_ms).into(),
            after.owner.map(Cell::Number).into(),
            held.owner.map(Cell::Number).into(),
            Cell::Number(held.epoch),
            own_key.map(|(key, _)| key.as_str()).into(),
        ])
    });
    update(
        &TOOL_RUNS,
        "tool_run_id, status, output_json, error_json, latency_ms, owner, held, epoch, settled_key",
        "status = new.status, output_json = new.output_json, error_json = new.error_json,
         latency_ms = new.latency_ms, owner = new.owner,
         settled = CASE WHEN new.settled_key IS NULL THEN there.settled ELSE 1 END",
        "there.tool_run_id = new.tool_run_id AND there.epoch = new.epoch
         AND there.owner IS NOT DISTINCT FROM new.held
         AND (new.settled_key IS NULL
              OR there.idempotency_key = new.settled_key AND there.settled = 0)",
        changed.collect(),
    )
}

fn decisions(rows: Vec<Vec<Cell<'_>>>) -> Option<Query> {
    update(
        &APPROVALS,
        APPROVALS.given(),
        "status = new.status, ts_resolved = new.ts_resolved, approver_id = new.approver_id,
         note = new.note",
        "there.approval_id = new.approval_id AND there.status = 'pending'",
        rows,
    )
}

/// Keys that runs of older versions have bound: they are not in the run's own row.
fn settled_elsewhere<'a>(rows: impl Iterator<Item = &'a Rows<'a>>) -> Option<Query> {
    let settled = rows.filter_map(|rows| {
        let (key, is_own) = settled_key(rows)?;
        let (run_id, _) = rows.trace?;
        (!is_own).then(|| vec![key.as_str().into(), Cell::text_of(run_id)])
    });
    let is_in_flight = "there.idempotency_key = new.idempotency_key
                        AND there.trace_id = new.trace_id AND there.settled = 0";
    update(&EFFECTS, "idempotency_key, trace_id", "settled = 1", is_in_flight, settled.collect())
}

/// Events get their positions from a counter, in the order in which they are given.
fn events(rows: Vec<Vec<Cell<'_>>>) -> Option<Query> {
    (!rows.is_empty()).then(|| {
        let names = EVENTS.given();
        let columns = EVENTS.typed(names);
        let arrays = arrays(&columns);
        let sql = format!(
            "WITH counted AS (
               UPDATE event_counter SET last = last + cardinality($1::text[])
               RETURNING last - cardinality($1::text[]) AS before)
             INSERT INTO events ({names}, position)
             SELECT {names}, before + place
             FROM counted, unnest({arrays}) WITH ORDINALITY AS new ({names}, place)"
        );
        Query::new(sql, by_column(&columns, rows))
    })
}

/// After the runs have ended: before that, a trigger refuses.
fn erasures(table: &Table, run_ids: Vec<String>) -> Option<Query> {
    let name = table.name;
    let sql = format!(
        "WITH gone AS (DELETE FROM {name} WHERE tool_run_id = ANY($1::text[]) RETURNING 1)
         SELECT stepgate_expect('{name}', count(*), cardinality($1::text[])) FROM gone"
    );
    (!run_ids.is_empty()).then(|| Query::new(sql, vec![Box::new(run_ids)]))
}

/// Runs that leave the store: what is kept of each, then the end of their rows. A trigger moves the bindings of their keys
/// into `effects`. A run that is not over, or has another number of events, fails the batch.
fn archived_runs(runs: &[&ArchivedRun]) -> Vec<Query> {
    if runs.is_empty() {
        return Vec::new();
    }
    let columns = ARCHIVED_RUNS.typed(GIVEN_OF_ARCHIVED);
    let arrays = arrays(&columns);
    let named: Vec<String> =
        GIVEN_OF_ARCHIVED.split(", ").map(|name| format!("new.{name}")).collect();
    let keep = format!(
        "WITH kept AS (
           INSERT INTO archived_runs ({GIVEN_OF_ARCHIVED}, run_position, chunks)
           SELECT {}, run.position,
                  (SELECT count(*) FROM chunks WHERE trace_id = new.tool_run_id)
           FROM unnest({arrays}) WITH ORDINALITY AS new ({GIVEN_OF_ARCHIVED}, place)
           JOIN tool_runs AS run ON run.tool_run_id = new.tool_run_id
           WHERE NOT (run.{IS_UNFINISHED}) ORDER BY place RETURNING 1)
         SELECT stepgate_expect('archived_runs', count(*), cardinality($1::text[])) FROM kept",
        named.join(", ")
    );
    let mut queries = vec![Query::new(
        keep,
        by_column(&columns, runs.iter().map(|run| archived_row(run)).collect()),
    )];
    let ids = || Box::new(runs.iter().map(|run| run.run_id.to_string()).collect::<Vec<_>>());
    let sum = |count: fn(&ArchivedRun) -> u64| {
        integer(runs.iter().map(|run| count(run)).fold(0, u64::saturating_add))
    };
    let chunks = "DELETE FROM chunks WHERE trace_id = ANY($1::text[])";
    queries.push(Query::new(chunks, vec![ids()]));
    let counted = [
        ("approvals", sum(|run| run.approvals)),
        ("events", sum(|run| run.events)),
        ("tool_runs", sum(|_| 1)),
    ];
    for (table, expected) in counted {
        let sql = format!(
            "WITH gone AS (DELETE FROM {table} WHERE tool_run_id = ANY($1::text[]) RETURNING 1)
             SELECT stepgate_expect('{table}', count(*), $2) FROM gone"
        );
        queries.push(Query::new(sql, vec![ids(), Box::new(expected)]));
    }
    queries
}

/// Only from their known state: another node may write in the same sessions.
fn chains(moved: &[Moved]) -> Option<Query> {
    let rows = moved.iter().map(|Moved { session_id, before, after }| {
        vec![
            Cell::text_of(session_id),
            after.head.number.into(),
            Cell::text_of(after.head.digest),
            after.last_step_index.into(),
            before.head.number.into(),
            Cell::text_of(before.head.digest),
        ]
    });
    update(
        &SESSIONS,
        "session_id, head_number, head_digest, last_step_index, old_number, old_digest",
        "head_number = new.head_number, head_digest = new.head_digest,
         last_step_index = greatest(there.last_step_index, new.last_step_index)",
        "there.session_id = new.session_id AND there.head_number = new.old_number
         AND there.head_digest = new.old_digest",
        rows.collect(),
    )
}

/// What a batch does to one account.
#[derive(Clone, Copy, Default)]
struct Charged {
    /// What its calls take.
    reserved: i64,
    /// What is given back.
    released: i64,
    /// The smallest limit of those that take.
    limit: Option<i64>,
}

impl Charged {
    /// The changes of all plans, in the order in which accounts are locked.
    fn by<'a>(changes: impl Iterator<Item = &'a AccountChange<'a>>) -> BTreeMap<Account, Self> {
        let mut accounts: BTreeMap<Account, Self> = BTreeMap::new();
        for AccountChange { account, change, .. } in changes {
            let charged = accounts.entry(account.clone()).or_default();
            match change {
                BudgetChange::Reserve(charge) => {
                    charged.reserved = charged.reserved.saturating_add(charge.amount.units());
                    let limit = charge.limit.units();
                    charged.limit = Some(charged.limit.map_or(limit, |least| least.min(limit)));
                }
                BudgetChange::Release(charge) => {
                    charged.released = charged.released.saturating_add(charge.amount.units());
                }
            }
        }
        accounts
    }

    /// The most that may be used before the batch.
    fn room(self) -> i64 {
        self.limit.map_or(i64::MAX, |limit| limit.saturating_sub(self.reserved))
    }
}

/// Accounts that may not be there yet. Where another node makes one at the same time, this waits for it.
fn new_accounts(charged: &BTreeMap<Account, Charged>) -> Option<Query> {
    let rows = charged.keys().map(|account| account_row(account, Decimal::ZERO)).collect();
    let mut query = insert(&BUDGET_ACCOUNTS, rows)?;
    query.sql.to_mut().push_str(" ON CONFLICT DO NOTHING");
    Some(query)
}

/// Charges accounts by what they have at this moment, whatever this node has seen of them: the row is locked until the
/// commit, and a batch that would exceed a limit fails. What is given back is not spent in the same batch.
fn changed_accounts(charged: &BTreeMap<Account, Charged>) -> Option<Query> {
    let rows = charged.iter().map(|(account, charged)| {
        vec![
            account.budget.as_str().into(),
            Cell::text_of(account.window),
            account.key.as_str().into(),
            Cell::Number(charged.reserved.saturating_sub(charged.released)),
            Cell::Number(charged.room()),
            Cell::Number(charged.released),
        ]
    });
    update(
        &BUDGET_ACCOUNTS,
        "budget, account_window, account_key, added, room, released",
        "used = there.used + new.added",
        "there.budget = new.budget AND there.account_window = new.account_window
         AND there.account_key = new.account_key
         AND there.used <= new.room AND there.used >= new.released",
        rows.collect(),
    )
}

/// Notifies other nodes, where a caller may wait for a person's decision.
fn tellings(planned: &[Planned<'_>], stamp: Stamp) -> Option<Query> {
    let told = planned.iter().filter_map(|planned| {
        let (run_id, _) = planned.rows.trace?;
        Some(format!("{} {run_id} {}", planned.telling?, stamp.incarnation))
    });
    let rows: Vec<_> = told.collect();
    let sql = format!("SELECT pg_notify({CHANNEL}, telling) FROM unnest($1::text[]) AS telling");
    (!rows.is_empty()).then(|| Query::new(sql, vec![Box::new(rows)]))
}
