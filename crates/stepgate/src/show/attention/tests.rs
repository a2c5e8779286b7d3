use stepgate_core::attention::{Kind, Need, Subject};
use stepgate_gateway::attention::NeedObject;

use super::line;

#[test]
fn a_run_that_needs_a_person_is_named_with_its_reason_and_the_way_out() {
    let run = "01890a5d-ac96-774b-bcce-b302099a8057";
    let said = |kind, reason: &str| {
        let since = "2026-01-01T00:00:00.000Z".parse().unwrap();
        let subject = Subject::Run(run.parse().unwrap());
        let need = Need { subject, kind, reason: reason.into(), since };
        anstream::adapter::strip_str(&line(&NeedObject::of(&need))).to_string()
    };
    assert_eq!(
        said(Kind::Quarantined, "digest\u{1b}[2J"),
        format!(
            "quarantined: {run}: digest<U+001B>[2J; `stepgate verify` names what does not hold"
        )
    );
    let resolve = format!("`stepgate runs resolve {run} --succeeded` or `--failed`");
    for (kind, word) in [(Kind::InDoubt, "in doubt"), (Kind::Stuck, "stuck")] {
        let said = said(kind, "why");
        assert!(said.starts_with(&format!("{word}: {run}: why; ")), "{said}");
        assert!(said.contains(&resolve), "{said}");
    }
}
