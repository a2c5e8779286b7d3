use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{PRIVATE, write};

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
