//! Directories that servers cannot list because something in them is hidden.
//!
//! Landlock hides a path at a price: a server cannot list the directories that lead to it. A server for files or for a
//! repository there fails, or reports that there is nothing.

use std::path::PathBuf;

use crate::config::Config;
use crate::data_dir::DataDir;

/// A warning for every server that works in a directory which it will not be able to list.
pub(crate) fn warnings(data: &DataDir, config: &Config) -> anyhow::Result<Vec<String>> {
    let hidden = data.hidden(config)?;
    let hidden: Vec<PathBuf> = hidden.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let base = data.base();
    let mut lines = Vec::new();
    for (name, server) in &config.servers {
        let directories = server.directories(&base);
        // A service without its own directory is started in `/`, and is not expected to work there.
        let works_in = directories.iter().filter(|directory| directory.parent().is_some());
        let in_the_way = works_in
            .filter_map(|at| Some((at, hidden.iter().find(|hidden| hidden.starts_with(at))?)));
        if let Some((directory, hidden)) = in_the_way.into_iter().next() {
            lines.push(format!(
                "the tool server `{name}` works in `{0}`, and `{1}` lies there, which is hidden from \
                 servers: it cannot list `{0}`, so it may fail, or say that there is nothing; move one of \
                 the two elsewhere",
                directory.display(),
                hidden.display()
            ));
        }
    }
    Ok(lines)
}
