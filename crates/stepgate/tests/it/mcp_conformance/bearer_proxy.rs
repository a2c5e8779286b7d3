//! A proxy on the loopback that adds the agent's token to every request, and changes nothing else:
//! the conformance suite has no way to send one.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Where it listens. It goes on until the tests end.
pub(crate) fn before(gateway: SocketAddr, token: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let added = format!("authorization: Bearer {token}\r\n");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (added, own) = (added.clone(), address.to_string());
            thread::spawn(move || {
                let _ = carry(&client, gateway, &own, &added);
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// Carries the requests of one connection, one after the other, and whatever is answered.
fn carry(client: &TcpStream, gateway: SocketAddr, own: &str, added: &str) -> io::Result<()> {
    let mut server = TcpStream::connect(gateway)?;
    let (mut answers, mut back) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let mut requests = BufReader::new(client.try_clone()?);
    let outcome = loop {
        match request(&mut requests, &mut server, &gateway.to_string(), own, added) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // A client that leaves must be seen to leave: the gateway treats that as an answer that was lost.
    let _ = server.shutdown(Shutdown::Both);
    outcome
}

/// Passes one request on. The proxy's own address stands for the gateway's; any other host or origin
/// stays as it is, because some scenarios are about exactly that.
fn request(
    requests: &mut BufReader<TcpStream>,
    server: &mut TcpStream,
    gateway: &str,
    own: &str,
    added: &str,
) -> io::Result<bool> {
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if requests.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        }
        head.push_str(&line);
        if head.len() == line.len() {
            head.push_str(added);
        }
    }
    let head = head.replace(own, gateway) + "\r\n";
    server.write_all(head.as_bytes())?;
    io::copy(&mut requests.by_ref().take(length), server)?;
    Ok(true)
}
