//! The names that tools have over MCP: made of what the model APIs take, and each of one tool alone.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use stepgate_core::action::Action;
use stepgate_core::digest::Digest;
use stepgate_core::tool::Standing;
use stepgate_exec::servers::{ListedTool, Off, Reason};

/// Longest name that the model APIs take.
const NAME_BYTES_MAX: usize = 64;
/// What ends a name that was too long: enough of a digest to tell two of them apart.
const TAIL_BYTES: usize = 9;

/// The tools that can be called, by their names.
pub(crate) struct McpNames<'a> {
    pub(crate) tools: BTreeMap<String, &'a ListedTool>,
    /// Tools whose name another one has: they are off over MCP.
    pub(crate) off: Vec<Off>,
}

impl<'a> McpNames<'a> {
    /// The names of a listing. Core actions keep theirs; of two tools the first in the order of the listing has it.
    pub(crate) fn of(listing: &'a [ListedTool], own_names: Option<&str>) -> Self {
        let mut names = Self { tools: BTreeMap::new(), off: Vec::new() };
        for listed in listing.iter().filter(|listed| can_be_called(listed)) {
            let name = match own_names == Some(listed.server.as_str()) {
                true => fitted(&listed.tool),
                false => fitted(&format!("{}__{}", listed.server, listed.tool)),
            };
            if Action::parse(&name).is_some() {
                names.turn_off(listed, name.clone(), name);
                continue;
            }
            match names.tools.entry(name) {
                Entry::Vacant(place) => drop(place.insert(listed)),
                Entry::Occupied(taken) => {
                    let (name, by) = (taken.key().clone(), taken.get());
                    let by = format!("{}.{}", by.server, by.tool);
                    names.turn_off(listed, name, by);
                }
            }
        }
        names
    }

    fn turn_off(&mut self, listed: &ListedTool, name: String, by: String) {
        let (server, tool) = (listed.server.clone(), Some(listed.tool.clone()));
        self.off.push(Off { server, tool, reason: Reason::NameTaken { name, by } });
    }
}

/// Whether it has a mode, and the definition that an operator knows.
fn can_be_called(listed: &ListedTool) -> bool {
    listed.mode.is_some()
        && match listed.standing {
            Some(Standing::Accepted) => true,
            Some(Standing::Changed | Standing::New | Standing::Gone) | None => false,
        }
}

/// The name in the letters that the model APIs take, and no longer than they take.
fn fitted(name: &str) -> String {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let plain: String = name.chars().map(|c| if is_taken(c) { c } else { '_' }).collect();
    if plain.len() <= NAME_BYTES_MAX {
        return plain;
    }
    let digest = Digest::of_bytes(name.as_bytes()).to_string();
    let head: String = plain.chars().take(NAME_BYTES_MAX - TAIL_BYTES).collect();
    let tail: String = digest.chars().take(TAIL_BYTES - 1).collect();
    format!("{head}_{tail}")
}

#[cfg(test)]
mod tests;
