use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::*;

#[test]
fn of_all_who_make_a_backup_of_one_name_at_once_one_does_and_it_is_whole() {
    const MAKERS: u32 = 8;
    const ROUNDS: u32 = 20;
    for round in 0..ROUNDS {
        let shelf = TempDir::new().unwrap();
        let (path, made) = (shelf.path().join("monday"), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for maker in 0..MAKERS {
                let (path, made) = (&path, &made);
                scope.spawn(move || {
                    // Retry until the backup exists.
                    while path.symlink_metadata().is_err() {
                        let Ok(target) = Target::begin(path, &[]) else { continue };
                        let text = maker.to_string();
                        target.write("one", text.as_bytes(), 0o600).unwrap();
                        target.write("two", text.as_bytes(), 0o600).unwrap();
                        target.finish().unwrap();
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(made.into_inner(), 1, "round {round}");
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        assert_eq!(read("one"), read("two"), "round {round}");
        let left = fs::read_dir(shelf.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["monday"], "round {round}");
    }
}

#[test]
fn a_lock_that_its_holder_has_removed_is_not_held() {
    let shelf = TempDir::new().unwrap();
    let place = || shelf.path().join(".monday.lock");
    let first = Lock::take(place()).unwrap();
    assert!(Lock::take(place()).is_err());
    drop(first);
    let second = Lock::take(place()).unwrap();
    assert!(place().exists() && Lock::take(place()).is_err());
    drop(second);
    assert!(!place().exists());
}
