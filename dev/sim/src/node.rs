//! A node's life: it registers, recovers, serves, keeps time, dies and comes back. It follows the service of
//! the real program (`service/recovery.rs`, `service/expiry.rs`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stepgate_core::approval::ApprovalStatus;
use stepgate_core::approvers::Groups;
use stepgate_core::consent_cache::Consents;
use stepgate_core::fact_sources::FactSources;
use stepgate_core::gate::{Doubts, Extensions, Fault, Gate, Parked};
use stepgate_core::limits::Limits;
use stepgate_core::ports::{ApprovalQuery, StoreError, World};
use stepgate_core::recover::{self, Scope};
use stepgate_core::step::{self, Person};
use stepgate_core::time::Timestamp;
use uuid::Uuid;

use crate::database::Database;
use crate::environment::Environment;
use crate::files::{Files, IN_DOUBT, NodeFiles};
use crate::ledger::Ledger;
use crate::node_store::NodeStore;
use crate::policy::{NodePolicy, Policies};
use crate::processes::{Process, Processes, Seat};
use crate::schedule::Instant;
use crate::servers::{NodeServers, Servers};
use crate::trace::{number_of, short};
use crate::weather::{APPROVAL_TTL_MS, MS, SECOND};

/// The first pause after a recovery that left something, and the longest.
const PAUSE_MIN: Instant = SECOND;
const PAUSE_MAX: Instant = 60 * SECOND;
/// How often to look whether another node is gone.
const STRAY_LOOK: Instant = SECOND;
/// How often open approvals are looked at.
const EXPIRY_LOOK: Instant = 5 * SECOND;

/// What all nodes share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) env: Arc<Environment>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) database: Arc<Database>,
    pub(crate) files: Arc<Files>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) policies: Arc<Policies>,
}

/// The world as one node sees it: its clock is not quite the others'.
struct NodeWorld {
    env: Arc<Environment>,
    skew_ms: i64,
}

#[async_trait]
impl World for NodeWorld {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.env.wall_ms() + self.skew_ms)
    }

    fn fresh_uuid(&self) -> Uuid {
        self.env.fresh_uuid()
    }

    async fn pause(&self, duration: Duration) {
        let time = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.env.sleep(time).await;
    }
}

/// One process of a node, from its start on.
pub(crate) async fn live(shared: Shared, processes: Arc<Processes>, seat: Seat) {
    let Shared { env, ledger, database, files, servers, policies } = shared;
    let store = loop {
        let registering = NodeStore::register(
            Arc::clone(&env),
            Arc::clone(&database),
            Arc::clone(&processes),
            seat,
        );
        match registering.await {
            Ok(store) => break store,
            Err(_) => env.sleep(200 * MS).await,
        }
    };
    let renewing = Arc::clone(&store);
    env.spawn(seat.group, async move { renewing.keep_renewing().await });
    let gate = Gate {
        store,
        executor: Arc::new(NodeFiles { files, processes: Arc::clone(&processes), seat }),
        tools: Arc::new(NodeServers { servers, processes: Arc::clone(&processes), seat }),
        policy: Arc::new(NodePolicy { policies, node: seat.node }),
        world: Arc::new(NodeWorld { env: Arc::clone(&env), skew_ms: seat.skew_ms }),
        limits: Limits {
            approval_ttl_ms: APPROVAL_TTL_MS,
            record_retry_pause: Duration::from_millis(200),
            ..Limits::default()
        },
        extensions: Extensions::default(),
        parked: Parked::default(),
        doubts: Doubts::default(),
        groups: Groups::default(),
        consents: Consents::default(),
        facts: FactSources::default(),
    };
    let process = Process::new(Arc::clone(&processes), seat, gate);
    let recovery = Recovery { env: Arc::clone(&env), ledger, process: Arc::clone(&process) };
    // What belongs to core actions is recovered before the first request.
    recovery.recover(&[Scope::Core]).await;
    processes.serve(&process);
    env.spawn(seat.group, keep_time(Arc::clone(&env), process));
    recovery.keep_recovering().await;
}

/// Recovery in the background.
struct Recovery {
    env: Arc<Environment>,
    ledger: Arc<Ledger>,
    process: Arc<Process>,
}

impl Recovery {
    async fn keep_recovering(self) {
        let Self { env, process, .. } = &self;
        let mut scopes: &[Scope] = &[Scope::Servers];
        let mut pause = PAUSE_MIN;
        loop {
            let has_more = self.recover(scopes).await;
            scopes = &[Scope::Core, Scope::Servers];
            let rest = if has_more { pause } else { PAUSE_MAX };
            let deadline = env.now() + rest;
            loop {
                let heard = process.left.times();
                let look = deadline.min(env.now() + STRAY_LOOK);
                if env.schedule.within(look, process.left.rung_since(heard)).await.is_some() {
                    // The task that left it may still hold its lock.
                    env.sleep(PAUSE_MIN).await;
                    pause = PAUSE_MIN;
                    break;
                }
                if env.now() >= deadline {
                    pause = (pause * 2).min(PAUSE_MAX);
                    break;
                }
                if process.gate.store.has_stray_runs().await.unwrap_or(false) {
                    pause = PAUSE_MIN;
                    break;
                }
            }
        }
    }

    /// Whether anything is left that the next try may end.
    async fn recover(&self, scopes: &[Scope]) -> bool {
        let Self { env, ledger, process } = self;
        let mut has_more = false;
        for scope in scopes {
            match recover::recover(&process.gate, scope.clone()).await {
                Ok(report) => {
                    for (run_id, why) in &report.stuck {
                        env.note("stuck", process.seat.node, number_of(run_id.as_uuid()), || {
                            format!("run {}: {why}", short(*run_id))
                        });
                    }
                    has_more |= !report.in_doubt.is_empty() || !report.stuck.is_empty();
                    for (run_id, why) in &report.quarantined {
                        env.violated(format!("run {run_id} is quarantined: {why}"));
                    }
                    let in_sandbox = report.stuck.iter().filter(|(_, why)| why.contains(IN_DOUBT));
                    let in_sandbox: Vec<_> = in_sandbox.map(|(run_id, _)| *run_id).collect();
                    ledger.doubts(&report.in_doubt);
                    ledger.doubts(&in_sandbox);
                }
                Err(fault) => {
                    env.note("recovery", process.seat.node, 0, || format!("stopped: {fault}"));
                    has_more = true;
                    if matches!(fault, Fault::Store(StoreError::Broken(_))) {
                        process.heed(Some(&fault));
                        std::future::pending::<()>().await;
                    }
                }
            }
        }
        has_more
    }
}

/// Expires approvals that no person decided in time.
async fn keep_time(env: Arc<Environment>, process: Arc<Process>) {
    loop {
        let rest = env.between(EXPIRY_LOOK / 2, EXPIRY_LOOK);
        env.sleep(rest).await;
        let query = ApprovalQuery {
            status: Some(ApprovalStatus::Pending),
            limit: 64,
            ..ApprovalQuery::default()
        };
        let Ok(open) = process.gate.store.approvals(query).await else { continue };
        for approval in open {
            if approval.has_expired(process.gate.world.now()) {
                let decided =
                    step::resume(&process.gate, approval.approval_id, Person::Nobody).await;
                process.heed_refusal(decided.as_ref().err());
            }
        }
    }
}
