//! Definitions that operators know, and definitions that change.

use std::collections::BTreeMap;

use serde_json::json;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ports::ToolServers;
use stepgate_core::tool::Standing;

use super::house::{House, failed, name, sending, spec, until};

#[tokio::test]
async fn a_tool_that_nobody_has_accepted_is_not_known_until_somebody_does() {
    let house = House::unaccepted(vec![spec("house", "normal")], BTreeMap::new()).await.unwrap();
    let echo = name("house.echo");
    let standing = || house.servers.tool(&echo).unwrap().standing;
    assert_eq!(standing(), Standing::Changed);
    let digest = house.servers.tool(&echo).unwrap().definition_digest;
    assert!(house.servers.unpinned().contains(&(echo.clone(), digest)));
    assert_eq!(house.servers.accept(&echo), Some(digest));
    assert_eq!(standing(), Standing::Accepted);
    assert!(!house.servers.unpinned().contains(&(echo.clone(), digest)));
    assert_eq!(house.servers.accept(&name("house.nothing")), None);
    assert_eq!(house.servers.accept(&name("nobody.echo")), None);
}

#[tokio::test]
async fn a_definition_that_changes_between_two_starts_is_another_until_accepted() {
    let before = House::of(vec![spec("house", "normal")]).await;
    let pins: BTreeMap<_, _> = before
        .servers
        .tools()
        .iter()
        .map(|tool| (tool.name.clone(), tool.definition_digest))
        .collect();
    drop(before);
    let after = House::unaccepted(vec![spec("house", "changed")], pins.clone()).await.unwrap();
    let standing = |tool: &str| after.servers.tool(&name(tool)).unwrap().standing;
    assert_eq!(standing("house.echo"), Standing::Changed);
    assert_eq!(standing("house.hang"), Standing::Accepted);
    assert_eq!(after.servers.unpinned(), []);
    let effect = after.run("house.echo", json!({})).await;
    let why = "the tool's definition has changed since the decision";
    assert_eq!(effect, failed(ExecutionFailure::Unavailable, why, false));
    let accepted = after.servers.accept(&name("house.echo")).unwrap();
    assert_ne!(pins[&name("house.echo")], accepted);
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
