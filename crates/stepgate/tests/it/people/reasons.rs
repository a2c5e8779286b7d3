use std::process::Command;

use super::place;
use crate::binary::{Output, finish};
use crate::http_client::Gateway;

#[test]
fn the_reason_of_a_refusal_is_told_at_once_to_who_may_read_the_record() {
    for served in [false, true] {
        let place = place();
        let gateway = served.then(|| Gateway::start_with(&place, &["--quiet"]));
        let rows: [(&[&str], i32, &str); 4] = [
            (&["READ_FILE", "path=/sandbox/a.txt"], 11, "denied in AUTHORIZE, "),
            (&["WRITE_FILE", "path=/sandbox/a"], 10, "not valid in VALIDATE_ARGS, "),
            (&["LIST_FILES", "path=/sandbox/none"], 12, "failed in EXECUTE, "),
            (&["LIST_FILES", "path=/sandbox/"], 0, ""),
        ];
        for (args, code, said) in rows {
            let output = place.stepgate(["run"].iter().chain(args), "");
            assert_eq!(output.code, code, "{output:?}");
            assert_eq!(output.stdout.lines().count(), 1, "{output:?}");
            assert!(output.stderr.starts_with(said), "{args:?}: {}", output.stderr);
            let has_reason = output.stderr.contains("`stepgate runs show ");
            assert_eq!(has_reason, code != 0, "{args:?}: {}", output.stderr);
        }
        let output = place.stepgate(["step"], "{");
        assert!(output.stderr.starts_with("not valid in PARSE, INVALID_JSON: "), "{output:?}");
        assert_eq!(place.stepgate(["step", "--lines"], "{\n").stderr, "");
        let Some(gateway) = gateway else { continue };
        // An agent's token reads no record, so there is no reason to tell.
        let remote = |token: &str| -> Output {
            let mut command = Command::new(env!("CARGO_BIN_EXE_stepgate"));
            command.env_clear().args([
                "--url",
                &gateway.url(),
                "run",
                "READ_FILE",
                "path=/sandbox/a",
            ]);
            finish(command.env("STEPGATE_TOKEN", token), b"")
        };
        assert_eq!(remote(&gateway.agent).stderr, "");
        assert!(remote(&gateway.operator).stderr.contains("denied in AUTHORIZE, "));
    }
}
