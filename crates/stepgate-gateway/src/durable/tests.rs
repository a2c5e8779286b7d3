use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{PRIVATE, replace, write};

#[test]
fn a_file_is_replaced_as_a_whole_and_is_its_owners_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node_id");
    for text in ["first", "second"] {
        write(&file, text.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, PRIVATE);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left over");
}

#[test]
fn a_write_that_fails_leaves_nothing_over() {
    let directory = tempfile::tempdir().unwrap();
    let taken = directory.path().join("taken");
    fs::create_dir_all(taken.join("by a directory")).unwrap();
    write(&taken, b"x").unwrap_err();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_replaced_keeps_its_permissions_and_a_link_to_it_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (file, link) = (directory.path().join("stepgate.toml"), directory.path().join("link"));
    fs::write(&file, "first").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&file, &link).unwrap();
    replace(&link, b"second").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "second");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left over");
    let missing = directory.path().join("missing");
    assert!(replace(&missing, b"x").is_err() && !missing.exists());
}
