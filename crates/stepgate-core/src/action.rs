//! The eight core actions. One file each: its arguments, its limits, what a second dispatch does.

mod args;
mod create_directory;
mod delete_file;
mod finish;
mod list_files;
mod read_file;
mod rename_file;
mod think;
mod write_file;

use crate::journal::artifact::{Resource, RiskLevel, ToolClass};
use crate::json::{Map, Value};
use crate::path::SandboxPath;

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

/// A core action. The spelling is exact: nothing is folded (decision 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Action {
    Think,
    Finish,
    ReadFile,
    ListFiles,
    WriteFile,
    CreateDirectory,
    DeleteFile,
    RenameFile,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 8] = [
        Self::Think,
        Self::Finish,
        Self::ReadFile,
        Self::ListFiles,
        Self::WriteFile,
        Self::CreateDirectory,
        Self::DeleteFile,
        Self::RenameFile,
    ];

    /// The name in a proposal.
    pub fn name(self) -> &'static str {
        match self {
            Self::Think => "THINK",
            Self::Finish => "FINISH",
            Self::ReadFile => "READ_FILE",
            Self::ListFiles => "LIST_FILES",
            Self::WriteFile => "WRITE_FILE",
            Self::CreateDirectory => "CREATE_DIRECTORY",
            Self::DeleteFile => "DELETE_FILE",
            Self::RenameFile => "RENAME_FILE",
        }
    }

    /// The action of this name, if it is registered.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

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

    /// The call that these arguments make, or which rule they break.
    pub fn call(self, args: &Map<String, Value>) -> Result<CoreCall, InvalidArgs> {
        match self {
            Self::Think => think::call(args),
            Self::Finish => finish::call(args),
            Self::ReadFile => read_file::call(args),
            Self::ListFiles => list_files::call(args),
            Self::WriteFile => write_file::call(args),
            Self::CreateDirectory => create_directory::call(args),
            Self::DeleteFile => delete_file::call(args),
            Self::RenameFile => rename_file::call(args),
        }
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

    /// How much it can change.
    pub fn risk_level(&self) -> RiskLevel {
        match self.touch() {
            Touch::Nothing | Touch::Reads => RiskLevel::Read,
            Touch::Writes => RiskLevel::Write,
        }
    }

    /// Whether it changes anything.
    pub fn tool_class(&self) -> ToolClass {
        match self.touch() {
            Touch::Nothing | Touch::Reads => ToolClass::Read,
            Touch::Writes => ToolClass::Write,
        }
    }
}

#[cfg(test)]
mod tests;
