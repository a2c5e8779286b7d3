//! The queries that both SQL engines share. They are in PostgreSQL's words; SQLite has `?1` for `$1`.

use stepgate_core::approval::{Approval, ApprovalStatus};
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, Balance, BudgetName, Window};
use stepgate_core::event::{Event, EventType};
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{
    ApprovalId, ArtifactId, IdPrefix, IdempotencyKey, PrincipalId, RunId, SessionId,
};
use stepgate_core::journal::Tail;
use stepgate_core::ports::{
    ApprovalQuery, Cursor, EndedQuery, EndedRun, EventQuery, KeptRun, LinkedEvent, PlacedEvent,
    RunQuery, RunText, SessionQuery, TurnQuery,
};
use stepgate_core::run::{Run, Status};
use stepgate_core::session::{Session, SessionKind};

use crate::Result;
use crate::chunk::{Chunk, checkpoint_numbers_from, chunk_from, tail_from};
use crate::rows::{
    Cells, approval_from, archived_from, balance_from, binding_from, bound_run_from, cursor_from,
    ended_from, event_from, kept_from, run_from, session_from,
};
use crate::search::{
    Finder, IS_INDEXED_TOOL, IS_NOT_OK, IS_UNFINISHED, Order, after_prefix, end_id, first_id,
    position_since, position_until,
};
use crate::tables::{
    APPROVALS, ARCHIVED_RUNS, BINDINGS, BUDGET_ACCOUNTS, CHUNKS, CURSORS, Cell, EFFECTS,
    ERASABLE_ARGS, EVENTS, LOOSE_EVENTS, SEALED_PAYLOADS, SESSIONS, TOOL_RUNS, Table,
};

/// Parses a row.
pub(crate) type Read<T> = fn(&Cells<'_>) -> Result<T>;

/// A query, and how its rows are parsed.
pub(crate) struct Select<T> {
    /// The table that messages about a row name.
    pub(crate) table: Table,
    pub(crate) sql: String,
    pub(crate) values: Vec<Cell<'static>>,
    pub(crate) read: Read<T>,
}

impl<T> Select<T> {
    pub(crate) fn new(
        table: Table,
        sql: impl Into<String>,
        values: Vec<Cell<'static>>,
        read: Read<T>,
    ) -> Self {
        Self { table, sql: sql.into(), values, read }
    }
}

/// The rows with this key in a column; `order` is what follows the condition.
fn by_key<T>(
    table: Table,
    column: &str,
    key: impl ToString,
    order: &str,
    read: Read<T>,
) -> Select<T> {
    let sql = format!("{} WHERE {column} = $1{order}", table.select());
    Select::new(table, sql, vec![Cell::text_of(key)], read)
}

pub(crate) fn session(session_id: SessionId) -> Select<Session> {
    by_key(SESSIONS, "session_id", session_id, "", session_from)
}

/// The first session of this kind that belongs to the principal.
pub(crate) fn session_of(principal_id: &PrincipalId, kind: SessionKind) -> Select<Session> {
    let first = " WHERE principal_id = $1 AND kind = $2 ORDER BY position LIMIT 1";
    let values = vec![Cell::text_of(principal_id.as_str()), kind.as_str().into()];
    Select::new(SESSIONS, SESSIONS.select() + first, values, session_from)
}

/// Every session, in the order of their ids.
pub(crate) fn sessions() -> Select<Session> {
    Select::new(SESSIONS, SESSIONS.select() + " ORDER BY session_id", Vec::new(), session_from)
}

/// The end of a journal.
pub(crate) fn tail(run_id: RunId) -> Select<Tail> {
    let last = " AND sequence_number IS NOT NULL ORDER BY sequence_number DESC LIMIT 1";
    by_key(CHUNKS, "trace_id", run_id, last, tail_from)
}

/// Everything that commits have added to a trace.
pub(crate) fn chunks(run_id: RunId) -> Select<Chunk> {
    by_key(CHUNKS, "trace_id", run_id, " ORDER BY sequence_number", chunk_from)
}

/// The sequence numbers of a trace's checkpoints.
pub(crate) fn checkpoint_numbers(run_id: RunId) -> Select<Vec<u64>> {
    let marked = " AND checkpoints > 0";
    by_key(CHUNKS, "trace_id", run_id, marked, checkpoint_numbers_from)
}

/// What a key is bound to.
pub(crate) fn binding(engine: Engine, key: &IdempotencyKey) -> Select<Binding> {
    let sql = bindings(engine, "idempotency_key = $1", "idempotency_key = $1");
    Select::new(BINDINGS, sql, vec![Cell::text_of(key)], binding_from)
}

/// The bindings of both tables in one statement, so that a key that an archived run takes from one to the other is always
/// in one of them.
pub(crate) fn bindings(engine: Engine, of_runs: &str, of_effects: &str) -> String {
    let asked_digest = engine.hex("asked_digest");
    format!(
        "SELECT idempotency_key, tool_server, bound_tool AS tool_name,
                {asked_digest} AS asked_digest, tool_run_id AS trace_id, settled
         FROM tool_runs WHERE {of_runs}
         UNION ALL
         SELECT idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled
         FROM effects WHERE {of_effects}"
    )
}

/// The binding of a trace's key, where it is not in the run's own row.
pub(crate) fn binding_elsewhere(run_id: RunId) -> Select<Binding> {
    by_key(EFFECTS, "trace_id", run_id, "", binding_from)
}

pub(crate) fn approval(approval_id: ApprovalId) -> Select<Approval> {
    by_key(APPROVALS, "approval_id", approval_id, "", approval_from)
}

/// The approval that a run has asked for.
pub(crate) fn approval_of(run_id: RunId) -> Select<Approval> {
    by_key(APPROVALS, "tool_run_id", run_id, "", approval_from)
}

pub(crate) fn run(run_id: RunId) -> Select<Run> {
    by_key(TOOL_RUNS, "tool_run_id", run_id, "", run_from)
}

/// A run, with the binding of its key where its own row has it.
pub(crate) fn bound_run(run_id: RunId) -> Select<(Run, Option<Binding>)> {
    by_key(TOOL_RUNS, "tool_run_id", run_id, "", bound_run_from)
}

/// The original payload, where it is stored apart.
pub(crate) fn sealed(run_id: RunId) -> Select<Vec<u8>> {
    by_key(SEALED_PAYLOADS, "tool_run_id", run_id, "", |cells| Ok(cells.bytes("payload")?.into()))
}

/// How many events a run has; none where it is not over.
pub(crate) fn events_of_ended(run_id: RunId) -> Select<u64> {
    let sql = format!(
        "SELECT (SELECT count(*) FROM events WHERE events.tool_run_id = $1) AS number
         FROM tool_runs WHERE tool_run_id = $1 AND NOT ({IS_UNFINISHED})"
    );
    Select::new(TOOL_RUNS, sql, vec![Cell::text_of(run_id)], |cells| cells.number("number"))
}

/// The erasable arguments of a run, as they are stored.
pub(crate) fn erasable(run_id: RunId) -> Select<StoredErasable> {
    by_key(ERASABLE_ARGS, "tool_run_id", run_id, "", stored_erasable_from)
}

/// Those of the runs after this one.
pub(crate) fn erasable_page(after: Option<RunId>, limit: usize) -> Select<StoredErasable> {
    let mut conditions = Conditions::default();
    conditions.add_some("tool_run_id > #", after);
    conditions.list((ERASABLE_ARGS, ""), "tool_run_id", limit, stored_erasable_from)
}

/// A row of `erasable_args`: the run, its session, and the stored bytes.
pub(crate) type StoredErasable = (RunId, SessionId, Vec<u8>);

fn stored_erasable_from(cells: &Cells<'_>) -> Result<StoredErasable> {
    Ok((cells.parsed("tool_run_id")?, cells.parsed("session_id")?, cells.bytes("args")?.to_vec()))
}

pub(crate) fn events_of(run_id: RunId) -> Select<LinkedEvent> {
    by_key(EVENTS, "tool_run_id", run_id, " ORDER BY position", event_from)
}

pub(crate) fn event(event_id: ArtifactId) -> Select<Event> {
    by_key(LOOSE_EVENTS, "event_id", event_id, "", |cells| Ok(event_from(cells)?.event))
}

pub(crate) fn cursors() -> Select<Cursor> {
    Select::new(CURSORS, CURSORS.select() + " ORDER BY name", Vec::new(), cursor_from)
}

/// Where the engines need different words for the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    /// Makes SQLite search this index.
    pub(crate) fn by_index(self, index: &str) -> String {
        match self {
            Self::Sqlite => format!(" INDEXED BY {index}"),
            Self::Postgres => String::new(),
        }
    }

    /// A column that is compared without an index: the unary `+` keeps SQLite from using one.
    pub(crate) fn unindexed(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("+{column}"),
            Self::Postgres => column.to_owned(),
        }
    }

    /// Bytes as lower-case hex digits.
    fn hex(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("lower(hex({column}))"),
            Self::Postgres => format!("encode({column}, 'hex')"),
        }
    }

    /// Whether the name of a tool has a part.
    fn tool_has_part(self) -> &'static str {
        match self {
            Self::Sqlite => "instr(lower(tool_name), #) > 0",
            Self::Postgres => "strpos(lower(tool_name), #) > 0",
        }
    }
}

/// Conditions with their values. `#` in a condition stands for its value.
#[derive(Default)]
pub(crate) struct Conditions {
    pub(crate) text: String,
    pub(crate) values: Vec<Cell<'static>>,
}

impl Conditions {
    /// A condition without a value.
    pub(crate) fn add(&mut self, text: &str) {
        self.text.push_str(" AND ");
        self.text.push_str(text);
    }

    pub(crate) fn add_text(&mut self, text: &str, value: impl ToString) {
        self.add_cell(text, Cell::text_of(value));
    }

    /// A condition that the query has or has not.
    pub(crate) fn add_some(&mut self, text: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add_text(text, value);
        }
    }

    fn add_cell(&mut self, text: &str, value: Cell<'static>) {
        let mark = self.mark(value);
        self.add(&text.replace('#', &mark));
    }

    /// The mark of a value that the query has outside of its conditions.
    pub(crate) fn mark(&mut self, value: Cell<'static>) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    /// Only rows whose id begins with the prefix, where there is one.
    fn add_prefix(&mut self, column: &str, prefix: Option<&IdPrefix>) {
        self.add_some(&format!("{column} >= #"), prefix.map(IdPrefix::as_str));
        self.add_some(&format!("{column} < #"), prefix.map(after_prefix));
    }

    /// The first rows of a table that fulfil them; `index` is what follows the table's name.
    pub(crate) fn list<T>(
        self,
        (table, index): (Table, &str),
        order: &str,
        limit: usize,
        read: Read<T>,
    ) -> Select<T> {
        self.select(table, limit, read, |conditions| {
            format!("{}{index} WHERE true{conditions} ORDER BY {order} LIMIT #", table.select())
        })
    }

    /// Adds the limit of rows and makes the query: `#` stands for that limit.
    pub(crate) fn select<T>(
        mut self,
        table: Table,
        limit: usize,
        read: Read<T>,
        sql: impl Fn(&str) -> String,
    ) -> Select<T> {
        let limit = self.mark(u64::try_from(limit).unwrap_or(u64::MAX).into());
        Select::new(table, sql(&self.text).replace('#', &limit), self.values, read)
    }
}

fn principal(principal_id: &Option<PrincipalId>) -> Option<&str> {
    principal_id.as_ref().map(PrincipalId::as_str)
}

/// The sessions of a principal, by their index.
pub(crate) const IS_IN_SESSION_OF: &str =
    "session_id IN (SELECT session_id FROM sessions WHERE principal_id = #)";

/// The conditions on the row of a run itself.
pub(crate) fn run_conditions(engine: Engine, query: &RunQuery, finder: Finder) -> Conditions {
    let mut conditions = Conditions::default();
    let order = Order::of("tool_runs", "tool_run_id", finder == Finder::Id);
    conditions.add_some(&order.beyond('<'), query.before);
    conditions.add_some(&order.beyond('>'), query.after);
    conditions.add_some("tool_runs.session_id = #", query.session_id);
    if finder != Finder::Principal {
        conditions.add_some("tool_runs.principal_id = #", principal(&query.principal_id));
    }
    conditions.add_some("status = #", query.status.map(Status::as_str));
    match finder {
        Finder::Unfinished => conditions.add(IS_UNFINISHED),
        Finder::NotOk => conditions.add(IS_NOT_OK),
        Finder::Tool => conditions.add(IS_INDEXED_TOOL),
        Finder::Session | Finder::Id | Finder::Principal | Finder::All => {}
    }
    let column = |column: &str, index: Finder| match finder == index {
        true => column.to_owned(),
        false => engine.unindexed(column),
    };
    let is_named = format!("{} = #", column("tool_name", Finder::Tool));
    conditions.add_some(&is_named, query.tool_name.as_ref());
    let (since, until) = (query.since, query.until);
    conditions.add_some(&format!("position >= {}", position_since("#")), since.map(first_id));
    conditions.add_some("ts >= #", since);
    conditions.add_some(&format!("position <= {}", position_until("#")), until.map(end_id));
    conditions.add_some("ts < #", until);
    match &query.text {
        Some(RunText::IdPrefix(prefix)) => {
            conditions.add_prefix(&column("tool_run_id", Finder::Id), Some(prefix));
        }
        Some(RunText::ToolPart(part)) if finder != Finder::Tool => {
            conditions.add_text(engine.tool_has_part(), part);
        }
        Some(RunText::ToolPart(_)) | None => {}
    }
    conditions
}

/// The conditions that an index of tools, or of runs that ended badly, is searched with.
pub(crate) fn index_conditions(query: &RunQuery, finder: Finder) -> Conditions {
    let mut conditions = Conditions::default();
    match finder {
        Finder::Tool => {
            if let Some(tool_name) = &query.tool_name {
                conditions.add_text("tool_name = #", tool_name);
                conditions.add(IS_INDEXED_TOOL);
            }
        }
        Finder::NotOk => {
            conditions.add_some("status = #", query.status.map(Status::as_str));
            conditions.add(IS_NOT_OK);
        }
        Finder::Session | Finder::Unfinished | Finder::Id | Finder::Principal | Finder::All => {}
    }
    conditions
}

/// The ids of runs, newest first.
pub(crate) fn run_ids(before: Option<RunId>, limit: usize) -> Select<RunId> {
    let mut conditions = Conditions::default();
    let order = Order::of("tool_runs", "tool_run_id", false);
    conditions.add_some(&order.beyond('<'), before);
    let read: Read<RunId> = |cells| cells.parsed("tool_run_id");
    conditions.select(TOOL_RUNS, limit, read, |conditions| {
        format!(
            "SELECT tool_run_id FROM tool_runs WHERE true{conditions} ORDER BY position DESC LIMIT #"
        )
    })
}

/// Runs that are over, in the order of their ids, without those that have the last row of a table.
pub(crate) fn ended(query: &EndedQuery) -> Select<EndedRun> {
    let mut conditions = Conditions::default();
    conditions.add_some("tool_run_id > #", query.after);
    conditions.add_text("tool_run_id < #", end_id(query.until));
    conditions.select(TOOL_RUNS, query.limit, ended_from, |conditions| {
        format!(
            "SELECT tool_run_id, ts, tool_name, status,
                    (SELECT coalesce(max(position), 0) FROM events
                     WHERE events.tool_run_id = tool_runs.tool_run_id) AS last_event
             FROM tool_runs
             WHERE NOT ({IS_UNFINISHED}){conditions}
               AND position < (SELECT max(position) FROM tool_runs)
               AND tool_run_id <> coalesce((SELECT trace_id FROM chunks
                                            ORDER BY position DESC LIMIT 1), '')
               AND tool_run_id <> coalesce((SELECT approvals.tool_run_id FROM approvals
                                            ORDER BY position DESC LIMIT 1), '')
             ORDER BY tool_run_id LIMIT #"
        )
    })
}

/// What is kept of an archived run.
pub(crate) fn archived_run(run_id: RunId) -> Select<ArchivedRun> {
    by_key(ARCHIVED_RUNS, "tool_run_id", run_id, "", archived_from)
}

/// What is kept of archived runs, after a position, with the bindings of their keys.
pub(crate) fn archived_page(after: u64, limit: usize) -> Select<KeptRun> {
    let mut conditions = Conditions::default();
    conditions.add_cell("kept.position > #", after.into());
    conditions.select(ARCHIVED_RUNS, limit, kept_from, |conditions| {
        format!(
            "SELECT kept.*, idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled
             FROM archived_runs AS kept LEFT JOIN effects ON trace_id = kept.tool_run_id
             WHERE true{conditions} ORDER BY kept.position LIMIT #"
        )
    })
}

/// Sessions, newest first.
pub(crate) fn session_page(engine: Engine, query: &SessionQuery) -> Select<Session> {
    let mut conditions = Conditions::default();
    let order = Order::of("sessions", "session_id", query.id_prefix.is_some());
    conditions.add_some(&order.beyond('<'), query.before);
    // Where a prefix is asked for, the index of ids finds the rows.
    let (principal_id, index) = match (&query.id_prefix, &query.principal_id) {
        (Some(_), _) => (engine.unindexed("principal_id"), String::new()),
        (None, Some(_)) => ("principal_id".to_owned(), engine.by_index("sessions_of_principal")),
        (None, None) => (String::new(), String::new()),
    };
    conditions.add_prefix("session_id", query.id_prefix.as_ref());
    conditions.add_some(&format!("{principal_id} = #"), principal(&query.principal_id));
    let newest_first = format!("{} DESC", order.column);
    conditions.list((SESSIONS, &index), &newest_first, query.limit, session_from)
}

/// The conditions on the events that opened turns, and their order.
pub(crate) fn turn_conditions(query: &TurnQuery) -> (Conditions, Order) {
    let mut conditions = Conditions::default();
    // Literals, not parameters: only then can the partial indexes be used.
    conditions.add("event_type = 'turn_opened' AND tool_run_id IS NULL");
    let order = Order::of("events", "event_id", query.id_prefix.is_some());
    conditions.add_some(&order.beyond('<'), query.before);
    conditions.add_prefix("event_id", query.id_prefix.as_ref());
    conditions.add_some("session_id = #", query.session_id);
    (conditions, order)
}

/// Approvals, in the order that the query asks for.
pub(crate) fn approvals(query: &ApprovalQuery) -> Select<Approval> {
    let mut conditions = Conditions::default();
    let order = Order::of("approvals", "approval_id", query.id_prefix.is_some());
    conditions.add_some(&order.beyond('<'), query.before);
    conditions.add_some(&order.beyond('>'), query.after);
    conditions.add_prefix("approval_id", query.id_prefix.as_ref());
    match query.status {
        // A literal, not a parameter: only then can the partial index be used.
        Some(ApprovalStatus::Pending) => conditions.add("status = 'pending'"),
        Some(
            status @ (ApprovalStatus::Approved | ApprovalStatus::Denied | ApprovalStatus::Expired),
        ) => conditions.add_text("status = #", status.as_str()),
        None => {}
    }
    conditions.add_some(IS_APPROVAL_OF, principal(&query.principal_id));
    let way = if query.oldest_first { "ASC" } else { "DESC" };
    let order = format!("{} {way}", order.column);
    conditions.list((APPROVALS, ""), &order, query.limit, approval_from)
}

/// How many approvals are pending: the size of their index, or a walk over it for one principal.
pub(crate) fn open_approvals(principal_id: Option<&PrincipalId>) -> Select<u64> {
    let mut conditions = Conditions::default();
    conditions.add_some(IS_APPROVAL_OF, principal_id.map(PrincipalId::as_str));
    let Conditions { text, values } = conditions;
    let sql = format!("SELECT count(*) AS open FROM approvals WHERE status = 'pending'{text}");
    Select::new(APPROVALS, sql, values, |cells| cells.number("open"))
}

/// An approval that a run of this principal waits for.
const IS_APPROVAL_OF: &str = "EXISTS (SELECT 1 FROM tool_runs JOIN sessions USING (session_id)
    WHERE tool_run_id = approvals.tool_run_id AND sessions.principal_id = #)";

/// Events, in the order that the query asks for. It reads from a position on, so following costs only what is
/// new. Types and principals are filtered row by row, because an index of them would be written at every step.
/// Only the rare differences between policies have an index.
pub(crate) fn events(engine: Engine, query: &EventQuery) -> Select<PlacedEvent> {
    let mut conditions = Conditions::default();
    conditions.add_cell("position > #", query.after.into());
    if let Some(before) = query.back_from {
        conditions.add_cell("position < #", before.into());
    }
    let mut index = String::new();
    match query.event_types.as_slice() {
        [] => {}
        // A literal, not a parameter: only then can the partial index be used.
        [EventType::PolicyDiffers] => {
            conditions.add("event_type = 'policy_differs'");
            index = engine.by_index("events_differing");
        }
        types => {
            let types = types.iter();
            let marks: Vec<_> = types.map(|kind| conditions.mark(kind.as_str().into())).collect();
            conditions.add(&format!("event_type IN ({})", marks.join(", ")));
        }
    }
    conditions.add_some(IS_IN_SESSION_OF, principal(&query.principal_id));
    if query.loose_only {
        conditions.add("tool_run_id IS NULL");
        index = engine.by_index("events_loose");
    }
    let read: Read<PlacedEvent> = |cells| {
        let LinkedEvent { position, event, link: _ } = event_from(cells)?;
        Ok(PlacedEvent { position, event })
    };
    let order = if query.back_from.is_some() { "position DESC" } else { "position" };
    conditions.list((LOOSE_EVENTS, &index), order, query.limit, read)
}

/// An account of a budget.
pub(crate) fn account(account: &Account) -> Select<Balance> {
    let one = " WHERE budget = $1 AND account_window = $2 AND account_key = $3";
    let values = vec![
        Cell::text_of(&account.budget),
        Cell::text_of(account.window),
        Cell::text_of(&account.key),
    ];
    Select::new(BUDGET_ACCOUNTS, BUDGET_ACCOUNTS.select() + one, values, balance_from)
}

/// The accounts of a budget in a window, the fullest first.
pub(crate) fn accounts(budget: &BudgetName, window: Window, limit: usize) -> Select<Balance> {
    let fullest = " WHERE budget = $1 AND account_window = $2
                    ORDER BY used DESC, account_key LIMIT $3";
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    let values = vec![Cell::text_of(budget), Cell::text_of(window), limit.into()];
    Select::new(BUDGET_ACCOUNTS, BUDGET_ACCOUNTS.select() + fullest, values, balance_from)
}

/// Every account of every budget.
pub(crate) fn balances() -> Select<Balance> {
    Select::new(BUDGET_ACCOUNTS, BUDGET_ACCOUNTS.select(), Vec::new(), balance_from)
}

/// The last position of a table.
pub(crate) fn last_position(table: Table) -> Select<u64> {
    let sql = format!("SELECT coalesce(max(position), 0) AS number FROM {}", table.name);
    Select::new(table, sql, Vec::new(), |cells| cells.number("number"))
}

/// The last position of an event that belongs to no run.
pub(crate) fn last_loose_position(engine: Engine) -> Select<u64> {
    let index = engine.by_index("events_loose");
    let sql = format!(
        "SELECT coalesce(max(position), 0) AS number FROM events{index} WHERE tool_run_id IS NULL"
    );
    Select::new(LOOSE_EVENTS, sql, Vec::new(), |cells| cells.number("number"))
}

/// Events that belong to no run, after a position, oldest first.
pub(crate) fn loose_page(engine: Engine, after: u64, limit: usize) -> Select<LinkedEvent> {
    let mut conditions = Conditions::default();
    conditions.add("tool_run_id IS NULL");
    conditions.add_cell("position > #", after.into());
    let index = engine.by_index("events_loose");
    conditions.list((LOOSE_EVENTS, &index), "position", limit, event_from)
}
