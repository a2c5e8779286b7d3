use stepgate_core::ids::PrincipalId;
use stepgate_core::tool::Mode;
use stepgate_gateway::tokens::Role;

use serde_json::json;

use super::*;

#[test]
fn why_a_server_is_down_is_not_for_agents() {
    let listed_tool = ListedTool {
        server: "sonos".into(),
        tool: "set_volume".into(),
        mode: Some(Mode::ExecuteGated),
        is_off: false,
        trouble: None,
        standing: Some(Standing::Accepted),
        redacted: vec![],
        flow: Default::default(),
        title: None,
        description: None,
        input_schema: json!({}),
        output_schema: None,
        icons: None,
        meta: Some(json!({ "build": 7 })),
        is_meta_accepted: false,
        definition_digest: Digest::of("sonos"),
        bound_digest: Digest::of("sonos"),
        server_state: ServerState::Down("cannot start `/srv/private/sonos`".into()),
    };
    for (role, is_told) in [(Role::Agent, false), (Role::Operator, true), (Role::Auditor, true)] {
        let principal_id = PrincipalId::parse("somebody").unwrap();
        let caller = Caller { principal_id, role, token_id: None, is_owner: false };
        let [shown] = &listed(std::slice::from_ref(&listed_tool), &caller)[..] else {
            panic!("one is listed");
        };
        assert_eq!(shown.server_state, Some("down"));
        assert_eq!(shown.server_trouble.is_some(), is_told, "{role:?}");
        assert_eq!(shown.meta.is_some(), is_told, "{role:?}");
    }
}
