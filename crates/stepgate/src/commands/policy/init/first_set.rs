//! The first policies: where they go, and what must be there for them to go there.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use stepgate_gateway::durable;
use stepgate_gateway::start::write_policies;
use stepgate_policy::{Checked, DEFAULTS, FIRST, Nameable, Severity};

use super::super::line;
use crate::show;

pub(super) struct FirstSet {
    pub(super) directory: PathBuf,
    pub(super) standing: Standing,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing: the directory is missing.
    Missing,
    /// Only files that are as Stepgate wrote them. These are not of the first set.
    Ours(BTreeSet<String>),
    Complete,
    /// Policies that a person wrote. They are never touched.
    Own,
}

impl FirstSet {
    pub(super) fn at(directory: PathBuf) -> anyhow::Result<Self> {
        let standing = standing(&directory)
            .with_context(|| format!("cannot read `{}`", directory.display()))?;
        Ok(Self { directory, standing })
    }

    /// Whether there is something to write.
    pub(super) fn is_open(&self) -> bool {
        match &self.standing {
            Standing::Missing | Standing::Ours(_) => true,
            Standing::Complete | Standing::Own => false,
        }
    }

    /// What writing it does, or why it is not written.
    pub(super) fn words(&self) -> String {
        let shown = self.directory.display();
        let names: Vec<&str> = FIRST.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        match &self.standing {
            Standing::Missing => format!("These policies are written to `{shown}`: {names}."),
            Standing::Ours(others) if others.is_empty() => {
                format!("These policies are written to `{shown}`: {names}.")
            }
            Standing::Ours(others) => {
                let others: Vec<&str> = others.iter().map(String::as_str).collect();
                format!(
                    "These policies are written to `{shown}`: {names}. They take the place of {}, which nobody has \
                     changed since Stepgate wrote it.",
                    others.join(", ")
                )
            }
            Standing::Complete => format!("`{shown}` has the first policies already."),
            Standing::Own => format!(
                "`{shown}` has policies of your own: they stay as they are. --directory DIR writes the first policies \
                 elsewhere."
            ),
        }
    }

    /// Checks the set as `policy check` does, before it is where it would be loaded from.
    pub(super) fn check(&self, nameable: Nameable<'_>) -> anyhow::Result<()> {
        let candidate = tempfile::tempdir().context("cannot make a temporary directory")?;
        for (name, text) in FIRST {
            std::fs::write(candidate.path().join(name), text)?;
        }
        let checked: Checked = stepgate_policy::check(candidate.path(), nameable);
        for finding in checked.findings.iter().filter(|it| it.severity != Severity::Note) {
            show::note(line(finding));
        }
        ensure!(checked.is_loadable(), "the first policies cannot be loaded: nothing was written");
        Ok(())
    }

    pub(super) fn write(&self) -> anyhow::Result<()> {
        let written = match &self.standing {
            Standing::Missing => {
                let parent = self.directory.parent().filter(|it| !it.as_os_str().is_empty());
                parent.map(crate::data_dir::create).transpose()?;
                write_policies(&self.directory, FIRST)
            }
            Standing::Ours(others) => self.take_the_place_of(others),
            Standing::Complete | Standing::Own => Ok(()),
        };
        written.with_context(|| format!("cannot write to `{}`", self.directory.display()))
    }

    /// Writes the new files before it removes the others: with both in force, policies ask more and not less.
    fn take_the_place_of(&self, others: &BTreeSet<String>) -> io::Result<()> {
        for (name, text) in FIRST {
            durable::write(&self.directory.join(name), text.as_bytes())?;
        }
        for name in others {
            std::fs::remove_file(self.directory.join(name))?;
        }
        durable::sync_names(Some(&self.directory))
    }
}

/// Refuses a directory that the operator named for the first set and that has something else in it.
pub(super) fn refuse_taken(set: &FirstSet) -> anyhow::Result<()> {
    match set.standing {
        Standing::Own => bail!(
            "`{}` has files that are not the first policies: name a directory that is not there yet",
            set.directory.display()
        ),
        Standing::Missing | Standing::Ours(_) | Standing::Complete => Ok(()),
    }
}

fn standing(directory: &Path) -> io::Result<Standing> {
    match directory.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Standing::Missing),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let mut there = BTreeSet::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { return Ok(Standing::Own) };
        let mut ours = DEFAULTS.iter().chain(FIRST).filter(|(ours, _)| *ours == name);
        let text = std::fs::read(entry.path()).unwrap_or_default();
        if !ours.any(|(_, ours)| ours.as_bytes() == text) {
            return Ok(Standing::Own);
        }
        there.insert(name);
    }
    let is_of_set = |name: &str| FIRST.iter().any(|(ours, _)| *ours == name);
    let is_complete = FIRST.iter().all(|(name, _)| there.contains(*name));
    there.retain(|name| !is_of_set(name));
    Ok(if is_complete && there.is_empty() { Standing::Complete } else { Standing::Ours(there) })
}
