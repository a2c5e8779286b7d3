//! Adds declarations to the text of the configuration. What stands there stays, byte for byte.

use anyhow::{Context, ensure};
use stepgate_core::tool::ToolName;

pub(super) struct Addition<'a> {
    pub(super) tool: &'a ToolName,
    pub(super) keys: Vec<(&'static str, toml::Value)>,
    /// Whether no person has looked at it.
    pub(super) is_guess: bool,
}

/// What stands above a declaration that no person has looked at.
pub(super) const GUESS: &str = "# A guess that no person has looked at.";

impl Addition<'_> {
    fn lines(&self) -> String {
        let guess = if self.is_guess { format!("{GUESS}\n") } else { String::new() };
        let keys = self.keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
        guess + &keys.collect::<String>()
    }

    fn header(&self) -> String {
        let name = self.tool.tool();
        let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let tool = match name.bytes().all(is_bare) {
            true => name.to_owned(),
            false => toml::Value::from(name).to_string(),
        };
        format!("[servers.{}.tools.{tool}]", self.tool.server())
    }

    /// The same change to the parsed configuration, which says what the changed text must mean.
    fn apply(&self, config: &mut toml::Table) -> Option<()> {
        let mut table = config;
        for name in ["servers", self.tool.server(), "tools", self.tool.tool()] {
            let next = table.entry(name).or_insert_with(|| toml::Table::new().into());
            table = next.as_table_mut()?;
        }
        for (key, value) in &self.keys {
            let before = table.insert((*key).to_owned(), value.clone());
            // INVARIANT: nothing that the operator wrote is overwritten.
            if before.is_some() {
                return None;
            }
        }
        Some(())
    }
}

/// The additions as they are shown before they are written.
pub(super) fn shown(additions: &[Addition<'_>]) -> String {
    let tables = additions.iter().map(|it| format!("{}\n{}", it.header(), it.lines()));
    tables.collect::<Vec<_>>().join("\n")
}

/// The text with the additions: in the table of a tool that has one, and else in a new table at the end.
pub(super) fn edited(text: &str, additions: &[Addition<'_>]) -> anyhow::Result<String> {
    let mut meant: toml::Table = toml::from_str(text)?;
    let mut edited = text.to_owned();
    for addition in additions {
        let by_hand = || format!("declare `{}` by hand: {}", addition.tool, addition.header());
        addition.apply(&mut meant).with_context(by_hand)?;
        match end_of_header(&edited, addition.tool) {
            Some(end) => edited.insert_str(end, &addition.lines()),
            None => {
                let gap = if edited.is_empty() || edited.ends_with('\n') { "\n" } else { "\n\n" };
                let table = format!("{gap}{}\n{}", addition.header(), addition.lines());
                edited.push_str(&table);
            }
        }
    }
    let by_hand = "the file is written in a way that cannot be added to: declare the tools by hand, each \
                   in a table such as [servers.NAME.tools.TOOL]";
    let parsed: toml::Table = toml::from_str(&edited).context(by_hand)?;
    ensure!(parsed == meant, "{by_hand}");
    Ok(edited)
}

/// The end of the line with the header of a tool's table.
fn end_of_header(text: &str, tool: &ToolName) -> Option<usize> {
    let mut end = 0;
    text.split_inclusive('\n').find_map(|line| {
        end += line.len();
        (line.ends_with('\n') && is_header(line, tool)).then_some(end)
    })
}

/// Whether a line is the header of a tool's table, however it is spelled.
fn is_header(line: &str, tool: &ToolName) -> bool {
    let line = line.trim();
    if !line.starts_with('[') || line.starts_with("[[") {
        return false;
    }
    let Ok(parsed) = toml::from_str::<toml::Table>(line) else { return false };
    let mut value = toml::Value::Table(parsed);
    for name in ["servers", tool.server(), "tools", tool.tool()] {
        let Some(next) = value.as_table_mut().and_then(|table| table.remove(name)) else {
            return false;
        };
        value = next;
    }
    value.as_table().is_some_and(toml::Table::is_empty)
}

#[cfg(test)]
mod tests;
