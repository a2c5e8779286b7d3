//! `stepgate man`: the manual pages, made from the command line's own definition.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::Cli;

pub(super) fn man(directory: &Path) -> anyhow::Result<()> {
    let written = clap_mangen::generate_to(Cli::command(), directory);
    written.with_context(|| format!("cannot write manual pages into `{}`", directory.display()))
}

#[cfg(test)]
mod tests;
