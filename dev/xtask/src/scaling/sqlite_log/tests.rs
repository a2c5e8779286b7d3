//! Logs made by hand, as SQLite's file format describes them.

use super::Log;

const PAGE_BYTES: usize = 512;

fn log(checkpoint: u32, frames: &[(u32, &[u8; 8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0x377f_0683, 3_007_000, 512, checkpoint] {
        bytes.extend(u32::to_be_bytes(word));
    }
    bytes.extend(b"saltsaltchecksum");
    for (size_after_commit, salt) in frames {
        bytes.extend(7u32.to_be_bytes());
        bytes.extend(size_after_commit.to_be_bytes());
        bytes.extend(*salt);
        bytes.extend(b"checksum");
        bytes.extend([0; PAGE_BYTES]);
    }
    bytes
}

#[test]
fn frames_that_end_a_transaction_are_commits_and_older_ones_do_not_count() {
    let (new, old) = (b"saltsalt", b"oldsalt!");
    let bytes = log(3, &[(0, new), (9, new), (0, new), (10, new), (11, old)]);
    let expected = Log { checkpoint: 3, bytes: 4 * (512 + 24), commits: 2 };
    assert_eq!(Log::parse(&bytes).unwrap(), expected);
    assert_eq!(Log::parse(&[]).unwrap(), Log::default());
}

#[test]
fn a_log_that_began_again_is_not_taken_for_the_same() {
    let before = Log { checkpoint: 1, bytes: 536, commits: 1 };
    let same = Log { checkpoint: 1, bytes: 1608, commits: 2 };
    assert_eq!(same.since(before).unwrap(), Log { checkpoint: 1, bytes: 1072, commits: 1 });
    assert!(Log { checkpoint: 2, ..same }.since(before).is_err());
    assert!(before.since(same).is_err());
}
