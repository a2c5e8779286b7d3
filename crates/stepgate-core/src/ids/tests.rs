use serde_json::json;

use super::{ArtifactId, IdPrefix, IdempotencyKey, PrincipalId, ProposalId, RunId};

const RUN: &str = "01893b6e-7a00-7000-8000-00000000000a";
const NIL: &str = "00000000-0000-0000-0000-000000000000";

#[test]
fn our_ids_read_back_from_their_one_spelling() {
    let id: RunId = RUN.parse().unwrap();
    assert_eq!(id.to_string(), RUN);
    assert_eq!(serde_json::to_value(id).unwrap(), json!(RUN));
    assert_eq!(serde_json::from_value::<RunId>(json!(RUN)).unwrap(), id);
    assert_eq!(RunId::new(id.as_uuid()), id);
}

#[test]
fn the_beginning_of_an_id_has_eight_characters_or_more_and_any_case() {
    let id: RunId = RUN.parse().unwrap();
    for text in ["01893b6e", "01893B6E-7a00", RUN] {
        assert!(IdPrefix::parse(text).unwrap().fits(&id), "{text}");
    }
    assert!(!IdPrefix::parse("1893b6e-7a00").unwrap().fits(&id));
    for text in ["", "01893b6", "01893b6g", "last", "01893b6e%", "01893b6 "] {
        assert!(IdPrefix::parse(text).is_err(), "{text}");
    }
}

#[test]
fn other_spellings_of_our_ids_are_refused() {
    let upper = RUN.to_ascii_uppercase();
    let simple = RUN.replace('-', "");
    let braced = format!("{{{RUN}}}");
    let urn = format!("urn:uuid:{RUN}");
    let spaced = format!(" {RUN}");
    for text in ["", "x", &upper, &simple, &braced, &urn, &spaced, &RUN[1..]] {
        assert!(text.parse::<RunId>().is_err(), "{text}");
        assert!(serde_json::from_value::<ArtifactId>(json!(text)).is_err(), "{text}");
    }
}

#[test]
fn a_proposal_s_id_keeps_its_spelling() {
    let mixed = "550E8400-e29b-41D4-a716-446655440000";
    for text in [RUN, NIL, mixed, "ffffffff-ffff-ffff-ffff-ffffffffffff"] {
        assert_eq!(ProposalId::parse(text).unwrap().as_str(), text);
    }
    let simple = RUN.replace('-', "");
    let braced = format!("{{{RUN}}}");
    let urn = format!("urn:uuid:{RUN}");
    for text in [
        "",
        "not-a-uuid",
        &simple,
        &braced,
        &urn,
        "550e8400-e29b-41d4-a716-44665544000",
        "550e8400-e29b-41d4-a716-4466554400000",
        "550e8400-e29b-41d4-a716-44665544000g",
        "550e8400e-29b-41d4-a716-446655440000",
        " 550e8400-e29b-41d4-a716-44665544000",
        "550e8400-e29b-41d4-a716_446655440000",
    ] {
        assert!(ProposalId::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_principal_has_1_to_64_harmless_characters() {
    let longest = "p".repeat(PrincipalId::BYTES_MAX);
    for text in ["a", "agent", "Agent-7.local_x", "..", &longest] {
        assert_eq!(PrincipalId::parse(text).unwrap().as_str(), text);
        assert!(serde_json::from_value::<PrincipalId>(json!(text)).is_ok());
    }
    let too_long = "p".repeat(PrincipalId::BYTES_MAX + 1);
    for text in ["", " ", "a/b", "a b", "é", "a\n", "a:b", "a@b", "\0", &too_long] {
        assert!(PrincipalId::parse(text).is_err(), "{text}");
        assert!(serde_json::from_value::<PrincipalId>(json!(text)).is_err(), "{text}");
    }
}

#[test]
fn a_key_is_the_principal_and_the_id_as_a_number() {
    let key = |principal, id| {
        IdempotencyKey::of(&PrincipalId::parse(principal).unwrap(), &ProposalId::parse(id).unwrap())
    };
    let lower = "550e8400-e29b-41d4-a716-446655440000";
    let upper = lower.to_ascii_uppercase();
    assert_eq!(key("agent", lower).as_str(), format!("agent/{lower}"));
    assert_eq!(key("agent", &upper), key("agent", lower));
    assert_ne!(key("agent", lower), key("Agent", lower));
    assert_ne!(key("agent", lower), key("agent", NIL));
    let stored = IdempotencyKey::from_stored(format!("agent/{lower}"));
    assert_eq!(key("agent", lower), stored);
    assert_eq!(serde_json::to_value(&stored).unwrap(), json!(stored.to_string()));
}

#[test]
fn a_refused_text_is_repeated_only_in_part() {
    let error = "x".repeat(10_000).parse::<RunId>().unwrap_err();
    assert!(error.to_string().len() < 200);
}
