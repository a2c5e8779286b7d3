use super::*;

#[test]
fn every_error_of_the_host_has_one_failure_in_the_closed_table() {
    let rows = [
        (Errno::NOENT, ExecutionFailure::PathNotFound),
        (Errno::NOTDIR, ExecutionFailure::NotADirectory),
        (Errno::ISDIR, ExecutionFailure::NotAFile),
        (Errno::EXIST, ExecutionFailure::AlreadyExists),
        (Errno::FBIG, ExecutionFailure::FileTooLarge),
        (Errno::NOSPC, ExecutionFailure::StorageFull),
        (Errno::DQUOT, ExecutionFailure::StorageFull),
        (Errno::ACCESS, ExecutionFailure::PermissionDenied),
        (Errno::PERM, ExecutionFailure::PermissionDenied),
        (Errno::ROFS, ExecutionFailure::PermissionDenied),
        (Errno::NAMETOOLONG, ExecutionFailure::Io),
        (Errno::IO, ExecutionFailure::Io),
        (Errno::MFILE, ExecutionFailure::Unavailable),
        (Errno::NFILE, ExecutionFailure::Unavailable),
        (Errno::XDEV, ExecutionFailure::Io),
    ];
    for (errno, failure) in rows {
        assert_eq!(ActionError::from(errno), ActionError::Failed(failure), "{errno:?}");
        let error = std::io::Error::from(errno);
        assert_eq!(ActionError::from(error), ActionError::Failed(failure), "{errno:?}");
    }
}

#[test]
fn while_resolving_a_link_and_a_special_file_are_refused_and_absence_is_the_callers() {
    let missing = ExecutionFailure::FileNotFound;
    let rows = [
        (Errno::LOOP, ActionError::Refused(rule::SYMBOLIC_LINK)),
        (Errno::XDEV, ActionError::Refused(rule::SYMBOLIC_LINK)),
        (Errno::NXIO, ActionError::Refused(rule::SPECIAL_FILE)),
        (Errno::NODEV, ActionError::Refused(rule::SPECIAL_FILE)),
        (Errno::NOENT, ActionError::Failed(missing)),
        (Errno::ACCESS, ActionError::Failed(ExecutionFailure::PermissionDenied)),
    ];
    for (errno, stop) in rows {
        assert_eq!(ActionError::resolving(errno, missing), stop, "{errno:?}");
    }
}
