use stepgate_core::run::{Arrival, Ending, Payload};

use super::*;

fn run(output_json: &str) -> Run {
    let id = uuid::Uuid::now_v7();
    Run {
        arrival: Arrival {
            run_id: RunId::new(id),
            session_id: SessionId::new(id),
            principal_id: PrincipalId::parse("agent").unwrap(),
            step_index: 1,
            received_at: Timestamp::parse_short("2026-01-31").unwrap(),
            payload: Payload::whole(*b"{}"),
        },
        tool_name: Some("home.light".into()),
        input_json: Some("{}".into()),
        status: Status::Ok,
        ending: Some(Ending {
            output_json: Some(output_json.into()),
            error_json: None,
            latency_ms: 1,
        }),
    }
}

#[test]
fn the_numbers_of_a_result_are_spelled_as_the_tool_spelled_them() {
    let output = r#"{"a":12345678901234567890123,"b":1.10,"c":1e400}"#;
    let listed = serde_json::to_string(&ListedRun::of(&run(output))).unwrap();
    assert!(listed.contains(&format!(r#""output":{output},"#)), "{listed}");
    assert!(ListedRun::of(&run("{")).output.is_none(), "it is not JSON any more");
}
