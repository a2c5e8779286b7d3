//! An example of a proof, as people and programs read it; and what every proof needs.

use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Value, json};
use stepgate_core::approvers::Groups;
use stepgate_core::facts::FactNames;
use stepgate_core::label::Flow;
use stepgate_core::origin::Origin;
use stepgate_gateway::start::not_loaded;
use stepgate_policy::symbolic::{Example, World};
use stepgate_policy::{Nameable, PolicySet, ToolShape};
use stepgate_prove::{Prover, Solver, SolverSettings, on_thread};

use super::{proposal, quoted};
use crate::cli::ProgramArgs;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::show;

/// What a proof is about: the tools and the configuration as they are now.
pub(super) struct Subject {
    pub(super) config: Config,
    tools: Vec<ToolShape>,
    names: FactNames,
    groups: Groups,
    sandbox: Flow,
}

impl Subject {
    pub(super) async fn of(data: &DataDir, directories: &[&Path]) -> anyhow::Result<Self> {
        let config = data.load_config()?;
        let mut tools: Vec<ToolShape> = Vec::new();
        // Policies may name tools of a server that is away: what they name is known from their directory alone.
        for directory in directories {
            for tool in super::tools(data, directory).await? {
                if !tools.iter().any(|known| known.name == tool.name) {
                    tools.push(tool);
                }
            }
        }
        let facts = config.facts()?;
        let groups = config.groups()?;
        let names = facts.names(&groups);
        Ok(Self { tools, names, groups, sandbox: facts.sandbox, config })
    }

    pub(super) fn load(&self, directory: &Path) -> anyhow::Result<PolicySet> {
        PolicySet::load(directory, self.nameable()).map_err(not_loaded)
    }

    /// What is known of the calls that these sets decide on.
    pub(super) fn world(&self, sets: &[&PolicySet]) -> anyhow::Result<World<'_>> {
        let contract = stepgate_exec::servers::contract;
        let world = World::new(self.nameable(), &self.groups, self.sandbox.clone(), sets, contract);
        world.map_err(|error| anyhow!(error))
    }

    pub(super) fn note_left_out(world: &World<'_>) {
        const SHOWN_MAX: usize = 8;
        let names = world.left_out();
        if names.is_empty() {
            return;
        }
        let more = if names.len() > SHOWN_MAX { ", …" } else { "" };
        let shown: Vec<&str> = names.iter().take(SHOWN_MAX).copied().collect();
        show::note(format!(
            "nothing is proven about {} tools that are off or not accepted: {}{more}; now each call of them is denied",
            names.len(),
            show::printable(&shown.join(", "))
        ));
    }

    fn nameable(&self) -> Nameable<'_> {
        Nameable { tools: &self.tools, facts: &self.names }
    }

    /// What a proof finds out, on a thread of its own, with the solver of the command line or else of the configuration.
    pub(super) fn proven<T: Send>(
        &self,
        args: &ProgramArgs,
        proof: impl AsyncFnOnce(&mut Prover) -> Result<T, String> + Send,
    ) -> anyhow::Result<T> {
        let policy = &self.config.policy;
        let settings = SolverSettings {
            program: args.solver.clone().unwrap_or_else(|| policy.solver.clone()),
            timeout: Duration::from_millis(policy.solver_timeout_ms),
        };
        let proven = tokio::task::block_in_place(|| {
            on_thread(async || {
                let solver = Solver::start(settings).await.map_err(|error| error.to_string())?;
                proof(&mut Prover::new(solver)).await
            })
        });
        proven.and_then(|proven| proven).map_err(|error: String| anyhow!(error))
    }

    pub(super) fn explain(&self, example: &Example) -> String {
        let Example { principal, facts, action, args } = example;
        let mut words = vec![format!("stepgate policy explain {}", quoted(action))];
        words.push(format!("--args {}", quoted(&Value::Object(args.clone()).to_string())));
        words.push(format!("--as {principal}"));
        if !self.names.groups.is_empty() {
            words.extend(repeated("--group", &facts.groups));
        }
        words.extend(facts.labels.iter().map(|label| format!("--label {label}")));
        words.extend(facts.reads.iter().map(|label| format!("--reads {label}")));
        if !self.names.windows.is_empty() {
            words.extend(repeated("--window", &facts.schedule));
        }
        for (option, origins) in [("--targets", &facts.targets), ("--addresses", &facts.addresses)]
        {
            let names: Vec<&str> = origins.iter().map(Origin::as_str).collect();
            words.extend((!names.is_empty()).then(|| format!("{option} {}", names.join(","))));
        }
        words.extend(facts.used.iter().map(|(name, used)| format!("--used {name}={used}")));
        let steps = facts.steps.filter(|steps| *steps > 0);
        words.extend(steps.map(|steps| format!("--steps {steps}")));
        let opened = facts.opened.iter().flatten();
        words.extend(opened.map(|name| format!("--opened {}", quoted(name))));
        show::printable(&words.join(" "))
    }
}

/// An option for each name; with an empty one where there is none, because the option's absence means something else.
fn repeated<'a>(
    option: &'a str,
    names: impl IntoIterator<Item = &'a String, IntoIter: ExactSizeIterator>,
) -> Vec<String> {
    let names = names.into_iter();
    match names.len() {
        0 => vec![format!("{option} ''")],
        _ => names.map(|name| format!("{option} {}", quoted(name))).collect(),
    }
}

/// An example for programs: what policies know, and the proposal.
pub(super) fn object(subject: &Subject, example: &Example) -> Value {
    let facts = &example.facts;
    json!({
        "proposal": proposal(&example.action, &example.args, "an example of a proof"),
        "principal": example.principal,
        "groups": facts.groups,
        "labels": facts.labels,
        "reads": facts.reads,
        "schedule": facts.schedule,
        "targets": facts.targets,
        "addresses": facts.addresses,
        "used": facts.used,
        "steps": facts.steps,
        "opened": facts.opened,
        "explain": subject.explain(example),
    })
}
