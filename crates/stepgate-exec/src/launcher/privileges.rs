//! What a tool server's process must not share with the gateway: its capabilities, and access to its memory.

use rustix::io::{Errno, Result};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Closes `/proc/PID/environ`, `mem`, `fd` and the like of this process to every process without
/// CAP_SYS_PTRACE, also to processes of the same user. It also disables core dumps. The environment has
/// secrets, and they cannot be removed from it while other threads may read it.
pub fn protect_this_process() -> Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// Gives up every capability, for this process and all that it starts. A command run as root would otherwise
/// have CAP_SYS_PTRACE, with which it could read the gateway's memory, and CAP_SYS_ADMIN, with which it
/// could undo everything else.
pub(super) fn give_up() -> Result<()> {
    // INVARIANT: from here on no program gives a capability back, neither by its owner nor by its file.
    set_no_new_privs(true)?;
    empty_bounding_set()?;
    // A kernel before 4.3 has no ambient set.
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(errno),
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// Without CAP_SETPCAP the set cannot be changed; then `no_new_privs` alone keeps programs from using it.
fn empty_bounding_set() -> Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => match remove_capability_from_bounding_set(capability) {
                Ok(()) => {}
                Err(Errno::PERM) => return Ok(()),
                Err(errno) => return Err(errno),
            },
            Ok(false) => {}
            // The kernel has no more capabilities.
            Err(Errno::INVAL) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
