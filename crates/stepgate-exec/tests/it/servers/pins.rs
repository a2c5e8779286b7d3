//! Definitions that operators know, and definitions that change.

use std::collections::BTreeMap;

use serde_json::json;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ports::ToolServers;
use stepgate_core::tool::Standing;
use stepgate_exec::servers::{Pinning, ServerSpec};

use super::house::{House, failed, name, sending, spec, until};

#[tokio::test]
async fn a_tool_that_nobody_has_accepted_is_not_known_until_somebody_does() {
    let house = House::unaccepted(vec![spec("house", "normal")], BTreeMap::new()).await.unwrap();
    let echo = name("house.echo");
    let standing = || house.servers.tool(&echo).unwrap().standing;
    assert_eq!(standing(), Standing::New);
    let digest = house.servers.tool(&echo).unwrap().definition_digest;
    assert!(house.servers.first_seen().contains(&echo));
    assert_eq!(house.servers.accept(&echo), Some(digest));
    assert_eq!(standing(), Standing::Accepted);
    // From now on an operator knows the server, and nothing else of it is trusted unseen.
    assert_eq!(house.servers.first_seen(), []);
    assert_eq!(house.servers.accept(&name("house.nothing")), None);
    assert_eq!(house.servers.accept(&name("nobody.echo")), None);
}

#[tokio::test]
async fn a_definition_that_changes_between_two_starts_is_another_until_accepted() {
    let before = House::of(vec![spec("house", "normal")]).await;
    let pins = before.pins();
    drop(before);
    let after = House::unaccepted(vec![spec("house", "changed")], pins.clone()).await.unwrap();
    let standing = |tool: &str| after.servers.tool(&name(tool)).unwrap().standing;
    assert_eq!(standing("house.echo"), Standing::Changed);
    assert_eq!(standing("house.hang"), Standing::Accepted);
    assert_eq!(after.servers.first_seen(), []);
    let off: Vec<String> = after.servers.off().iter().map(ToString::to_string).collect();
    assert!(off.len() == 1 && off[0].contains("`house.echo` has changed"), "{off:?}");
    let compared = after.servers.compared(&name("house.echo")).unwrap();
    assert_eq!(compared.accepted.unwrap()["description"], "the tool echo");
    assert_ne!(compared.present.unwrap()["description"], "the tool echo");
    let effect = after.run("house.echo", json!({})).await;
    let why = "the tool's definition has changed since the decision";
    assert_eq!(effect, failed(ExecutionFailure::Unavailable, why, false));
    let accepted = after.servers.accept(&name("house.echo")).unwrap();
    assert_ne!(pins[&name("house.echo")].digest(), accepted);
    assert_eq!(standing("house.echo"), Standing::Accepted);
}

#[tokio::test]
async fn a_definition_that_changes_while_the_server_runs_is_noticed() {
    let house = House::ordinary(|spec| spec).await;
    let decided = house.call("house.echo", json!({}));
    house.run("house.change", json!({})).await;
    let echo = name("house.echo");
    let changed = until("the news", async || {
        let tool = house.servers.tool(&echo).unwrap();
        (tool.standing == Standing::Changed).then_some(tool)
    })
    .await;
    assert_ne!(changed.definition_digest, decided.tool.definition_digest);
    // Accepted, it is another tool all the same: what was decided for the old one is not sent.
    house.servers.accept(&echo).unwrap();
    let effect = house.servers.dispatch(&decided, &sending()).await;
    let why = "the tool's definition has changed since the decision";
    assert_eq!(effect, failed(ExecutionFailure::Unavailable, why, false));
}

#[tokio::test]
async fn a_new_tool_of_a_server_that_operators_know_is_denied_until_accepted() {
    let before = House::of(vec![spec("house", "normal")]).await;
    let pins = before.pins();
    drop(before);
    let after = House::unaccepted(vec![spec("house", "grown")], pins).await.unwrap();
    assert_eq!(after.servers.first_seen(), []);
    let new = name("house.exfiltrate");
    assert_eq!(after.servers.tool(&new).unwrap().standing, Standing::New);
    let why = "no operator has accepted the tool";
    let refused = failed(ExecutionFailure::Unavailable, why, false);
    assert_eq!(after.run("house.exfiltrate", json!({})).await, refused);
    let off: Vec<String> = after.servers.off().iter().map(ToString::to_string).collect();
    assert!(off.len() == 1 && off[0].contains("`house.exfiltrate` is new"), "{off:?}");
    after.servers.accept(&new).unwrap();
    assert_eq!(after.servers.tool(&new).unwrap().standing, Standing::Accepted);
    assert_eq!(after.servers.off(), []);
}

#[tokio::test]
async fn a_definition_that_differs_in_order_alone_keeps_its_pin_and_its_approvals() {
    let before = House::of(vec![spec("house", "normal")]).await;
    let (pins, decided) = (before.pins(), before.call("house.giant", json!({})));
    drop(before);
    let after = House::unaccepted(vec![spec("house", "reordered")], pins).await.unwrap();
    assert_eq!(after.servers.off(), []);
    let tool = after.servers.tool(&name("house.giant")).unwrap();
    assert_eq!(tool.definition_digest, decided.tool.definition_digest);
}

#[tokio::test]
async fn with_names_and_types_a_changed_description_is_accepted_and_no_approval_passes_on() {
    let before = House::of(vec![spec("house", "normal")]).await;
    let (pins, decided) = (before.pins(), before.call("house.echo", json!({})));
    drop(before);
    let loose = ServerSpec { pin: Pinning::NamesAndTypes, ..spec("house", "changed") };
    let after = House::unaccepted(vec![loose], pins).await.unwrap();
    assert_eq!(after.servers.off(), []);
    let effect = after.servers.dispatch(&decided, &sending()).await;
    let why = "the tool's definition has changed since the decision";
    assert_eq!(effect, failed(ExecutionFailure::Unavailable, why, false));
}
