use rusqlite::Connection;
use stepgate_core::budget::{Account, AccountKey, BudgetName, Window};
use stepgate_core::ids::{
    ApprovalId, ArtifactId, IdempotencyKey, PrincipalId, ProposalId, RunId, SessionId,
};
use stepgate_core::session::SessionKind;
use uuid::Uuid;

use super::MIGRATIONS;
use crate::select::{self, Engine};

/// The SQL statements of a source file: its string literals that begin like one.
fn statements(source: &'static str) -> impl Iterator<Item = &'static str> {
    let literals = source.split('"').skip(1).step_by(2);
    literals.filter(|literal| {
        ["SELECT", "UPDATE", "DELETE"].iter().any(|verb| literal.starts_with(verb))
    })
}

/// The statements by key that both engines share.
fn shared() -> Vec<String> {
    let id = Uuid::nil();
    let (run_id, session_id, approval_id) =
        (RunId::new(id), SessionId::new(id), ApprovalId::new(id));
    let principal_id = PrincipalId::parse("agent-1").unwrap();
    let key = IdempotencyKey::of(&principal_id, &ProposalId::parse(&id.to_string()).unwrap());
    let account = Account {
        budget: BudgetName::parse("payments").unwrap(),
        key: AccountKey::all(),
        window: Window::Ever,
    };
    vec![
        select::session(session_id).sql,
        select::session_of(&principal_id, SessionKind::Default).sql,
        select::tail(run_id).sql,
        select::chunks(run_id).sql,
        select::checkpoint_numbers(run_id).sql,
        select::binding(Engine::Sqlite, &key).sql,
        select::binding_elsewhere(run_id).sql,
        select::approval(approval_id).sql,
        select::approval_of(run_id).sql,
        select::run(run_id).sql,
        select::sealed(run_id).sql,
        select::events_of(run_id).sql,
        select::events_of_ended(run_id).sql,
        select::erasable(run_id).sql,
        select::event(ArtifactId::new(id)).sql,
        select::account(&account).sql,
    ]
}

#[test]
fn every_statement_by_key_uses_an_index() {
    let connection = Connection::open_in_memory().unwrap();
    for migration in MIGRATIONS {
        connection.execute_batch(migration).unwrap();
    }
    let sources = [include_str!("../read.rs"), include_str!("../write.rs")];
    let mut seen = 0;
    let own = sources.into_iter().flat_map(statements).map(str::to_owned);
    for sql in own.chain(shared()) {
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = vec![rusqlite::types::Value::Null; plan.parameter_count()];
        let mut rows = plan.query(rusqlite::params_from_iter(parameters)).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let detail: String = row.get("detail").unwrap();
            // A heading: its work is in a line of its own.
            let headings = ["SCALAR SUBQUERY", "COMPOUND QUERY", "LEFT-MOST SUBQUERY", "UNION ALL"];
            let is_heading = headings.iter().any(|heading| detail.contains(heading));
            let is_search = detail.starts_with("SEARCH");
            assert!(is_search || is_heading, "{sql}: {detail}");
        }
        seen += 1;
    }
    assert!(seen > 20, "only {seen} statements were found");
}
