//! The names of tools over MCP: only characters that the model APIs accept, and each name unique.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use stepgate_core::action::Action;
use stepgate_core::digest::Digest;
use stepgate_core::tool::Standing;
use stepgate_exec::servers::{ListedTool, Off, Reason};

/// Longest name that the model APIs accept.
const NAME_BYTES_MAX: usize = 64;
/// Length of the suffix that replaces the end of a name that is too long: `_` and part of a digest, so that two
/// such names differ.
const TAIL_BYTES: usize = 9;

/// The tools that can be called, by MCP name.
pub(crate) struct McpNames<'a> {
    pub(crate) tools: BTreeMap<String, &'a ListedTool>,
    /// Tools that are off over MCP because another tool has their name.
    pub(crate) off: Vec<Off>,
}

impl<'a> McpNames<'a> {
    /// Assigns names to a listing. Core actions keep theirs. Of two tools with one name, the first in the listing
    /// gets it.
    pub(crate) fn of(listing: &'a [ListedTool], own_names: Option<&str>) -> Self {
        let mut names = Self { tools: BTreeMap::new(), off: Vec::new() };
        let can_be_called =
            |it: &&ListedTool| it.mode.is_some() && it.standing == Some(Standing::Accepted);
        for listed in listing.iter().filter(can_be_called) {
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

/// Replaces characters that the model APIs do not accept, and shortens the name to their limit.
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
