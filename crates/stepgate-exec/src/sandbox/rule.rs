//! The rules that only the file system can judge, by the names that the record keeps. Each means
//! DENIED, in AUTHORIZE and again at the moment of use.

use stepgate_core::action::CoreCall;

/// A link stands on the way or at its end; where it leads makes no difference.
pub const SYMBOLIC_LINK: &str = "symbolic link";
/// The file has a second name, perhaps outside the sandbox.
pub const HARD_LINK: &str = "hard link";
/// Neither a regular file nor a directory: a fifo, a socket, a device.
pub const SPECIAL_FILE: &str = "special file";
/// A name that no host should see, or one of Stepgate's own.
pub const RESERVED_NAME: &str = "reserved name";
/// Nobody could look, and doubt means no.
pub const NO_ANSWER: &str = "sandbox did not answer";

/// Refuses names that are never addressable. The core does so too; the sandbox does not rely on it,
/// because a call that reached a temporary file would break what a crash leaves behind.
pub(super) fn judge_names(call: &CoreCall) -> Result<(), &'static str> {
    if call.paths().iter().any(|path| path.has_reserved_component()) {
        Err(RESERVED_NAME)
    } else {
        Ok(())
    }
}
