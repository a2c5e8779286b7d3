//! What policies must know of the tools: those that are offered, and those that are off, so that policies that
//! name them can still be loaded.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use stepgate_core::digest::Digest;
use stepgate_core::label::Flow;
use stepgate_core::tool::{Mode, Standing, ToolName};
use stepgate_exec::servers::{ListedServer, ListedTool, Servers};
use stepgate_policy::ToolShape;
use stepgate_policy::limits::TOTAL_BYTES_MAX;

/// Every tool that policies may name.
pub fn shapes(servers: &Servers, turned_off: &[String], policies: &Path) -> Vec<ToolShape> {
    let listing = servers.listing();
    let unknown: Vec<String> = servers
        .servers()
        .into_iter()
        .filter(|server: &ListedServer| !server.is_known)
        .map(|server| server.name)
        .chain(turned_off.iter().cloned())
        .collect();
    let mut shapes = offered(&listing);
    let is_off = |listed: &&ListedTool| listed.is_off || listed.trouble.is_some();
    let listed = listing.iter().filter(is_off);
    let names = listed.filter_map(|it| ToolName::of(&it.server, &it.tool).ok()).collect();
    shapes.extend(off(names, &unknown, policies));
    shapes
}

/// The tools that are offered.
pub fn offered(listing: &[ListedTool]) -> Vec<ToolShape> {
    let offered = listing.iter().filter_map(|listed| Some((listed, listed.mode?)));
    offered
        .filter_map(|(listed, mode)| {
            let name = ToolName::of(&listed.server, &listed.tool).ok()?;
            Some(ToolShape {
                name,
                mode,
                input_schema: listed.input_schema.clone(),
                redacted: listed.redacted.clone(),
                flow: listed.flow.clone(),
                definition_digest: listed.bound_digest,
                is_accepted: match listed.standing? {
                    Standing::Accepted | Standing::Gone => true,
                    Standing::Changed | Standing::New => false,
                },
            })
        })
        .collect()
}

/// Tools that are off: those that a server lists, and those that the policies name of servers whose tools are not
/// known yet. A call of such a tool is refused before the policies are asked.
pub fn off(mut names: BTreeSet<ToolName>, unknown: &[String], policies: &Path) -> Vec<ToolShape> {
    if !unknown.is_empty() {
        let texts = texts(policies);
        for server in unknown {
            // A policy may name only the server.
            names.extend(ToolName::of(server, "unknown"));
            names.extend(texts.iter().flat_map(|text| named(text, server)));
        }
    }
    let shape = |name| ToolShape {
        name,
        mode: Mode::ExecuteGated,
        input_schema: json!({}),
        redacted: Vec::new(),
        flow: Flow::default(),
        definition_digest: Digest::ZERO,
        is_accepted: false,
    };
    names.into_iter().map(shape).collect()
}

/// The tools of a server that a text names in quotation marks.
fn named(text: &str, server: &str) -> Vec<ToolName> {
    let begin = format!("\"{server}.");
    let tools = text.split(begin.as_str()).skip(1);
    tools.filter_map(|rest| ToolName::of(server, rest.split('"').next()?).ok()).collect()
}

/// The files of a directory that are not larger than policies may be.
fn texts(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let is_small = |path: &Path| {
        let bytes_max = u64::try_from(TOTAL_BYTES_MAX).unwrap_or(u64::MAX);
        std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= bytes_max)
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let small = paths.filter(|path| is_small(path));
    small.filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

#[cfg(test)]
mod tests;
