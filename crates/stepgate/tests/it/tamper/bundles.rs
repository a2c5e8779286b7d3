//! Bundles that were changed, or cut, by whoever passed them on.

use std::path::Path;

use serde_json::{Value, json};
use stepgate_core::bundle::Bundle;
use stepgate_core::digest::Digest;
use stepgate_core::ids::PrincipalId;
use stepgate_core::journal::Checkpoint;
use stepgate_core::ports::Runs;
use stepgate_core::run::Status;
use stepgate_core::time::Timestamp;
use stepgate_store::sqlite::SqliteStore;

use super::{database, servers};

/// The bundle of each run of the database, by its status.
async fn bundles(original: &Path) -> Vec<Bundle> {
    let store = SqliteStore::open_read_only(&original.join("stepgate.db")).unwrap();
    let mut bundles = Vec::new();
    for run_id in store.run_ids(None, 100).await.unwrap() {
        bundles.push(Bundle::of(&store.dossier(run_id).await.unwrap().unwrap()).unwrap());
    }
    bundles
}

#[tokio::test]
async fn a_bundle_of_every_run_verifies_and_one_with_another_status_does_not() {
    let original = database().await;
    for bundle in bundles(original.path()).await {
        assert_eq!(bundle.verify(), [], "{:?}", bundle.run.status);
        for status in Status::ALL.into_iter().filter(|status| *status != bundle.run.status) {
            let mut tampered = bundle.clone();
            tampered.run.status = status;
            assert_ne!(tampered.verify(), [], "{:?} as {status:?}", bundle.run.status);
        }
    }
}

#[tokio::test]
async fn a_bundle_without_a_record_has_no_ending() {
    let original = database().await;
    let changes: [fn(&mut Bundle); 7] = [
        |bundle| bundle.run.output_json = Some("1".into()),
        |bundle| bundle.run.error_json = Some("1".into()),
        |bundle| bundle.run.error_json = Some("null".into()),
        |bundle| bundle.run.latency_ms = Some(1),
        |bundle| bundle.checkpoint = None,
        |bundle| {
            bundle.entries.clear();
            bundle.artifacts.clear();
        },
        |bundle| bundle.run.status = Status::Started,
    ];
    let mut paused = bundles(original.path()).await;
    paused.retain(|bundle| bundle.run.status == Status::ApprovalRequired);
    assert_eq!(paused.len(), 1);
    for (number, change) in changes.into_iter().enumerate() {
        let mut tampered = paused[0].clone();
        change(&mut tampered);
        assert_ne!(tampered.verify(), [], "change {number}");
    }
    for mut bundle in bundles(original.path()).await {
        if bundle.record.take().is_some() {
            assert_ne!(bundle.verify(), [], "{:?} without its record", bundle.run.status);
        }
    }
}

#[tokio::test]
async fn a_bundle_of_a_failed_run_keeps_what_its_tool_said_and_nothing_else() {
    let original = servers::database().await;
    let mut failed = bundles(original.path()).await;
    failed.extend(bundles(database().await.path()).await);
    failed.retain(|bundle| bundle.run.error_json.is_some());
    let said: Vec<_> = failed.iter().filter_map(|it| it.run.output_json.as_deref()).collect();
    assert_eq!(said, [servers::SAID]);
    for bundle in failed {
        assert_eq!(bundle.verify(), []);
        for other in [None, Some("{}".to_owned()), Some(servers::SAID.to_owned())] {
            let mut tampered = bundle.clone();
            tampered.run.output_json.clone_from(&other);
            let is_as_it_was = bundle.run.output_json == other;
            assert_eq!(tampered.verify().is_empty(), is_as_it_was, "{:?}", bundle.run);
        }
    }
}

#[tokio::test]
async fn a_bundle_of_a_run_that_succeeded_has_no_error_not_even_null() {
    for mut bundle in bundles(database().await.path()).await {
        if bundle.run.status == Status::Ok {
            bundle.run.error_json = Some("null".into());
            assert_ne!(bundle.verify(), []);
        }
    }
}

#[tokio::test]
async fn a_bundle_whose_checkpoint_is_of_another_schema_does_not_verify() {
    let original = database().await;
    let changes: [fn(&mut Checkpoint); 2] =
        [|it| it.schema_id.to_mut().push('x'), |it| it.schema_version.to_mut().push('x')];
    let mut bundles = bundles(original.path()).await;
    bundles.retain(|bundle| bundle.checkpoint.is_some());
    for change in changes {
        let mut tampered = bundles[0].clone();
        change(tampered.checkpoint.as_mut().unwrap());
        assert_ne!(tampered.verify(), []);
    }
}

/// The one that waits for a person.
async fn paused() -> Bundle {
    let mut paused = bundles(database().await.path()).await;
    paused.retain(|bundle| bundle.run.status == Status::ApprovalRequired);
    assert_eq!(paused.len(), 1);
    paused.remove(0)
}

#[tokio::test]
async fn of_a_run_that_is_not_over_every_member_is_proven() {
    let changes: [fn(&mut Bundle); 12] = [
        |bundle| bundle.run.payload = Some(String::new()),
        |bundle| {
            let payload = bundle.run.payload.as_mut().unwrap();
            *payload = payload.replace("a test", "forged");
        },
        |bundle| bundle.run.step_index += 1,
        |bundle| bundle.run.payload_bytes += 1,
        |bundle| bundle.run.principal_id = PrincipalId::parse("other").unwrap(),
        |bundle| bundle.run.ts = Timestamp::from_millisecond(0),
        |bundle| bundle.open = None,
        |bundle| bundle.open.as_mut().unwrap().events_digest = Digest::ZERO,
        |bundle| bundle.open.as_mut().unwrap().link_number += 1,
        |bundle| bundle.open.as_mut().unwrap().link_number = 0,
        |bundle| bundle.open.as_mut().unwrap().link_prev = Digest::ZERO,
        |bundle| bundle.open.as_mut().unwrap().link_digest = Digest::ZERO,
    ];
    let paused = paused().await;
    for (number, change) in changes.into_iter().enumerate() {
        let mut tampered = paused.clone();
        change(&mut tampered);
        assert_ne!(tampered.verify(), [], "change {number}");
    }
}

#[tokio::test]
async fn a_bundle_whose_payload_is_under_another_key_does_not_verify_whatever_its_links() {
    // A stranger can compute a link anew; what the journal says was asked stays.
    let paused = paused().await;
    let payload = paused.run.payload.clone().unwrap();
    let other_id = payload.replace("550e", "f50e");
    let other_args = payload.replace("\"content\":\"x\"", "\"content\":\"y\"");
    for other in [other_id, other_args, String::new()] {
        assert_ne!(other, payload);
        let mut tampered = paused.clone();
        tampered.run.payload = Some(other);
        let problems = tampered.verify();
        assert!(problems.iter().any(|it| it.place.starts_with("tool_runs of")), "{problems:?}");
    }
}

/// Every way to leave one member of an object out, however deep, by its path.
fn cuts(value: &Value) -> Vec<(String, Value)> {
    match value {
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, member)| {
                let mut without = members.clone();
                without.remove(name);
                let deeper = cuts(member).into_iter().map(|(path, cut)| {
                    let mut changed = members.clone();
                    changed.insert(name.clone(), cut);
                    (format!("{name}.{path}"), Value::Object(changed))
                });
                let here = (name.clone(), Value::Object(without));
                std::iter::once(here).chain(deeper).collect::<Vec<_>>()
            })
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(at, item)| {
                cuts(item).into_iter().map(move |(path, cut)| {
                    let mut changed = items.clone();
                    changed[at] = cut;
                    (format!("[{at}].{path}"), Value::Array(changed))
                })
            })
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

#[tokio::test]
async fn a_bundle_without_any_one_of_its_members_is_none_or_does_not_verify() {
    let mut tried = 0;
    for original in [database().await, servers::database().await] {
        for bundle in bundles(original.path()).await {
            let exported = serde_json::to_value(&bundle).unwrap();
            assert_eq!(Bundle::read(&exported).unwrap().verify(), []);
            for (path, cut) in cuts(&exported) {
                if let Ok(read) = Bundle::read(&cut) {
                    assert_ne!(read.verify(), [], "without `{path}`");
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

#[tokio::test]
async fn what_is_not_as_it_was_exported_is_named() {
    let mut exported = serde_json::to_value(paused().await).unwrap();
    let entry = exported["entries"][0].as_object_mut().unwrap();
    assert_eq!(entry.remove("tool_call_id"), Some(json!(null)));
    let refused = Bundle::read(&exported).unwrap_err();
    assert_eq!(refused, "`entries[0].tool_call_id` is not as it was exported");
}
