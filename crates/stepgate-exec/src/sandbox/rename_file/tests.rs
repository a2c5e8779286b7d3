use std::fs;

use super::super::SandboxLimits;
use super::*;

/// Both ways to rename: with one system call, and for file systems that do not support it.
type Way = fn(&Dentry<'_>, &Dentry<'_>) -> Result<(), ActionError>;

const WAYS: [Way; 2] = [|from, to| rename(from, to, rename_unless_taken), rename_onto_own_file];

/// Renames `a.txt` to `b.txt` in a directory with these files, and returns the files afterwards.
fn renamed(
    way: impl FnOnce(&Dentry<'_>, &Dentry<'_>) -> Result<(), ActionError>,
    names: &[&str],
) -> (Result<(), ActionError>, Vec<(String, String)>) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::open(directory.path(), SandboxLimits::default()).unwrap();
    let path = |name: &str| SandboxPath::file(&format!("/sandbox/{name}")).unwrap();
    let (source, destination) = (path("a.txt"), path("b.txt"));
    let place = |path| root.place(path, CHANGE, ExecutionFailure::PathNotFound).unwrap();
    for name in names {
        fs::write(directory.path().join(name), name).unwrap();
    }
    let done = way(&place(&source), &place(&destination));
    let mut found: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), text)
        })
        .collect();
    found.sort();
    (done, found)
}

fn file(name: &str, text: &str) -> (String, String) {
    (name.to_owned(), text.to_owned())
}

#[test]
fn a_destination_that_appears_after_the_look_is_not_replaced() {
    for way in WAYS {
        let (done, found) = renamed(way, &["a.txt", "b.txt"]);
        assert_eq!(done, Err(ActionError::Failed(ExecutionFailure::AlreadyExists)));
        assert_eq!(found, [file("a.txt", "a.txt"), file("b.txt", "b.txt")]);
    }
}

#[test]
fn a_file_gets_its_new_name_with_or_without_the_call_that_never_replaces() {
    for way in WAYS {
        assert_eq!(renamed(way, &["a.txt"]), (Ok(()), vec![file("b.txt", "a.txt")]));
    }
}

#[test]
fn a_source_that_is_gone_leaves_no_file_at_the_destination() {
    for way in WAYS {
        let gone = Err(ActionError::Failed(ExecutionFailure::FileNotFound));
        assert_eq!(renamed(way, &[]), (gone, vec![]));
    }
}

#[test]
fn only_where_the_system_call_is_not_supported_a_file_is_renamed_in_two_steps() {
    let failing = |errno| {
        renamed(
            |from: &Dentry<'_>, to: &Dentry<'_>| rename(from, to, |_, _| Err(errno)),
            &["a.txt"],
        )
    };
    for errno in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
        assert_eq!(failing(errno), (Ok(()), vec![file("b.txt", "a.txt")]), "{errno}");
    }
    for errno in [Errno::EXIST, Errno::NOENT, Errno::ACCESS, Errno::IO] {
        let untouched = (Err(ActionError::acting_on_file(errno)), vec![file("a.txt", "a.txt")]);
        assert_eq!(failing(errno), untouched, "{errno}");
    }
}
