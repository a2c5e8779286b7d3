//! A connection pooler between a node and PostgreSQL, small enough to stand here: it lends one server connection
//! to all clients, a transaction at a time, or gives each client its own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{House, SERVER};
use crate::binary::{Output, Place};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Each client has a server connection.
    Session,
    /// The same, without the startup parameter `options`.
    SessionWithoutOptions,
    /// All clients share one, a transaction at a time.
    Transaction,
}

/// A connection to the server, and what it said when it was ready.
struct Lent {
    stream: TcpStream,
    greeting: Vec<u8>,
}

/// One message with its type, length and body.
fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[1..].try_into().unwrap());
    let mut message = head.to_vec();
    message.resize(usize::try_from(length).unwrap() + 1, 0);
    stream.read_exact(&mut message[5..]).ok()?;
    Some(message)
}

/// What the server says until it is ready for more, and whether it is in no transaction then.
fn until_ready(stream: &mut TcpStream) -> Option<(Vec<u8>, bool)> {
    let mut said = Vec::new();
    loop {
        let message = message(stream)?;
        said.extend_from_slice(&message);
        if message[0] == b'Z' {
            return Some((said, message[5] == b'I'));
        }
    }
}

fn startup(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    client.read_exact(&mut length).ok()?;
    let mut packet = length.to_vec();
    packet.resize(usize::try_from(u32::from_be_bytes(length)).unwrap(), 0);
    client.read_exact(&mut packet[4..]).ok()?;
    Some(packet)
}

/// The packet without the parameter `options`.
fn without_options(packet: &[u8]) -> Vec<u8> {
    let texts: Vec<&[u8]> = packet[8..].split(|byte| *byte == 0).collect();
    let mut body = packet[4..8].to_vec();
    for pair in texts.chunks(2).filter(|pair| pair.len() == 2 && !pair[0].is_empty()) {
        if pair[0] != b"options" {
            body.extend(pair.iter().flat_map(|text| text.iter().copied().chain([0])));
        }
    }
    body.push(0);
    let length = u32::try_from(body.len() + 4).unwrap();
    [length.to_be_bytes().to_vec(), body].concat()
}

fn opened(packet: &[u8]) -> Lent {
    let mut stream = TcpStream::connect(("127.0.0.1", SERVER.port())).unwrap();
    stream.write_all(packet).unwrap();
    let (greeting, _) = until_ready(&mut stream).unwrap();
    Lent { stream, greeting }
}

fn serve(mode: Mode, shared: &Mutex<Option<Lent>>, mut client: TcpStream) -> Option<()> {
    let packet = startup(&mut client)?;
    let own = Mutex::new(None);
    let (place, packet) = match mode {
        Mode::Session => (&own, packet),
        Mode::SessionWithoutOptions => (&own, without_options(&packet)),
        Mode::Transaction => (shared, packet),
    };
    let greeting = place.lock().unwrap().get_or_insert_with(|| opened(&packet)).greeting.clone();
    client.write_all(&greeting).ok()?;
    let mut lent: Option<MutexGuard<'_, Option<Lent>>> = None;
    loop {
        let mut asked = Vec::new();
        loop {
            let message = message(&mut client)?;
            asked.extend_from_slice(&message);
            match message[0] {
                b'X' => return None,
                b'Q' | b'S' => break,
                _ => {}
            }
        }
        let mut guard = lent.take().unwrap_or_else(|| place.lock().unwrap());
        let server = &mut guard.as_mut().unwrap().stream;
        server.write_all(&asked).ok()?;
        let (said, is_idle) = until_ready(server)?;
        client.write_all(&said).ok()?;
        lent = (!is_idle).then_some(guard);
    }
}

/// Runs a step through a pooler.
fn through(mode: Mode) -> (Output, House) {
    let house = House::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let shared = Arc::new(Mutex::new(None));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || serve(mode, &shared, client));
        }
    });
    let url = house.url.replace(&SERVER.port().to_string(), &port.to_string());
    let place = Place::with(vec![("STEPGATE_STORE", url.into())]);
    (place.stepgate(["run", "THINK"], ""), house)
}

#[test]
fn a_pooler_that_does_not_keep_sessions_is_refused_before_anything_is_written() {
    let (kept, _house) = through(Mode::Session);
    assert_eq!(kept.code, 0, "{kept:?}");
    let rows = [
        (Mode::Transaction, "gives each transaction another server connection"),
        (Mode::SessionWithoutOptions, "drops the settings of a connection"),
    ];
    for (mode, expected) in rows {
        let (refused, house) = through(mode);
        assert_eq!(refused.code, 1, "{mode:?}: {refused:?}");
        assert!(refused.stderr.contains(expected), "{mode:?}: {refused:?}");
        assert!(refused.stderr.contains("pool_mode = session"), "{mode:?}: {refused:?}");
        let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
        assert_eq!(house.sql(tables).unwrap(), "0", "{mode:?}");
    }
}
