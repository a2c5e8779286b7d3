//! Tells systemd, or another supervisor with the same protocol, when the gateway serves and when it begins to stop
//! (`sd_notify(3)`). So a unit with `Type=notify` counts as started only once requests are answered.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::warn;

/// The variable that names the supervisor's socket. It is no setting of Stepgate's, and tool servers do not get it.
const SOCKET: &str = "NOTIFY_SOCKET";

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// Requests are answered.
    Ready,
    /// It has begun to stop.
    Stopping,
}

impl State {
    fn message(self) -> &'static [u8] {
        match self {
            Self::Ready => b"READY=1",
            Self::Stopping => b"STOPPING=1",
        }
    }
}

/// Tells the supervisor, if there is one. A failure is logged and changes nothing: the supervisor has a timeout.
pub(super) fn tell(state: State) {
    if let Some(socket) = std::env::var_os(SOCKET)
        && let Err(error) = send(&socket, state)
    {
        warn!("cannot tell the supervisor {state:?} at `{}`: {error}", socket.display());
    }
}

fn send(socket: &OsStr, state: State) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.message(), &address).map(drop)
}

#[cfg(test)]
mod tests;
