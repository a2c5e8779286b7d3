use super::*;

#[test]
fn a_disk_is_low_when_less_is_free_than_is_reserved() {
    let here = Path::new(".");
    let free = 1024 * 1024 * 1024;
    for (reserved, is_low) in [(0, false), (free - 1, false), (free, false), (free + 1, true)] {
        let disk = Disk::new(here, reserved);
        // In the future: the file system is not asked.
        *lock::locked(&disk.looked) =
            Some((Instant::now() + Duration::from_secs(3600), Some(free)));
        assert_eq!((disk.is_low(), disk.trouble().is_some()), (is_low, is_low), "{reserved}");
    }
    assert!(!Disk::new(here, 1).is_low());
    assert!(Disk::new(here, u64::MAX).is_low());
}

#[test]
fn a_directory_that_is_not_there_yet_has_the_disk_of_the_one_around_it() {
    assert!(free_bytes(Path::new("./not/there")).unwrap() > 0);
}

#[test]
fn what_is_written_leaves_what_is_reserved() {
    let here = Path::new("./not/there");
    assert_eq!(Disk::new(here, 0).refuse_without_room(here, 1), Ok(()));
    for (reserved, bytes) in [(u64::MAX, 1), (1, u64::MAX)] {
        let why = Disk::new(here, reserved).refuse_without_room(here, bytes).unwrap_err();
        assert!(why.contains("MiB are free there"), "{why}");
    }
}
