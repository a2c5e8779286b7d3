use serde_json::json;

use super::{broken, check_version};
use crate::failure::Failure;

#[test]
fn a_major_with_leading_zeros_is_no_version_and_not_another_one() {
    assert_eq!(check_version(Some(&json!("1.0.0"))), Ok(()));
    for version in ["01.0.0", "001.2.3"] {
        let zeros = broken("schema_version", "a MAJOR with leading zeros");
        assert_eq!(check_version(Some(&json!(version))), Err(zeros), "{version}");
    }
    for version in ["0.1.0", "2.0.0", "10.0.0", "00.0.0"] {
        let other = Failure::SchemaVersionIncompatible(version.into());
        assert_eq!(check_version(Some(&json!(version))), Err(other), "{version}");
    }
}
