//! A sandbox with something outside it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stepgate_core::action::CoreCall;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::path::SandboxPath;
use stepgate_core::ports::{Dispatch, Effect, Executor, Prepared};
use stepgate_exec::{Sandbox, SandboxLimits};
use tempfile::TempDir;

pub(crate) const DONE: Effect = Effect::Done(None);

pub(crate) struct World {
    _keep: TempDir,
    pub(crate) inside: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) sandbox: Sandbox,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(SandboxLimits::default())
    }

    pub(crate) fn with(limits: SandboxLimits) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let inside = keep.path().join("sandbox");
        let outside = keep.path().join("outside");
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        let sandbox = Sandbox::open(&inside, "sandbox-1".into(), limits).unwrap();
        Self { _keep: keep, inside, outside, sandbox }
    }

    /// Puts files into the sandbox, with their directories; a name with a trailing slash is one.
    pub(crate) fn put(&self, files: &[(&str, &str)]) -> &Self {
        for (name, content) in files {
            let path = self.inside.join(name);
            if name.ends_with('/') {
                fs::create_dir_all(path).unwrap();
            } else {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
        }
        self
    }

    /// The same directory after a restart.
    pub(crate) fn reopened(&self) -> Sandbox {
        Sandbox::open(&self.inside, "sandbox-1".into(), SandboxLimits::default()).unwrap()
    }

    /// The whole way of a call: AUTHORIZE's look, then the act.
    pub(crate) async fn run(&self, call: &CoreCall) -> Effect {
        match self.sandbox.prepare(call).await {
            Err(rule) => Effect::Refused(rule),
            Ok(Prepared { pre_state, hold: _hold }) => {
                self.sandbox.dispatch(call, pre_state.as_ref(), Dispatch::First).await
            }
        }
    }

    pub(crate) async fn pre_state(&self, call: &CoreCall) -> Option<Value> {
        self.sandbox.prepare(call).await.unwrap_or_else(|rule| panic!("{rule}")).pre_state
    }

    pub(crate) fn tree(&self) -> BTreeMap<String, String> {
        tree(&self.inside)
    }
}

/// Everything beneath a directory: files with their content, directories with a trailing slash.
pub(crate) fn tree(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            for (beneath, content) in tree(&entry.path()) {
                found.insert(format!("{name}/{beneath}"), content);
            }
            found.insert(format!("{name}/"), String::new());
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            found.insert(name, format!("-> {}", target.display()));
        } else {
            found.insert(name, String::from_utf8(fs::read(entry.path()).unwrap()).unwrap());
        }
    }
    found
}

/// A tree as a row writes it.
pub(crate) fn files(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
    rows.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
}

fn file(name: &str) -> SandboxPath {
    SandboxPath::file(&format!("/sandbox/{name}")).unwrap()
}

fn directory(name: &str) -> SandboxPath {
    SandboxPath::directory(&format!("/sandbox/{name}")).unwrap()
}

pub(crate) fn read(name: &str) -> CoreCall {
    CoreCall::ReadFile { path: file(name) }
}

pub(crate) fn list(name: &str) -> CoreCall {
    CoreCall::ListFiles { path: directory(name) }
}

pub(crate) fn write(name: &str, content: &str) -> CoreCall {
    CoreCall::WriteFile { path: file(name), content: content.into() }
}

pub(crate) fn create(name: &str) -> CoreCall {
    CoreCall::CreateDirectory { path: directory(name) }
}

pub(crate) fn delete(name: &str) -> CoreCall {
    CoreCall::DeleteFile { path: file(name) }
}

pub(crate) fn rename(source: &str, destination: &str) -> CoreCall {
    CoreCall::RenameFile { source: file(source), destination: file(destination) }
}

/// Every action that names a file, on this one.
pub(crate) fn calls_on(name: &str) -> Vec<CoreCall> {
    vec![
        read(name),
        list(name),
        write(name, "new"),
        create(name),
        delete(name),
        rename(name, "elsewhere.txt"),
        rename("plain.txt", name),
    ]
}

pub(crate) fn result(text: &str) -> Effect {
    Effect::Done(Some(text.into()))
}

pub(crate) fn failed(failure: ExecutionFailure) -> Effect {
    Effect::Failed(failure.into())
}
