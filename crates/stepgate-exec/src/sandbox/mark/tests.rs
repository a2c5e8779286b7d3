use std::fs;
use std::path::Path;

use super::{NAME, mark};
use crate::sandbox::resolve::Root;
use crate::{SandboxError, SandboxLimits};

fn marked(directory: &Path, is_shared: bool) -> Result<String, SandboxError> {
    mark(&Root::open(directory, SandboxLimits::default()).unwrap(), is_shared)
}

#[test]
fn a_sandbox_keeps_its_mark_and_no_two_have_the_same() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for is_shared in [false, true, false] {
        let found = marked(one.path(), is_shared).unwrap();
        assert_eq!(marked(one.path(), is_shared).unwrap(), found);
        assert_ne!(marked(other.path(), is_shared).unwrap(), found);
    }
    assert_eq!(marked(one.path(), true).unwrap(), marked(one.path(), false).unwrap());
}

#[test]
fn a_copy_is_refused_until_somebody_says_that_it_is_the_only_one() {
    let (one, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let id = marked(one.path(), false).unwrap();
    let line = fs::read_to_string(one.path().join(NAME)).unwrap();
    if line.trim() == id {
        return; // This file system does not say when a file was made.
    }
    fs::copy(one.path().join(NAME), copy.path().join(NAME)).unwrap();
    match marked(copy.path(), false) {
        Err(SandboxError::Copied { id: told }) => assert_eq!(told, id),
        other => panic!("{other:?}"),
    }
    fs::write(copy.path().join(NAME), &id).unwrap();
    assert_eq!(marked(copy.path(), false).unwrap(), id);
    assert_eq!(marked(copy.path(), false).unwrap(), id);
}
