//! One simulation, put together.

use std::sync::Arc;

use crate::chance::Chance;
use crate::database::Database;
use crate::environment::Environment;
use crate::files::Files;
use crate::ledger::Ledger;
use crate::locked;
use crate::node::{Shared, live};
use crate::policy::Policies;
use crate::processes::{Clock, Processes};
use crate::sabotage::Sabotage;
use crate::schedule::Job;
use crate::servers::Servers;
use crate::weather::Weather;

/// One simulation.
pub(crate) struct Sim {
    pub(crate) env: Arc<Environment>,
    pub(crate) shared: Shared,
    pub(crate) processes: Arc<Processes>,
}

impl Sim {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, is_shown: bool) -> Arc<Self> {
        let mut chance = Chance::of(seed);
        let weather = Weather::of(&mut chance);
        Self::in_weather(weather, chance, sabotage, is_shown)
    }

    /// A simulation without faults.
    pub(crate) fn calm(sabotage: Option<Sabotage>) -> Arc<Self> {
        let mut chance = Chance::of(0);
        let mut weather = Weather::of(&mut chance);
        weather.calm_from = 0;
        Self::in_weather(weather, chance, sabotage, false)
    }

    fn in_weather(
        weather: Weather,
        chance: Chance,
        sabotage: Option<Sabotage>,
        is_shown: bool,
    ) -> Arc<Self> {
        let env = Arc::new(Environment::new(weather, chance, sabotage, is_shown));
        let clocks = Clock::of_all_nodes(&env);
        let ledger = Arc::new(Ledger::new(Arc::clone(&env)));
        let shared = Shared {
            database: Arc::new(Database::new(Arc::clone(&env), Arc::clone(&ledger))),
            files: Arc::new(Files::new(Arc::clone(&env), Arc::clone(&ledger))),
            servers: Arc::new(Servers::new(Arc::clone(&env), Arc::clone(&ledger))),
            policies: Arc::new(Policies::new(&env, locked(&env.chance).next())),
            env: Arc::clone(&env),
            ledger,
        };
        let parts = shared.clone();
        let life = move |processes, seat| Box::pin(live(parts.clone(), processes, seat)) as Job;
        let processes = Processes::new(Arc::clone(&env), clocks, life);
        Arc::new(Self { env, shared, processes })
    }
}
