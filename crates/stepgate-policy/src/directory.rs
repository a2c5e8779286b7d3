//! Reads a directory of policies, within limits, in the order of the file names.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use stepgate_core::digest::Digest;

use crate::finding::{FilePosition, Finding, Severity};
use crate::limits::{DIRECTORY_ENTRIES_MAX, FILE_BYTES_MAX, FILES_MAX, TOTAL_BYTES_MAX};

/// The name of the file that has the budgets.
pub(crate) const BUDGETS_FILE: &str = "budgets.toml";

/// The purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Policies, in Cedar.
    Policies,
    /// Cases with the decisions that the policies must make.
    Cases,
    /// Budgets.
    Budgets,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) name: String,
    /// Its path, for messages.
    pub(crate) shown: String,
    pub(crate) kind: Kind,
    pub(crate) text: Arc<str>,
}

impl SourceFile {
    /// An error in it, at this byte.
    pub(crate) fn error(&self, offset: Option<usize>, message: impl Into<String>) -> Finding {
        let place = offset.map(|offset| FilePosition::of_offset(&self.text, offset));
        Finding::at(Severity::Error, &self.shown, place, message)
    }
}

/// The files of a directory that could be read; a finding for each other one.
pub(crate) fn read(directory: &Path, findings: &mut Vec<Finding>) -> Vec<SourceFile> {
    let mut files = Vec::new();
    let mut total_bytes = 0_usize;
    for (name, kind) in names(directory, findings) {
        let path = directory.join(&name);
        let shown = path.display().to_string();
        match read_file(&path) {
            Ok(text) => {
                total_bytes = total_bytes.saturating_add(text.len());
                files.push(SourceFile { name, shown, kind, text: text.into() });
            }
            Err(message) => findings.push(Finding::of_file(Severity::Error, &shown, message)),
        }
        if total_bytes > TOTAL_BYTES_MAX {
            let message = format!(
                "more than {TOTAL_BYTES_MAX} bytes of policies and cases; remove what is not needed"
            );
            findings.push(Finding::of_file(Severity::Error, &shown_of(directory), message));
            break;
        }
    }
    files
}

/// Whether the policies of a directory may make arguments erasable. A comment that says the word counts, too.
pub fn mentions_erasable(directory: &Path) -> bool {
    let files = read(directory, &mut Vec::new());
    let mut policies = files.iter().filter(|file| file.kind == Kind::Policies);
    policies.any(|file| file.text.contains("erasable"))
}

/// The name of policies that are in no file.
pub(crate) const TEXT_NAME: &str = "edited.cedar";

/// Policies that are in no file, as one, beside the budgets of a directory; a finding where they are too long.
pub(crate) fn file_of_text(
    text: &str,
    budgets: Option<&SourceFile>,
    findings: &mut Vec<Finding>,
) -> Vec<SourceFile> {
    if text.len() > FILE_BYTES_MAX {
        let message = format!("larger than {FILE_BYTES_MAX} bytes");
        findings.push(Finding::of_file(Severity::Error, TEXT_NAME, message));
        return Vec::new();
    }
    let (name, shown) = (TEXT_NAME.to_owned(), TEXT_NAME.to_owned());
    let policies = SourceFile { name, shown, kind: Kind::Policies, text: text.into() };
    std::iter::once(policies).chain(budgets.cloned()).collect()
}

/// The digest of names and texts, including the cases. The tools do not affect it.
pub(crate) fn digest_of<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Digest {
    #[derive(Serialize)]
    struct Form<'a> {
        name: &'a str,
        text: &'a str,
    }
    let forms: Vec<Form<'_>> = files.map(|(name, text)| Form { name, text }).collect();
    Digest::of(&forms)
}

/// The files that are used, in the order of their names.
fn names(directory: &Path, findings: &mut Vec<Finding>) -> Vec<(String, Kind)> {
    let shown = shown_of(directory);
    let refuse = |message: String| Finding::of_file(Severity::Error, &shown, message);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            let way_out = "make the directory, or name another one in the configuration";
            findings.push(refuse(format!("cannot be read as a directory: {error}; {way_out}")));
            return Vec::new();
        }
    };
    let mut names = Vec::new();
    for (index, entry) in entries.enumerate() {
        if index >= DIRECTORY_ENTRIES_MAX {
            findings.push(refuse(format!(
                "more than {DIRECTORY_ENTRIES_MAX} entries; keep policies in a directory of their own"
            )));
            return Vec::new();
        }
        match entry.map(|entry| entry.file_name().into_string()) {
            Ok(Ok(name)) => names.extend(classified(name, &shown, findings)),
            Ok(Err(name)) => findings.push(refuse(format!(
                "the file name `{}` is not UTF-8; rename the file",
                name.to_string_lossy()
            ))),
            Err(error) => findings.push(refuse(format!("cannot be read: {error}"))),
        }
    }
    if names.len() > FILES_MAX {
        let message = format!("more than {FILES_MAX} files of policies and cases; join some");
        findings.push(refuse(message));
        return Vec::new();
    }
    names.sort_by(|(left, _), (right, _)| left.cmp(right));
    names
}

/// The purpose of a file of this name. A file without a purpose is reported, because a policy in a file with
/// a misspelled extension would be silently absent.
fn classified(name: String, shown: &str, findings: &mut Vec<Finding>) -> Option<(String, Kind)> {
    let is_of_an_editor = name.starts_with('.') || name.ends_with('~');
    if is_of_an_editor {
        return None;
    }
    if name.chars().any(char::is_control) {
        let message = format!("the file name {name:?} has a control character; rename the file");
        findings.push(Finding::of_file(Severity::Error, shown, message));
        return None;
    }
    if name.ends_with(".cedar") {
        return Some((name, Kind::Policies));
    }
    if name.ends_with(".cases.toml") {
        return Some((name, Kind::Cases));
    }
    if name == BUDGETS_FILE {
        return Some((name, Kind::Budgets));
    }
    let message = format!(
        "`{name}` is not read: policies are in `*.cedar`, cases in `*.cases.toml` and budgets in \
         `{}`; rename it, or move it elsewhere",
        BUDGETS_FILE
    );
    findings.push(Finding::of_file(Severity::Warning, shown, message));
    None
}

fn read_file(path: &Path) -> Result<String, String> {
    // Opening a pipe would block without end, so the file type is checked first.
    let metadata = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if !metadata.is_file() {
        return Err("not a regular file; remove it, or rename it".to_owned());
    }
    let file = fs::File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!("larger than {FILE_BYTES_MAX} bytes; split it"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("not UTF-8 from byte {at} on; save it as UTF-8")
    })
}

pub(crate) fn shown_of(directory: &Path) -> String {
    directory.display().to_string()
}
