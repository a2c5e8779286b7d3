use std::fs;

use super::super::SandboxLimits;
use super::*;

#[test]
fn a_destination_that_appears_after_the_look_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::open(directory.path(), SandboxLimits::default()).unwrap();
    let path = |name: &str| SandboxPath::file(&format!("/sandbox/{name}")).unwrap();
    let (source, destination) = (path("a.txt"), path("b.txt"));
    let place = |path| root.place_to_change(path, ExecutionFailure::PathNotFound).unwrap();
    for name in ["a.txt", "b.txt"] {
        fs::write(directory.path().join(name), name).unwrap();
    }
    let renamed = rename(&place(&source), &place(&destination));
    assert_eq!(renamed, Err(Stop::Failed(ExecutionFailure::AlreadyExists)));
    assert_eq!(fs::read_to_string(directory.path().join("b.txt")).unwrap(), "b.txt");
}
