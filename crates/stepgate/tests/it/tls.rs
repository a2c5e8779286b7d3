//! TLS on both ends: the address of a gateway, and the command line that asks one.

mod asking;
pub(crate) mod authority;
mod console;
mod hidden_key;
mod listening;
mod renewal;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::binary::Place;
use crate::http_client::{Gateway, PATIENCE};
use authority::Authority;

/// What a certificate of these tests is for, unless they say otherwise.
const NAMES: &str = "DNS:localhost,IP:127.0.0.1";

/// A place whose configuration names a certificate beside it.
fn place(authority: &Authority, more: &str) -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path()).unwrap();
    authority.issue(NAMES, 2, &place.path());
    configure(&place, more);
    place
}

fn configure(place: &Place, more: &str) {
    let config = format!("[serve]\ntls_certificate = \"gate.pem\"\ntls_key = \"gate.key\"\n{more}");
    fs::write(place.path().join("stepgate.toml"), config).unwrap();
}

/// Commands that trust this authority, have this token, and no gateway of their own.
fn client(trusted: &Path, token: &str) -> Place {
    Place::with(vec![("SSL_CERT_FILE", trusted.into()), ("STEPGATE_TOKEN", token.into())])
}

type Connection = StreamOwned<ClientConnection, TcpStream>;

/// A connection whose handshake is over.
fn connect(address: SocketAddr, config: ClientConfig) -> io::Result<Connection> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Asks over a connection that is kept: what came back, all of it.
fn ask(stream: &mut Connection, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let (mut text, mut part) = (String::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut part)?;
        text.push_str(std::str::from_utf8(&part[..count]).unwrap());
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if count == 0 || length.is_some_and(|it| body.len() == it.parse::<usize>().unwrap()) {
                return Ok(text);
            }
        }
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Whether a kept connection still gets answers.
fn is_answered(stream: &mut Connection) -> bool {
    let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    ask(stream, request).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
}

/// The address on this machine, also where all of them are listened on.
fn here(gateway: &Gateway) -> SocketAddr {
    ([127, 0, 0, 1], gateway.address.port()).into()
}

/// Its URL, by a name that the certificate has.
fn url(gateway: &Gateway) -> String {
    format!("https://localhost:{}", gateway.address.port())
}
