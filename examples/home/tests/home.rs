//! The example as a tool server: what its tools answer, and that a key counts once, also over a restart.
//!
//! It has a `main` of its own, because the program that starts tool servers is called once more to
//! launch each of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot be set up should stop"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stepgate_core::call::ServerCall;
use stepgate_core::failure::ExecutionFailure;
use stepgate_core::ids::{ArtifactId, IdempotencyKey, PrincipalId, ProposalId, RunId};
use stepgate_core::ports::{Dispatch, Effect, Failed, Said, Sending, ToolServers};
use stepgate_core::tool::Mode;
use stepgate_exec::launcher::{self, Launcher};
use stepgate_exec::servers::{
    DeliverySpec, Pinning, ServerLimits, ServerSpec, Servers, ToolSpec, Transport,
};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if launcher::is_called(args.next().as_deref()) {
        return launcher::run(args);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        the_calendar_has_an_agenda().await;
        the_loudspeaker_acts_once_per_key_also_over_a_restart().await;
        what_is_not_a_volume_is_refused().await;
        a_room_without_a_loudspeaker_is_a_failure_and_changes_nothing().await;
        a_mail_goes_out_once_per_key().await;
    });
    println!("home: 5 passed");
    ExitCode::SUCCESS
}

async fn the_calendar_has_an_agenda() {
    let home = home(vec![spec("calendar", &["calendar"], Mode::ReadOnly)]).await;
    let agenda = done(call(&home, "calendar.google.get_agenda", json!({}), &sending()).await);
    let entries = agenda["structuredContent"]["entries"].as_array().unwrap();
    let titles: Vec<_> = entries.iter().map(|entry| entry["title"].as_str().unwrap()).collect();
    assert_eq!(titles, ["Breakfast with Ada", "The piano is tuned", "Quiet evening"]);
}

async fn the_loudspeaker_acts_once_per_key_also_over_a_restart() {
    let keep = tempfile::tempdir().unwrap();
    let state = keep.path().join("sonos.json");
    let sending = sending();
    for dispatch in [Dispatch::First, Dispatch::Again, Dispatch::Again] {
        let home = sonos(&state).await;
        let sending = Sending { dispatch, ..sending.clone() };
        let set = done(call(&home, "sonos.set_volume", json!({ "volume": 20 }), &sending).await);
        let expected = json!({ "room": "living room", "volume": 20 });
        assert_eq!(set["structuredContent"], expected);
    }
    let home = sonos(&state).await;
    let asked = json!({ "room": "living room" });
    let told = done(call(&home, "sonos.get_volume", asked, &self::sending()).await);
    assert_eq!(told["structuredContent"]["volume"], 20);
    let memory: Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    assert_eq!(memory["effects"], 1);
}

async fn what_is_not_a_volume_is_refused() {
    let keep = tempfile::tempdir().unwrap();
    let state = keep.path().join("sonos.json");
    let home = sonos(&state).await;
    let tool = home.tool(&"sonos.set_volume".parse().unwrap()).unwrap();
    for args in [json!({ "volume": 101 }), json!({ "volume": 1, "loud": true })] {
        assert!(tool.contract.check(args.as_object().unwrap()).is_err(), "{args}");
    }
    // Past the gate the loudspeaker refuses by itself.
    let effect = call(&home, "sonos.set_volume", json!({ "volume": 101 }), &sending()).await;
    assert_eq!(effect, refused("volume must be an integer from 0 to 100"));
    assert!(!state.exists());
}

/// A refusal in the tool's own words, which are kept.
fn refused(why: &str) -> Effect {
    let result = json!({ "content": [{ "type": "text", "text": why }] });
    Effect::Failed(Failed {
        detail: Some(why.to_owned()),
        said: Said::Error(result.to_string()),
        ..ExecutionFailure::ToolFailed.into()
    })
}

async fn a_room_without_a_loudspeaker_is_a_failure_and_changes_nothing() {
    let keep = tempfile::tempdir().unwrap();
    let state = keep.path().join("sonos.json");
    let home = sonos(&state).await;
    let why = "there is no loudspeaker in `cellar`: try living room, kitchen, bedroom";
    for (tool, args) in [
        ("sonos.get_volume", json!({ "room": "cellar" })),
        ("sonos.set_volume", json!({ "room": "cellar", "volume": 20 })),
    ] {
        let effect = call(&home, tool, args, &sending()).await;
        assert_eq!(effect, refused(why), "{tool}");
    }
    assert!(!state.exists());
}

async fn a_mail_goes_out_once_per_key() {
    let keep = tempfile::tempdir().unwrap();
    let outbox = keep.path().join("outbox");
    let sending = sending();
    for dispatch in [Dispatch::First, Dispatch::Again] {
        let args = ["mail", outbox.to_str().unwrap()];
        let home = home(vec![spec("mail", &args, Mode::ExecuteGated)]).await;
        let inbox = done(call(&home, "mail.inbox", json!({}), &self::sending()).await);
        assert_eq!(inbox["structuredContent"]["mails"].as_array().unwrap().len(), 2);
        let sending = Sending { dispatch, ..sending.clone() };
        let mail = json!({ "to": "ann@example.com", "text": "hello" });
        let sent = done(call(&home, "mail.send", mail, &sending).await);
        assert_eq!(sent["structuredContent"]["sent_to"], "ann@example.com");
    }
    assert_eq!(std::fs::read_to_string(&outbox).unwrap().lines().count(), 1);
}

fn spec(name: &str, args: &[&str], mode: Mode) -> ServerSpec {
    ServerSpec {
        name: name.to_owned(),
        executor_id: name.to_owned(),
        transport: Transport::Stdio {
            command: env!("CARGO_BIN_EXE_stepgate-example-home").to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: BTreeMap::new(),
            directory: None,
        },
        tool: ToolSpec {
            mode: Some(mode),
            delivery: Some(DeliverySpec::HonoursKey),
            ..ToolSpec::default()
        },
        tools: BTreeMap::new(),
        limits: ServerLimits::default(),
        hidden: vec![],
        required: true,
        pin: Pinning::default(),
    }
}

async fn sonos(state: &Path) -> Servers {
    home(vec![spec("sonos", &["sonos", state.to_str().unwrap()], Mode::ExecuteGated)]).await
}

async fn home(specs: Vec<ServerSpec>) -> Servers {
    let launcher = Launcher::this_program();
    let (late, progress, tell) = (Arc::new(|_| ()), Arc::new(|_| ()), Arc::new(|_| ()));
    let home =
        Servers::start(specs, BTreeMap::new(), launcher, late, progress, tell, Duration::MAX)
            .await
            .unwrap();
    for name in home.first_seen() {
        home.accept(&name).unwrap();
    }
    home
}

async fn call(home: &Servers, tool: &str, args: Value, sending: &Sending) -> Effect {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    let call = ServerCall { tool: home.tool(&tool.parse().unwrap()).unwrap(), args };
    let _turn = home.prepare(&call).await.unwrap();
    home.dispatch(&call, sending).await
}

fn done(effect: Effect) -> Value {
    match effect {
        Effect::Done(Some(text)) => serde_json::from_str(&text).unwrap(),
        Effect::Done(None) | Effect::Failed(_) | Effect::Refused(_) | Effect::Unknown(_) => {
            panic!("not done: {effect:?}")
        }
    }
}

fn sending() -> Sending {
    let principal = PrincipalId::parse("agent").unwrap();
    let proposal = ProposalId::parse(&uuid::Uuid::new_v4().to_string()).unwrap();
    Sending {
        run_id: RunId::new(uuid::Uuid::now_v7()),
        tool_call_id: ArtifactId::new(uuid::Uuid::now_v7()),
        key: IdempotencyKey::of(&principal, &proposal),
        dispatch: Dispatch::First,
    }
}
