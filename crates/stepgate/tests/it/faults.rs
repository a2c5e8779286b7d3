//! Real faults under load: nodes, database, network and disks are broken, again and again, and afterwards
//! everything that was acknowledged must be there, done as often as the record says.
//!
//! The page `docs/faults.md` is made here. All faults but Patroni's are one test, which makes them one after the other:
//! each has a database and several gateways, and two of them at once would only measure each other.

mod balancer;
mod check;
mod connections;
mod database;
mod disks;
mod load;
mod nodes;
mod patroni;
mod proxy;
mod report;
pub(crate) mod shim;
mod stage;

use std::time::Duration;

use check::{Found, compare, settle, verify};
use load::{Harvest, Load};
pub(crate) use report::PAGE;
use report::Row;
use stage::Stage;

/// Everything that is broken, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    NodeKilled,
    NodePaused,
    RollingRestart,
    DatabaseKilled,
    DatabaseRestarted,
    Failover,
    PatroniKilled,
    PatroniPaused,
    PatroniCutOff,
    DatabaseFull,
    ConnectionsCut,
    ConnectionsSlow,
    NodeCutOff,
    SqliteFull,
    SqliteFsync,
}

impl Fault {
    pub(crate) const ALL: [Self; 15] = [
        Self::NodeKilled,
        Self::NodePaused,
        Self::RollingRestart,
        Self::DatabaseKilled,
        Self::DatabaseRestarted,
        Self::Failover,
        Self::PatroniKilled,
        Self::PatroniPaused,
        Self::PatroniCutOff,
        Self::DatabaseFull,
        Self::ConnectionsCut,
        Self::ConnectionsSlow,
        Self::NodeCutOff,
        Self::SqliteFull,
        Self::SqliteFsync,
    ];

    /// As the page calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NodeKilled => "kill -9 of a node",
            Self::NodePaused => "a node stopped for longer than its lease",
            Self::RollingRestart => "rolling restart of all nodes",
            Self::DatabaseKilled => "kill -9 of PostgreSQL",
            Self::DatabaseRestarted => "fast restart of PostgreSQL",
            Self::Failover => "failover to a streaming replica",
            Self::PatroniKilled => "kill -9 of Patroni's primary",
            Self::PatroniPaused => "Patroni's primary stopped until another one writes",
            Self::PatroniCutOff => "Patroni's primary cut off until another one writes",
            Self::DatabaseFull => "PostgreSQL's disk full",
            Self::ConnectionsCut => "connections cut, answers lost",
            Self::ConnectionsSlow => "connections delayed by seconds",
            Self::NodeCutOff => "a node cut off from PostgreSQL for longer than its lease",
            Self::SqliteFull => "SQLite's disk full",
            Self::SqliteFsync => "failing fsync under SQLite",
        }
    }

    /// How many rounds it has; in some it happens several times. Patroni takes its time.
    fn rounds(self) -> usize {
        let said = std::env::var("STEPGATE_FAULTS_ROUNDS").ok();
        let rounds: usize = said.map_or(2, |text| text.parse().unwrap());
        if self.is_patroni() { rounds.div_ceil(2) } else { rounds }
    }

    fn is_patroni(self) -> bool {
        matches!(self, Self::PatroniKilled | Self::PatroniPaused | Self::PatroniCutOff)
    }
}

/// What each fault must come to.
const SCENES: [(Fault, fn()); 15] = [
    (Fault::NodeKilled, nodes::nodes_that_are_killed_lose_nothing_and_repeat_nothing),
    (Fault::NodePaused, nodes::nodes_that_are_stopped_for_longer_than_their_lease_are_fenced_out),
    (
        Fault::RollingRestart,
        nodes::nodes_are_restarted_one_after_the_other_without_a_failed_request,
    ),
    (
        Fault::DatabaseKilled,
        database::a_postgresql_that_is_killed_loses_nothing_and_repeats_nothing,
    ),
    (
        Fault::DatabaseRestarted,
        database::a_postgresql_that_restarts_loses_nothing_and_repeats_nothing,
    ),
    (
        Fault::Failover,
        database::a_failover_to_a_replica_that_commits_waited_for_loses_nothing_and_repeats_nothing,
    ),
    (Fault::PatroniKilled, patroni::a_primary_that_is_killed_is_replaced_without_a_person),
    (Fault::PatroniPaused, patroni::a_primary_that_is_stopped_is_replaced_and_comes_back_too_late),
    (Fault::PatroniCutOff, patroni::a_primary_that_is_cut_off_is_replaced_and_comes_back_too_late),
    (Fault::DatabaseFull, database::a_postgresql_without_room_goes_on_when_there_is_some),
    (
        Fault::ConnectionsCut,
        connections::connections_that_are_cut_in_the_middle_of_commits_lose_nothing_and_repeat_nothing,
    ),
    (
        Fault::ConnectionsSlow,
        connections::connections_that_are_delayed_by_seconds_lose_nothing_and_repeat_nothing,
    ),
    (
        Fault::NodeCutOff,
        connections::a_node_that_is_cut_off_for_longer_than_its_lease_is_fenced_out,
    ),
    (Fault::SqliteFull, disks::a_gateway_on_a_full_disk_goes_on_when_there_is_room),
    (Fault::SqliteFsync, disks::a_gateway_whose_fsync_fails_ends_and_the_next_one_recovers),
];

#[test]
fn whatever_breaks_under_load_nothing_is_lost_and_nothing_is_repeated() {
    run(|fault| !fault.is_patroni());
}

/// A test of its own: most of it is waiting until Patroni's lock lapses.
#[test]
#[ignore = "takes minutes"]
fn a_failover_that_patroni_makes_under_load_loses_nothing_and_repeats_nothing() {
    run(Fault::is_patroni);
}

fn run(is_due: impl Fn(Fault) -> bool) {
    let chosen = std::env::var("STEPGATE_FAULT").unwrap_or_default();
    let is_chosen = |fault: Fault| is_due(fault) && fault.name().contains(&chosen);
    let scenes = SCENES.iter().filter(|(fault, _)| is_chosen(*fault));
    // A fault that fails says why, and the others have their turn.
    let failed = scenes.filter(|(_, scene)| std::panic::catch_unwind(scene).is_err());
    let failed: Vec<_> = failed.map(|(fault, _)| fault.name()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// How many outcomes each client has before a fault, and after it.
const OUTCOMES: usize = 8;

/// Lets something happen to a stage under load, again and again, and looks at what is left each time. Trouble says
/// how often it came.
fn endure<Database>(
    fault: Fault,
    stage: &mut Stage<Database>,
    mut trouble: impl FnMut(&mut Stage<Database>, &Load, usize) -> usize,
) {
    let mut tally = Tally::default();
    for round in 0..fault.rounds() {
        let load = Load::begin(&stage.front(), &format!("{round}"));
        load.until_each_had(OUTCOMES);
        let times = trouble(stage, &load, round);
        load.until_each_had(OUTCOMES);
        tally.take(times, load.end(), |harvest| {
            let front = stage.front();
            settle(&front);
            compare(&front, &stage.tools, harvest)
        });
        verify(&stage.nodes[round % 3].stepgate(&["verify"]));
    }
    tally.report(fault);
}

/// What all rounds of a fault come to.
#[derive(Default)]
struct Tally {
    times: usize,
    found: Found,
    longest_pause: Duration,
}

impl Tally {
    fn take(&mut self, times: usize, harvest: Harvest, compare: impl FnOnce(&Harvest) -> Found) {
        let Found { steps, lost, repeated, sent_again } = compare(&harvest);
        self.times += times;
        self.found.steps += steps;
        self.found.lost += lost;
        self.found.repeated += repeated;
        self.found.sent_again += sent_again;
        self.longest_pause = self.longest_pause.max(harvest.longest_pause);
    }

    fn report(self, fault: Fault) {
        let Self { times, found, longest_pause } = self;
        println!("{}: {found:?}, longest pause {longest_pause:?}", fault.name());
        assert_eq!((found.lost, found.repeated), (0, 0), "{}: {found:?}", fault.name());
        report::add(fault, Row { times, found, longest_pause });
    }
}
