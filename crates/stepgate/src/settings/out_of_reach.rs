//! What servers cannot do because something is hidden from them.
//!
//! Landlock hides a path at the price of the directories that lead to it: a server cannot list them. A server
//! of files or of a repository there fails, or says that there is nothing.

use std::path::PathBuf;

use crate::config::Config;
use crate::data_dir::DataDir;

/// A line for every server that is to work in a directory which it will not be able to list.
pub(crate) fn warnings(data: &DataDir, config: &Config) -> anyhow::Result<Vec<String>> {
    let hidden = data.hidden(config)?;
    let hidden: Vec<PathBuf> = hidden.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let base = data.base();
    let mut lines = Vec::new();
    for (name, server) in &config.servers {
        let directories = server.directories(&base);
        // A service without a directory of its own is started in `/`, and none is expected to work there.
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
