use std::sync::Arc;

use stepgate_core::ids::{RunId, SessionId};
use stepgate_core::ports::{OriginalPayload, Place, StepCommit};
use uuid::Uuid;

use super::{PayloadKeys, VERSION, hex};

const PAYLOAD: &[u8] = br#"{"args":{"pin":"1234"}}"#;

fn run(number: u128) -> RunId {
    RunId::new(Uuid::from_u128(number))
}

fn keys(bytes: &[u8]) -> PayloadKeys {
    let lines: Vec<String> = bytes.iter().map(|byte| hex(&[*byte; 32])).collect();
    PayloadKeys::parse(&lines.join("\n")).unwrap()
}

fn sealed(keys: &PayloadKeys, run_id: RunId) -> Vec<u8> {
    let place = Place { session_id: SessionId::new(Uuid::from_u128(9)), run_id };
    let commit = StepCommit { sealed: Some(Arc::from(PAYLOAD)), ..StepCommit::at(place) };
    keys.seal(commit).unwrap().sealed.unwrap().to_vec()
}

fn known() -> OriginalPayload {
    OriginalPayload::Known(Arc::from(PAYLOAD))
}

#[test]
fn what_is_stored_does_not_show_the_payload_and_opens_again() {
    let keys = keys(&[1]);
    let stored = sealed(&keys, run(1));
    assert!(!stored.windows(4).any(|window| window == b"1234"), "{stored:?}");
    assert_ne!(stored, sealed(&keys, run(1)), "a new nonce each time");
    assert_eq!(keys.open(run(1), stored).unwrap(), known());
}

#[test]
fn only_the_key_and_the_run_it_was_encrypted_with_open_it() {
    let stored = sealed(&keys(&[1]), run(1));
    assert!(keys(&[1]).open(run(2), stored.clone()).is_err());
    let locked = keys(&[2]).open(run(1), stored.clone()).unwrap();
    assert!(matches!(locked, OriginalPayload::Locked { .. }), "{locked:?}");
    let without = PayloadKeys::default().open(run(1), stored.clone()).unwrap();
    assert_eq!(without, locked);
    // After a new key was put first, the one before still opens what it has encrypted.
    assert_eq!(keys(&[2, 1]).open(run(1), stored).unwrap(), known());
    assert_eq!(keys(&[2]).open(run(1), sealed(&keys(&[2, 1]), run(1))).unwrap(), known());
}

#[test]
fn any_changed_byte_and_any_shortening_is_noticed() {
    let keys = keys(&[1]);
    let stored = sealed(&keys, run(1));
    for at in 1..stored.len() {
        let mut changed = stored.clone();
        changed[at] ^= 1;
        let opened = keys.open(run(1), changed);
        assert!(!matches!(opened, Ok(OriginalPayload::Known(_))), "byte {at}: {opened:?}");
        let opened = keys.open(run(1), stored[..at].to_vec());
        assert!(!matches!(opened, Ok(OriginalPayload::Known(_))), "{at} bytes: {opened:?}");
    }
}

#[test]
fn a_payload_that_an_earlier_version_stored_is_read_as_it_is() {
    assert_ne!(PAYLOAD.first(), Some(&VERSION));
    assert_eq!(keys(&[1]).open(run(1), PAYLOAD.to_vec()).unwrap(), known());
    assert_eq!(
        sealed(&PayloadKeys::default(), run(1)),
        PAYLOAD,
        "and without keys so it is stored"
    );
}

#[test]
fn a_key_file_is_read_strictly() {
    let key = hex(&[7; 32]);
    for (text, expected) in [
        (String::new(), "it has no key"),
        ("# none\n\n".into(), "it has no key"),
        (format!("# two\n{key}\n{key}0\n"), "line 3 is not 64 hexadecimal digits"),
        (format!("{}\n", &key[2..]), "line 1 is not 64 hexadecimal digits"),
        (format!("+{}", &key[1..]), "line 1 is not 64 hexadecimal digits"),
    ] {
        assert_eq!(PayloadKeys::parse(&text).unwrap_err(), expected, "{text}");
    }
    let shown = format!("{:?}", PayloadKeys::parse(&format!("# one\n\n  {key}  \n")).unwrap());
    assert!(shown.starts_with("PayloadKeys([PayloadKey(") && !shown.contains("0707"), "{shown}");
}

#[test]
fn a_fresh_line_is_a_key_and_each_is_another() {
    let [first, second] = [(); 2].map(|()| PayloadKeys::fresh_line().unwrap());
    assert_ne!(first, second);
    PayloadKeys::parse(&first).unwrap();
}
