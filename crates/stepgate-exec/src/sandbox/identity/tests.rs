use std::fs;
use std::path::Path;

use super::super::resolve::stat_of;
use super::*;

fn recorded(device: &str, inode: &str, born: Option<&str>, changed: Option<&str>) -> Identity {
    let text = |time: Option<&str>| time.map(str::to_owned);
    Identity {
        device: device.into(),
        inode: inode.into(),
        born: text(born),
        changed: text(changed),
        modified: None,
        stamped: None,
    }
}

#[test]
fn a_file_is_the_recorded_one_only_where_something_proves_it() {
    use Likeness::{Other, Same, Unsure};
    let born = Some("1.0");
    let changed = Some("2.0");
    let was = recorded("d", "i", born, changed);
    let rows = [
        (recorded("d", "i", born, changed), Same),
        // Renamed, written to, given other permissions.
        (recorded("d", "i", born, Some("3.0")), Same),
        // Another file that reused the inode.
        (recorded("d", "i", Some("9.0"), Some("9.0")), Other),
        (recorded("d", "i", Some("9.0"), changed), Other),
        (recorded("d", "j", born, changed), Other),
        // The file system reports less than before.
        (recorded("d", "i", None, changed), Same),
        (recorded("d", "i", None, Some("3.0")), Unsure),
        (recorded("d", "i", None, None), Unsure),
        (recorded("d", "j", None, None), Other),
        // Another device, or the same one under another number.
        (recorded("e", "i", born, changed), Same),
        // Renamed, and then a restart changed the device number.
        (recorded("e", "i", born, Some("3.0")), Same),
        (recorded("e", "i", Some("9.0"), changed), Unsure),
        (recorded("e", "i", None, changed), Unsure),
        (recorded("e", "j", born, changed), Unsure),
    ];
    for (now, likeness) in rows {
        assert_eq!(was.likeness(&now), likeness, "{now:?}");
        assert_eq!(was.is_certainly(&now), likeness == Same, "{now:?}");
    }
    // As an earlier build recorded it.
    let was = recorded("d", "i", None, None);
    assert_eq!(was.likeness(&recorded("d", "i", born, changed)), Unsure);
    assert_eq!(was.likeness(&recorded("d", "j", born, changed)), Other);
    assert_eq!(was.likeness(&recorded("e", "i", born, changed)), Unsure);
}

#[test]
fn a_file_is_untouched_only_where_nothing_was_done_to_it() {
    let (born, changed) = (Some("1.0"), Some("2.0"));
    let was = recorded("d", "i", born, changed);
    let rows = [
        (recorded("d", "i", born, changed), true),
        (recorded("e", "i", born, changed), true),
        (recorded("d", "i", born, Some("3.0")), false),
        (recorded("d", "i", Some("9.0"), changed), false),
        (recorded("d", "j", born, changed), false),
        (recorded("d", "i", born, None), false),
    ];
    for (now, is_untouched) in rows {
        assert_eq!(was.is_untouched(&now), is_untouched, "{now:?}");
    }
}

fn stat(path: &Path) -> Statx {
    stat_of(rustix::fs::CWD, path).unwrap()
}

#[test]
fn a_file_that_is_made_after_a_record_is_never_taken_for_the_recorded_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let mut reused = 0;
    for _ in 0..50 {
        fs::write(&path, "old").unwrap();
        let was = Identity::to_record(&stat(&path));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "new").unwrap();
        let now = Identity::of(&stat(&path));
        reused += u32::from((&was.device, &was.inode) == (&now.device, &now.inode));
        assert_eq!(was.likeness(&now), Likeness::Other, "{was:?} {now:?}");
        // As on a file system without birth times.
        let less = |file: Identity| Identity { born: None, ..file };
        assert!(!less(was).is_certainly(&less(now)));
        fs::remove_file(&path).unwrap();
    }
    println!("{reused} of 50 got the inode of the file before");
}

#[test]
fn a_file_that_was_recorded_in_the_tick_of_its_birth_is_told_by_its_stamp() {
    use Likeness::{Other, Same, Unsure};
    let modified = |at: &str, file: Identity| Identity { modified: Some(at.into()), ..file };
    let young = recorded("d", "i", Some("1.0"), Some("1.0"));
    let was = Identity { stamped: Some("1.5".into()), ..modified("1.5", young.clone()) };
    let rows = [
        (modified("1.5", young.clone()), Same),
        // Made in the same tick with the same inode, or written to.
        (modified("1.0", young.clone()), Unsure),
        (young, Unsure),
        (modified("1.5", recorded("d", "i", Some("9.0"), None)), Other),
        (modified("1.5", recorded("d", "j", Some("1.0"), None)), Other),
        // Another device, or the same one under another number.
        (modified("1.5", recorded("e", "i", Some("1.0"), None)), Same),
        (modified("1.0", recorded("e", "i", Some("1.0"), None)), Unsure),
    ];
    for (now, likeness) in rows {
        assert_eq!(was.likeness(&now), likeness, "{now:?}");
    }
}

#[test]
fn a_stamped_file_is_recorded_without_waiting_for_the_clock_and_is_not_taken_for_a_later_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let write = || {
        fs::write(&path, "same").unwrap();
        stamp(fs::File::options().write(true).open(&path).unwrap()).unwrap();
        stat(&path)
    };
    let mut stamped = 0;
    for _ in 0..200 {
        let was = Identity::to_replace(&write());
        stamped += u32::from(was.stamped.is_some());
        assert!(was.is_certainly(&Identity::of(&stat(&path))), "{was:?}");
        fs::remove_file(&path).unwrap();
        let now = Identity::of(&write());
        assert!(!was.is_certainly(&now), "{was:?} {now:?}");
        fs::remove_file(&path).unwrap();
    }
    assert!(stamped > 0, "no file was recorded in the tick of its birth");
}

#[test]
fn what_is_born_in_the_future_is_not_proof_of_anything() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    fs::write(&path, "a").unwrap();
    let mut told = stat(&path);
    told.stx_btime.tv_sec += 3600;
    let recorded = Identity::to_record(&told);
    assert_eq!((recorded.born, recorded.changed), (None, None));
}

#[test]
fn what_earlier_builds_wrote_is_read_and_written_as_it_was() {
    let text = r#"{"device":"1","inode":"2"}"#;
    let read: Identity = serde_json::from_str(text).unwrap();
    assert_eq!(read, recorded("1", "2", None, None));
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert!(!read.is_unmistakable());
}
