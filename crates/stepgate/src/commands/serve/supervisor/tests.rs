use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::{State, send};

fn received(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 64];
    let count = socket.recv(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[test]
fn a_supervisor_is_told_at_a_path_and_at_an_abstract_name() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    send(path.as_os_str(), State::Ready).unwrap();
    send(path.as_os_str(), State::Stopping).unwrap();
    assert_eq!((received(&socket), received(&socket)), ("READY=1".into(), "STOPPING=1".into()));

    let name = format!("stepgate-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    send(OsStr::new(&format!("@{name}")), State::Ready).unwrap();
    assert_eq!(received(&socket), "READY=1");
}

#[test]
fn a_supervisor_that_is_gone_is_an_error_to_log() {
    let directory = tempfile::TempDir::new().unwrap();
    send(directory.path().join("none").as_os_str(), State::Ready).unwrap_err();
}
