//! Everything in Stepgate that acts: only this crate may touch what agents touch.
//!
//! Read `sandbox.rs` first: the core actions on one directory, which an agent knows as `/sandbox/`. Then
//! `servers.rs`: the tools of programs that speak MCP, and `launcher.rs`: how such a program is started so
//! that it cannot outlive the gateway. Nothing here decides whether an action may be done. To AUTHORIZE it
//! adds only the rules that need the file system ([`rule`]), checked again at the moment of use.
//!
//! Deliberately absent: no path is ever joined to a host path and opened. The directory is opened once, and
//! the kernel resolves every path beneath that handle without following links. Only processes that an
//! operator has configured are started, none by a proposal, and no error text of the host leaves the crate
//! in a result.
//!
//! Linux 5.6 or later only: with `openat2`, replacing a file between decision and act gains an attacker
//! nothing. A resolution in user space would be a second implementation of the one thing that must not
//! differ.

#[cfg(not(target_os = "linux"))]
compile_error!("stepgate-exec needs Linux: paths are resolved with openat2");

mod sandbox;
pub mod servers;
pub mod launcher;

pub use sandbox::crash::CrashPoint;
#[cfg(feature = "crashpoints")]
pub use sandbox::crash::{AtCrashPoint, CrashHook};
pub use sandbox::{
    COPY_ENTRIES_MAX, COPY_WALKS_MAX, CopiedFile, Earlier, Identity, Moved, Now, Sandbox,
    SandboxCopy, SandboxError, SandboxLimits, Skipped, copy, file_at, files_in, recorded_file,
    rule,
};
