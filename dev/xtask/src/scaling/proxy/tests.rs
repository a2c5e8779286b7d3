//! Messages as PostgreSQL's protocol frames them, cut anywhere.

use super::Messages;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind], &length[..], body].concat()
}

#[test]
fn every_message_is_seen_once_wherever_the_stream_is_cut() {
    // A start without a type whose bytes look like types, then three messages.
    let start = [&12u32.to_be_bytes()[..], b"SSSSQQQQ"].concat();
    let stream =
        [start, message(b'P', b"Syncs"), message(b'S', b""), message(b'Q', b"SELECT 1\0")].concat();
    for cut in 0..=stream.len() {
        let mut messages = Messages::of_client();
        let mut seen = Vec::new();
        let (before, after) = stream.split_at(cut);
        messages.pass(before, |kind| seen.push(kind));
        messages.pass(after, |kind| seen.push(kind));
        assert_eq!(seen, b"PSQ", "cut at {cut}");
    }
}

#[test]
fn a_server_has_a_type_from_the_first_byte_on() {
    let stream = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
    let mut seen = Vec::new();
    Messages::of_server().pass(&stream, |kind| seen.push(kind));
    assert_eq!(seen, b"RZ");
}
