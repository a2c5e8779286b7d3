//! The corpora as ordinary tests, and random bytes beside them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

type Target = fn(&[u8]);

/// Every target, with the name of its corpus.
const TARGETS: [(&str, Target); 5] = [
    ("canonical", crate::canonical),
    ("machine", crate::machine),
    ("parser", crate::parser),
    ("path", crate::path),
    ("step", crate::step),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.map(|entry| entry.path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_corpus_and_every_binary_has_its_target() {
    let names: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names_in(&root().join("corpus")), names);
    assert_eq!(names_in(&root().join("fuzz_targets")), names);
}

#[test]
fn every_file_of_every_corpus_is_replayed() {
    for (name, target) in TARGETS {
        let mut files = 0;
        for entry in fs::read_dir(root().join("corpus").join(name)).unwrap() {
            let path = entry.unwrap().path();
            // Shown only when the target panics.
            println!("{}", path.display());
            target(&fs::read(path).unwrap());
            files += 1;
        }
        assert!(files >= 8, "{name} has {files} files");
    }
}

/// Bytes that are often nearly text.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let json = r#"([\[\]{},:" ]|true|null|-?[0-9]{1,20}|[.eE+-]|\\u[0-9a-f]{4}|"[a-c]?"){0,24}"#;
    let path = r"/sandbox/([a-b./:]|CON|\.\.){0,12}";
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..96),
        json.prop_map(String::into_bytes),
        path.prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_target_finds_fault_with_random_bytes(bytes in bytes()) {
        for (_, target) in TARGETS {
            target(&bytes);
        }
    }

    /// Mostly right appends, so that the model sees whole journals and what may follow them.
    #[test]
    fn no_log_is_judged_otherwise_than_the_model_judges_it(
        steps in prop::collection::vec((0_u8..4, any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>()), 0..40),
    ) {
        let states = |from: u8, to: u8| ((from % 6) << 4) | (to % 6);
        let bytes: Vec<_> = steps
            .into_iter()
            .flat_map(|(what, place, from, to, flaws)| {
                // Three in four have no flaw, and the others seldom more than one.
                [what, place, states(from, to), if flaws < 192 { 0 } else { 1 << (flaws % 8) }]
            })
            .collect();
        crate::machine(&bytes);
    }
}
