//! The data directory: one process locks it to write; readers do not need the lock.

mod lock;
mod place;
mod restored;
mod restoring;

use std::io;
use std::path::{Path, PathBuf};

use stepgate_gateway::start::Joined;
use stepgate_gateway::{disk, durable};

use crate::cli::Global;

pub(crate) use lock::Lock;
pub(crate) use place::of_earlier_version;
pub(crate) use restored::Restored;
pub(crate) use restoring::{Extent, Staging};

/// The file with this node's name.
const NODE_ID: &str = "node_id";

#[derive(Clone)]
pub(crate) struct DataDir {
    root: PathBuf,
    /// The options of the command that works on it.
    pub(crate) global: Global,
    /// Secret files that the command line names.
    pub(crate) secrets: Vec<PathBuf>,
    /// The shared stores that this process has joined as a node.
    pub(crate) joined: Joined,
}

impl DataDir {
    /// The directory that the command line names, or the user's default one. If it is not used, the path does not
    /// matter, so a machine without a home directory works too.
    pub(crate) fn of(global: Global, is_used: bool) -> anyhow::Result<Self> {
        let root = match &global.data {
            Some(named) => Ok(named.clone()),
            None => place::by_default(|name| std::env::var_os(name)),
        };
        let root = if is_used { root? } else { root.unwrap_or_default() };
        Ok(Self { global, ..Self::at(&root) })
    }

    /// The directory at this place, without any options.
    pub(crate) fn at(root: &Path) -> Self {
        let (global, joined) = (Global::default(), Joined::default());
        Self { root: root.to_owned(), global, secrets: Vec::new(), joined }
    }

    pub(crate) fn node_file(&self) -> PathBuf {
        self.root.join(NODE_ID)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.root.join("stepgate.db")
    }

    pub(crate) fn sandbox(&self) -> PathBuf {
        self.root.join("sandbox")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.root.join("stepgate.sock")
    }

    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        let inside = self.root.join("stepgate.toml");
        match &self.global.config {
            Some(file) => Some(file.clone()),
            // A dangling link counts as a file: reading it reports the missing target instead of ignoring it.
            None => inside.symlink_metadata().is_ok().then_some(inside),
        }
    }

    pub(crate) fn config_shown(&self) -> String {
        self.config_file().unwrap_or_else(|| self.root.join("stepgate.toml")).display().to_string()
    }

    /// The base of relative paths in the configuration: the directory of its file.
    pub(crate) fn base(&self) -> PathBuf {
        let file = self.config_file();
        let directory = file.as_deref().and_then(Path::parent).unwrap_or(&self.root);
        std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned())
    }

    /// Adds the most likely cause of a fault if the disk is full: the fault's own text may name only the file that
    /// could not grow.
    pub(crate) fn explain(&self, fault: anyhow::Error) -> anyhow::Error {
        const FREE_BYTES_MIN: u64 = 1024 * 1024;
        match disk::free_bytes(&self.root) {
            Ok(free) if free < FREE_BYTES_MIN => fault.context(format!(
                "the disk that holds `{}` is full: free some space, and ask again",
                self.root.display()
            )),
            Ok(_) | Err(_) => fault,
        }
    }

    pub(crate) fn holder(&self) -> Option<String> {
        lock::holder(&self.root)
    }
}

/// Creates a directory and its missing parents durably. The error says what to do.
pub(crate) fn create(directory: &Path) -> anyhow::Result<()> {
    durable::create_directory(directory).map_err(|error| {
        let way_out = way_out(&error);
        let what = format!("cannot create `{}`: {way_out}", directory.display());
        anyhow::Error::new(error).context(what)
    })
}

fn way_out(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::StorageFull {
        "free some space on the disk, and start again"
    } else if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        "make the file system writable, or name another place with --data"
    } else {
        "check the permissions, or name another place with --data"
    }
}
