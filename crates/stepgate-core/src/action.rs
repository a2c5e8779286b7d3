//! The eight core actions: their arguments, their limits, and what a second dispatch does.

mod args;

use crate::journal::artifact::Resource;
use crate::json::{Map, Value};
use crate::path::SandboxPath;
use crate::spelled::spelled;

pub use args::InvalidArgs;

/// The server of every core action.
pub const CORE_SERVER: &str = "core";

/// The name of a call in a proposal: a tool's has its server in front.
pub fn proposed_name(server: &str, name: &str) -> String {
    match server {
        CORE_SERVER => name.to_owned(),
        server => format!("{server}.{name}"),
    }
}

spelled! {
    /// A core action. The spelling is exact: nothing is folded (decision 2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Action {
        /// No arguments, no effect. The call and its effect are committed together, so there is no second
        /// dispatch.
        Think = "THINK",
        /// Gives the final response. Committed like THINK.
        Finish = "FINISH",
        /// Reads a regular file of UTF-8 text, up to the size limit. A second dispatch reads again.
        ReadFile = "READ_FILE",
        /// Lists a directory, `/sandbox/` included, sorted by name, up to the limit of entries. A second
        /// dispatch lists again.
        ListFiles = "LIST_FILES",
        /// Replaces a whole file; its directory must exist. The content has at least one character, and no
        /// more than the payload allows. A second dispatch counts as done if it finds the new content, or
        /// content that another writer wrote after it. It replaces the content that was there before the
        /// first dispatch. Where the executor cannot tell, a person decides.
        WriteFile = "WRITE_FILE",
        /// Creates a directory and its parents; one that exists is a success. A second dispatch is therefore
        /// like the first.
        CreateDirectory = "CREATE_DIRECTORY",
        /// Deletes a regular file. A second dispatch deletes the file that existed before the first dispatch.
        /// If that file is gone, the second dispatch counts as done, whatever stands at the path now. Where
        /// the executor cannot tell, a person decides.
        DeleteFile = "DELETE_FILE",
        /// Renames a regular file to a name that is free. A second dispatch counts as done if the destination
        /// is the file that the source was. It renames the file if it is still at the source. Otherwise a
        /// person decides.
        RenameFile = "RENAME_FILE",
    }
    /// The name in a proposal.
    fn name
}

impl Action {
    /// The intent that an action_request names: fixed per action.
    pub fn intent(self) -> &'static str {
        match self {
            Self::Think => "Record a thought",
            Self::Finish => "Give the final response",
            Self::ReadFile => "Read a file",
            Self::ListFiles => "List a directory",
            Self::WriteFile => "Write a file",
            Self::CreateDirectory => "Create a directory",
            Self::DeleteFile => "Delete a file",
            Self::RenameFile => "Rename a file",
        }
    }

    /// The names of its arguments: all of them are required.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Think => &[],
            Self::Finish => &["response"],
            Self::ReadFile | Self::ListFiles | Self::CreateDirectory | Self::DeleteFile => {
                &["path"]
            }
            Self::WriteFile => &["path", "content"],
            Self::RenameFile => &["source", "destination"],
        }
    }

    /// The call that these arguments make, or which rule they break.
    pub fn call(self, args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
        args::only(args, self.arguments())?;
        let file = |name| args::path(args, name, SandboxPath::file);
        let directory = |parse| args::path(args, "path", parse);
        Ok(match self {
            Self::Think => CoreCall::Think,
            Self::Finish => {
                CoreCall::Finish { response: args::string(args, "response")?.to_owned() }
            }
            Self::ReadFile => CoreCall::ReadFile { path: file("path")? },
            Self::ListFiles => CoreCall::ListFiles { path: directory(SandboxPath::directory)? },
            Self::WriteFile => CoreCall::WriteFile {
                path: file("path")?,
                content: args::content(args, "content")?,
            },
            Self::CreateDirectory => {
                CoreCall::CreateDirectory { path: directory(SandboxPath::new_directory)? }
            }
            Self::DeleteFile => CoreCall::DeleteFile { path: file("path")? },
            Self::RenameFile => {
                CoreCall::RenameFile { source: file("source")?, destination: file("destination")? }
            }
        })
    }
}

/// A call with arguments that keep the action's contract.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum CoreCall {
    Think,
    Finish { response: String },
    ReadFile { path: SandboxPath },
    ListFiles { path: SandboxPath },
    WriteFile { path: SandboxPath, content: String },
    CreateDirectory { path: SandboxPath },
    DeleteFile { path: SandboxPath },
    RenameFile { source: SandboxPath, destination: SandboxPath },
}

/// How a call affects the sandbox or the tool server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// No effect outside the store: the call and its effect are committed together.
    Nothing,
    /// Reads only.
    Reads,
    /// Changes something.
    Writes,
}

impl CoreCall {
    /// The action that it is a call of.
    pub fn action(&self) -> Action {
        match self {
            Self::Think => Action::Think,
            Self::Finish { .. } => Action::Finish,
            Self::ReadFile { .. } => Action::ReadFile,
            Self::ListFiles { .. } => Action::ListFiles,
            Self::WriteFile { .. } => Action::WriteFile,
            Self::CreateDirectory { .. } => Action::CreateDirectory,
            Self::DeleteFile { .. } => Action::DeleteFile,
            Self::RenameFile { .. } => Action::RenameFile,
        }
    }

    /// How it affects the sandbox or the tool server.
    pub fn touch(&self) -> Touch {
        match self {
            Self::Think | Self::Finish { .. } => Touch::Nothing,
            Self::ReadFile { .. } | Self::ListFiles { .. } => Touch::Reads,
            Self::WriteFile { .. }
            | Self::CreateDirectory { .. }
            | Self::DeleteFile { .. }
            | Self::RenameFile { .. } => Touch::Writes,
        }
    }

    /// Whether the call acts on an existing file: it deletes or renames the file. For every other call the
    /// arguments alone say what the result will be.
    pub fn is_about_a_file_that_stands(&self) -> bool {
        match self {
            Self::DeleteFile { .. } | Self::RenameFile { .. } => true,
            Self::Think
            | Self::Finish { .. }
            | Self::ReadFile { .. }
            | Self::ListFiles { .. }
            | Self::WriteFile { .. }
            | Self::CreateDirectory { .. } => false,
        }
    }

    /// The paths that it touches.
    pub fn paths(&self) -> Vec<&SandboxPath> {
        match self {
            Self::Think | Self::Finish { .. } => vec![],
            Self::ReadFile { path }
            | Self::ListFiles { path }
            | Self::WriteFile { path, .. }
            | Self::CreateDirectory { path }
            | Self::DeleteFile { path } => vec![path],
            Self::RenameFile { source, destination } => vec![source, destination],
        }
    }

    /// Its arguments, by name.
    pub fn arguments(&self) -> Vec<(&'static str, &str)> {
        match self {
            Self::Think => vec![],
            Self::Finish { response } => vec![("response", response)],
            Self::ReadFile { path }
            | Self::ListFiles { path }
            | Self::CreateDirectory { path }
            | Self::DeleteFile { path } => vec![("path", path.as_str())],
            Self::WriteFile { path, content } => {
                vec![("path", path.as_str()), ("content", content)]
            }
            Self::RenameFile { source, destination } => {
                vec![("source", source.as_str()), ("destination", destination.as_str())]
            }
        }
    }

    /// The paths whose extension is restricted: those of files.
    pub fn file_paths(&self) -> Vec<&SandboxPath> {
        match self {
            Self::ListFiles { .. } | Self::CreateDirectory { .. } => vec![],
            Self::Think
            | Self::Finish { .. }
            | Self::ReadFile { .. }
            | Self::WriteFile { .. }
            | Self::DeleteFile { .. }
            | Self::RenameFile { .. } => self.paths(),
        }
    }

    /// The paths as resources of an action_request.
    pub fn resources(&self) -> Vec<Resource> {
        self.paths()
            .into_iter()
            .map(|path| Resource { id: path.to_string(), kind: "path".into() })
            .collect()
    }
}

#[cfg(test)]
mod tests;
