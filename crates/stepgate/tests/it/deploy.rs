//! What is in `deploy/`, as its users get it: the Debian package on a machine with systemd, the image under podman, the
//! manifests before the schemas of their readers.

mod image;
mod machine;
mod manifests;
mod namespaces;
mod package;
mod podman;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use crate::http_client::{Reply, exchange, request};

/// The target directory, seen from `TARGET/debug/deps/it-…`.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// An address that nothing listens on.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// A gateway that some supervisor has started: where it listens, and where its data directory is for root.
struct Served {
    address: SocketAddr,
    data: PathBuf,
}

impl Served {
    fn ask(&self, method: &str, path: &str, role: &str, body: &str) -> Reply {
        let token = fs::read_to_string(self.data.join(format!("{role}.token"))).unwrap();
        let request = request(method, path, token.trim(), &[], body);
        exchange(self.address, request.as_bytes()).unwrap()
    }

    fn propose(&self, proposal: &str) -> Reply {
        self.ask("POST", "/v1/steps", "agent", proposal)
    }

    fn status_of(&self, path: &str) -> Option<u16> {
        let request = request("GET", path, "", &[], "");
        exchange(self.address, request.as_bytes()).map(|reply| reply.status)
    }
}

/// Whether this process can make namespaces and mount in them as root; otherwise says what is skipped.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can start a machine or a container here");
    }
    is_root
}
