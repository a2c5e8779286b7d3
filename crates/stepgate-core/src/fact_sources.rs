//! Where facts come from: what the configuration declares about tools, people and time.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::action::Touch;
use crate::approvers::Groups;
use crate::call::Call;
use crate::detect::Detectors;
use crate::facts::FactNames;
use crate::ids::PrincipalId;
use crate::label::{Flow, Label};
use crate::origin::Directories;
use crate::schedule::Schedule;
use crate::session_cache::SessionCache;

/// What the configuration declares: where facts come from.
#[derive(Clone, Debug, Default)]
pub struct FactSources {
    /// Every label that something can have. Empty where no tool brings one in: then none is looked up.
    pub labels: BTreeSet<Label>,
    /// What the sandbox is: what its files bring in.
    pub sandbox: Flow,
    /// The windows of time.
    pub schedule: Schedule,
    /// Patterns that add a label to a result.
    pub detectors: Detectors,
    /// The operator's lists of values.
    pub directories: Directories,
    /// The agents whose own programs may say what the user asked for.
    pub tellers: BTreeSet<PrincipalId>,
    /// What sessions have been given, as far as it is in memory.
    pub sessions: SessionCache,
}

impl FactSources {
    /// The names that policies can use.
    pub fn names(&self, groups: &Groups) -> FactNames {
        let common = Label::COMMON.iter().filter_map(|label| Label::parse(label).ok());
        FactNames {
            groups: groups.names().map(str::to_owned).collect(),
            labels: self.labels.iter().cloned().chain(common).collect(),
            windows: self.schedule.names().map(str::to_owned).collect(),
            directories: self.directories.names().map(str::to_owned).collect(),
        }
    }

    /// What the tool of a call is declared to be. THINK and FINISH touch nothing.
    pub fn flow<'a>(&'a self, call: &'a Call) -> &'a Flow {
        static NOTHING: LazyLock<Flow> = LazyLock::new(Flow::default);
        match call {
            Call::Core(call) if call.touch() == Touch::Nothing => &NOTHING,
            Call::Core(_) => &self.sandbox,
            Call::Server(call) => &call.tool.flow,
        }
    }
}
