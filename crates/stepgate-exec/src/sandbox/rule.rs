//! The rules that need the file system, by the names that the record keeps. Each means DENIED, in AUTHORIZE
//! and again at the moment of use.

use stepgate_core::action::CoreCall;

/// A link is on the path or at its end; its target makes no difference.
pub const SYMBOLIC_LINK: &str = "symbolic link";
/// The file has a second name, perhaps outside the sandbox.
pub const HARD_LINK: &str = "hard link";
/// Neither a regular file nor a directory: a fifo, a socket, a device.
pub const SPECIAL_FILE: &str = "special file";
/// A reserved name of the host, or one of Stepgate's own files.
pub const RESERVED_NAME: &str = "reserved name";
/// The state could not be read, and in doubt the call is refused.
pub const NO_ANSWER: &str = "sandbox did not answer";

/// Refuses names that are never addressable. The core does so too, but the sandbox does not rely on it: a
/// call that reached a temporary file would break crash recovery.
pub(super) fn judge_names(call: &CoreCall) -> Result<(), &'static str> {
    if call.paths().iter().any(|path| path.has_reserved_component()) {
        Err(RESERVED_NAME)
    } else {
        Ok(())
    }
}
