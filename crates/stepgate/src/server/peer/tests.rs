use super::{ANCESTORS_MAX, is_foreign, parent_of};

#[test]
fn a_descendant_is_known_however_far_it_is() {
    let chain = |pid: i32| Some(pid - 1);
    assert!(!is_foreign(9, 8, chain));
    assert!(!is_foreign(9, 2, chain));
    assert!(is_foreign(9, 100, chain));
}

#[test]
fn what_cannot_be_told_is_no() {
    assert!(!is_foreign(9, 2, |_| None));
    assert!(!is_foreign(9, 2, |_| Some(9)));
    let long = i32::try_from(ANCESTORS_MAX).unwrap();
    assert!(is_foreign(long, -1, |pid| Some(pid - 1)));
    assert!(!is_foreign(long + 1, -1, |pid| Some(pid - 1)));
}

#[test]
fn the_kernel_tells_the_parent() {
    let us = rustix::process::getpid().as_raw_nonzero().get();
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
    assert_eq!(parent_of(us), parent);
    assert_eq!(parent_of(i32::MAX), None);
}
