//! What a node asks the store: each read is a call over its network. What no simulated node does is refused.

use async_trait::async_trait;
use stepgate_core::approval::Approval;
use stepgate_core::archive::ArchivedRun;
use stepgate_core::budget::{Account, Balance, BudgetName, Window};
use stepgate_core::decimal::Decimal;
use stepgate_core::event::Event;
use stepgate_core::idempotency::Binding;
use stepgate_core::ids::{ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, RunId, SessionId};
use stepgate_core::journal::ExecutionState;
use stepgate_core::ports::{
    ApprovalQuery, Approvals, ArchiveCommit, Archives, Audited, Audits, Budgets, Counts, Cursor,
    Cursors, Dossier, EndedQuery, EndedRun, ErasableArgs, Erasables, EraseCommit, EventQuery,
    Events, KeptRun, LinkedEvent, Moment, PlacedEvent, Recollection, RunQuery, Runs, SessionQuery,
    Sessions, StoreError, TurnQuery, Unfinished,
};
use stepgate_core::run::Run;
use stepgate_core::session::{Session, SessionKind};

use super::{NodeStore, READ_BACK};
use crate::database::at_once;

#[async_trait]
impl Runs for NodeStore {
    async fn binding(&self, key: &IdempotencyKey) -> Result<Option<Binding>, StoreError> {
        self.read("binding", |rows| at_once(rows.binding(key))).await
    }

    async fn load_state(&self, trace_id: RunId) -> Result<Option<ExecutionState>, StoreError> {
        self.read(READ_BACK, |rows| at_once(rows.load_state(trace_id))).await
    }

    async fn dossier(&self, run_id: RunId) -> Result<Option<Dossier>, StoreError> {
        self.read("dossier", |rows| at_once(rows.dossier(run_id))).await
    }

    async fn recollections(&self, run_ids: &[RunId]) -> Result<Vec<Recollection>, StoreError> {
        self.read("recall", |rows| at_once(rows.recollections(run_ids))).await
    }

    async fn runs(&self, query: RunQuery) -> Result<Vec<Run>, StoreError> {
        self.read("runs", |rows| at_once(rows.runs(query))).await
    }

    async fn run_ids(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.read("run_ids", |rows| at_once(rows.run_ids(before, limit))).await
    }

    async fn unfinished(&self) -> Result<Vec<Unfinished>, StoreError> {
        let incarnation = self.incarnation();
        self.ask("unfinished", move |tables, now| tables.unfinished(incarnation, now)).await
    }
}

#[async_trait]
impl Sessions for NodeStore {
    async fn session(&self, session_id: SessionId) -> Result<Option<Session>, StoreError> {
        self.read("session", |rows| at_once(rows.session(session_id))).await
    }

    async fn session_of(
        &self,
        principal_id: &PrincipalId,
        kind: SessionKind,
    ) -> Result<Option<Session>, StoreError> {
        self.read("session_of", |rows| at_once(rows.session_of(principal_id, kind))).await
    }

    async fn sessions(&self) -> Result<Vec<Session>, StoreError> {
        self.read("sessions", |rows| at_once(rows.sessions())).await
    }

    async fn session_page(&self, query: SessionQuery) -> Result<Vec<Session>, StoreError> {
        self.read("sessions", |rows| at_once(rows.session_page(query))).await
    }

    async fn next_step_index(&self, session_id: SessionId) -> Result<u64, StoreError> {
        self.read("step_index", |rows| at_once(rows.next_step_index(session_id))).await
    }
}

#[async_trait]
impl Approvals for NodeStore {
    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        self.read("approval", |rows| at_once(rows.approval(approval_id))).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<Approval>, StoreError> {
        self.read("approvals", |rows| at_once(rows.approvals(query))).await
    }

    async fn open_approvals(&self, principal_id: Option<&PrincipalId>) -> Result<u64, StoreError> {
        self.read("open_approvals", |rows| at_once(rows.open_approvals(principal_id))).await
    }
}

#[async_trait]
impl Budgets for NodeStore {
    async fn used(&self, accounts: &[Account]) -> Result<Vec<Decimal>, StoreError> {
        self.read("used", |rows| at_once(rows.used(accounts))).await
    }

    async fn accounts(
        &self,
        budget: &BudgetName,
        window: Window,
        limit: usize,
    ) -> Result<Vec<Balance>, StoreError> {
        self.read("accounts", |rows| at_once(rows.accounts(budget, window, limit))).await
    }

    async fn balances(&self) -> Result<Vec<Balance>, StoreError> {
        self.read("balances", |rows| at_once(rows.balances())).await
    }
}

#[async_trait]
impl Events for NodeStore {
    async fn events_by_id(&self, event_ids: &[ArtifactId]) -> Result<Vec<Event>, StoreError> {
        self.read("event", |rows| at_once(rows.events_by_id(event_ids))).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<PlacedEvent>, StoreError> {
        self.read("events", |rows| at_once(rows.events(query))).await
    }

    async fn opened_turns(&self, query: TurnQuery) -> Result<Vec<Event>, StoreError> {
        self.read("opened_turns", |rows| at_once(rows.opened_turns(query))).await
    }

    async fn last_position(&self) -> Result<u64, StoreError> {
        self.read("last_position", |rows| at_once(rows.last_position())).await
    }

    async fn last_loose_position(&self) -> Result<u64, StoreError> {
        self.read("last_loose_position", |rows| at_once(rows.last_loose_position())).await
    }

    async fn committed_loose_position(&self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    async fn loose_page(&self, after: u64, limit: usize) -> Result<Vec<LinkedEvent>, StoreError> {
        self.read("loose_events", |rows| at_once(rows.loose_page(after, limit))).await
    }
}

/// No simulated node reads by a cursor.
#[async_trait]
impl Cursors for NodeStore {
    async fn take_cursor(&self, _: &str, _: u64) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    async fn move_cursor(&self, _: &Cursor) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn cursors(&self) -> Result<Vec<Cursor>, StoreError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Audits for NodeStore {
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.read("counts", |rows| at_once(rows.counts())).await
    }

    async fn moment(&self) -> Result<Moment, StoreError> {
        Ok(Moment::of_all(self).await)
    }

    async fn audit(
        &self,
        last: &Counts,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<Audited>, StoreError> {
        self.read("audit", |rows| at_once(rows.audit(last, before, limit))).await
    }

    async fn shared_keys(&self, limit: usize) -> Result<Vec<IdempotencyKey>, StoreError> {
        self.read("shared_keys", |rows| at_once(rows.shared_keys(limit))).await
    }

    async fn size_bytes(&self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    async fn damage(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

/// No operator of a simulation erases anything.
#[async_trait]
impl Erasables for NodeStore {
    async fn erasable(&self, run_id: RunId) -> Result<Option<ErasableArgs>, StoreError> {
        self.read("erasable", |rows| at_once(rows.erasable(run_id))).await
    }

    async fn erasable_page(
        &self,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<ErasableArgs>, StoreError> {
        self.read("erasable_page", |rows| at_once(rows.erasable_page(after, limit))).await
    }

    async fn erase(&self, _: EraseCommit) -> Result<(), StoreError> {
        Err(StoreError::Unavailable("nothing is erased in a simulation".into()))
    }
}

/// No run of a simulation leaves the store.
#[async_trait]
impl Archives for NodeStore {
    async fn ended(&self, query: EndedQuery) -> Result<Vec<EndedRun>, StoreError> {
        self.read("ended", |rows| at_once(rows.ended(query))).await
    }

    async fn archive(&self, _: ArchiveCommit) -> Result<(), StoreError> {
        Err(StoreError::Unavailable("no run of a simulation is archived".into()))
    }

    async fn archived_run(&self, run_id: RunId) -> Result<Option<ArchivedRun>, StoreError> {
        self.read("archived_run", |rows| at_once(rows.archived_run(run_id))).await
    }

    async fn archived_page(&self, after: u64, limit: usize) -> Result<Vec<KeptRun>, StoreError> {
        self.read("archived_page", |rows| at_once(rows.archived_page(after, limit))).await
    }
}
