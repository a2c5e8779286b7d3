//! Steps by how they ended and which action they asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use stepgate_core::action::{Action, CORE_SERVER};
use stepgate_core::gate::Gate;
use stepgate_core::run::Word;
use stepgate_core::step::Answer;
use stepgate_core::tool::ToolName;

use super::{Labelled, OTHER};

/// The label of a step that names no action or tool that there is. What an agent wrote there is no label: there would be
/// no end of them.
const UNKNOWN: &str = "unknown";

/// The answers to proposals, by action and outcome.
pub struct StepCounts(Labelled<[AtomicU64; Word::ALL.len()]>);

/// The action of a step, as labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionLabel {
    /// The name as a proposal has it: `WRITE_FILE`, `bank.send_money`.
    pub action: String,
    /// The server: `core` for actions of the core.
    pub server: String,
    /// The tool, as the server calls it.
    pub tool: String,
}

impl Default for StepCounts {
    fn default() -> Self {
        Self(Labelled::new(Default::default))
    }
}

impl StepCounts {
    /// Counts an answer.
    pub fn count(&self, gate: &Gate, answer: &Answer) {
        let name = answer.action.as_deref().filter(|name| is_known(gate, name));
        let counts = self.0.of(name.unwrap_or(UNKNOWN));
        let word = answer.word();
        let mut found = Word::ALL.into_iter().zip(counts.iter()).filter(|(one, _)| *one == word);
        if let Some((_, count)) = found.next() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts that are not 0.
    pub fn all(&self) -> Vec<(ActionLabel, Word, u64)> {
        let read = |counts: &[AtomicU64; Word::ALL.len()]| {
            let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
            Word::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect::<Vec<_>>()
        };
        let by_action = self.0.all(read).into_iter();
        by_action
            .flat_map(|(action, counts)| {
                let label = ActionLabel::of(&action);
                counts.into_iter().map(move |(word, count)| (label.clone(), word, count))
            })
            .collect()
    }
}

impl ActionLabel {
    /// The labels of an action or a tool.
    pub fn of(action: &str) -> Self {
        let (server, tool) = match action {
            UNKNOWN | OTHER => (action, action),
            name => name.split_once('.').unwrap_or((CORE_SERVER, name)),
        };
        Self { action: action.to_owned(), server: server.to_owned(), tool: tool.to_owned() }
    }
}

fn is_known(gate: &Gate, name: &str) -> bool {
    let is_tool = || ToolName::parse(name).is_ok_and(|name| gate.tools.tool(&name).is_some());
    Action::parse(name).is_some() || is_tool()
}
