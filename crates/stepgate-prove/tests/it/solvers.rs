//! Solvers that are not there, crash, hang, do not know, talk nonsense or lie: no proof comes of any of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use stepgate_core::ids::PrincipalId;
use stepgate_prove::{
    Claim, ClaimKind, OfAction, Proof, Prover, Solver, SolverError, SolverSettings, Who, on_thread,
    prove,
};
use tempfile::TempDir;

use crate::scenery::{claim, scenery, settings, with_prover};

/// A program that answers like this, where it is not asked for its version.
fn program(directory: &TempDir, script: &str) -> SolverSettings {
    let path = directory.path().join("solver");
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'This is no solver'; exit 0; fi\n{script}\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    SolverSettings { program: path, timeout: Duration::from_millis(500) }
}

fn started(settings: SolverSettings) -> Result<(), SolverError> {
    on_thread(async || Solver::start(settings).await.map(|_| ())).unwrap()
}

/// A shell's loop that answers each question like this.
fn answering(answer: &str) -> String {
    format!("while read -r line; do case \"$line\" in *check-sat*) {answer} ;; esac; done")
}

#[test]
fn a_solver_that_gives_no_right_answer_is_refused_before_anything_is_proven() {
    let directory = tempfile::tempdir().unwrap();
    let rows = [
        ("exit 3", "failed"),
        ("kill -9 $$", "failed"),
        ("exec sleep 1000", "within 500 ms"),
        (&answering("echo hello"), "unrecognized solver output: hello"),
        (&answering("echo unknown"), "does not know"),
        (&answering("echo unsat"), "wrong answer"),
        // It has no example to show for it.
        (&answering("echo sat"), "within 500 ms"),
        (&answering("echo sat; printf '(\\n(define-fun x () Bool maybe)\\n)\\n'"), "failed"),
        (&answering("echo '(error \"out of order\")'"), "out of order"),
    ];
    for (script, expected) in rows {
        let begun = Instant::now();
        let error = started(program(&directory, script)).unwrap_err().to_string();
        assert!(error.contains(expected), "{script}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{script}");
    }
}

#[test]
fn a_solver_that_is_missing_is_named_with_what_to_install() {
    let settings = SolverSettings { program: "/nowhere/cvc5".into(), ..settings() };
    let error = started(settings).unwrap_err().to_string();
    assert!(error.contains("/nowhere/cvc5") && error.contains("apt install cvc5"), "{error}");
    assert!(error.contains("policy.solver"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    fs::write(&plain, "not a program").unwrap();
    let error = started(SolverSettings { program: plain, ..self::settings() }).unwrap_err();
    assert!(matches!(error, SolverError::Start(..)), "{error}");
}

/// A claim that holds, asked with the real solver behind a script that lets the first questions through.
fn asked_behind(script: impl Fn(&Path) -> String) -> Result<Proof, String> {
    let directory = tempfile::tempdir().unwrap();
    let real = settings().program;
    let settings =
        SolverSettings { timeout: Duration::from_secs(5), ..program(&directory, &script(&real)) };
    let scenery = scenery();
    let set = scenery.set(
        r#"permit (principal, action == Action::"bank.transfer", resource) when { context.args.to like "a*" };"#,
    );
    let mut claim = claim(ClaimKind::Never, &["bank.transfer"]);
    claim.args = vec!["to = b".parse().unwrap()];
    let answer = on_thread(async || {
        let solver = Solver::start(settings).await.map_err(|error| error.to_string())?;
        prove(&mut Prover::new(solver), &scenery.world(&[]), &set, &claim, |_| {}).await
    });
    answer.unwrap()
}

#[test]
fn a_solver_that_fails_later_leaves_the_claim_undecided_or_stops_the_proof() {
    let through = |real: &Path| format!("exec {} \"$@\"", real.display());
    assert!(asked_behind(through).unwrap().is_proven());
    // The real solver answers the two questions whose answers are known, and then ends.
    let then = |end: &str| {
        let end = end.to_owned();
        move |real: &Path| {
            format!(
                "count=0; while read -r line; do case \"$line\" in *check-sat*) count=$((count+1)); \
                 if [ $count -gt 2 ]; then {end}; fi ;; esac; printf '%s\\n' \"$line\"; done | {} \"$@\"",
                real.display()
            )
        }
    };
    let crashed = asked_behind(then("exit 1")).unwrap_err();
    assert!(crashed.contains("the solver failed"), "{crashed}");
    let hung = asked_behind(then("exec sleep 1000")).unwrap();
    assert!(
        matches!(&hung.actions[..], [OfAction::Undecided { why, .. }] if why.contains("5000 ms")),
        "{hung:?}"
    );
}

#[test]
fn a_claim_that_is_wrong_is_refused_with_its_reason() {
    let scenery = scenery();
    let set = scenery.set(r#"permit (principal, action, resource);"#);
    let never = |tools: &[&str]| claim(ClaimKind::Never, tools);
    let with =
        |tools: &[&str], arg: &str| Claim { args: vec![arg.parse().unwrap()], ..never(tools) };
    let when = |tools: &[&str], when: &str| Claim { when: Some(when.to_owned()), ..never(tools) };
    let rows = [
        (never(&["bank.transfr"]), "there is no tool or action `bank.transfr`"),
        (Claim { servers: vec!["bnk".into()], ..never(&[]) }, "there is no server `bnk`"),
        (
            Claim { who: Who { groups: vec!["boss".into()], ..Who::default() }, ..never(&[]) },
            "there is no group `boss`",
        ),
        (with(&["bank.transfer"], "amont > 5"), "no such argument"),
        (with(&["bank.transfer"], "amount > much"), "`amount` of `bank.transfer` is a number"),
        (with(&["bank.transfer"], "to > 5"), "is a text"),
        (with(&["bank.transfer"], "urgent > true"), "is true or false"),
        (with(&["mail.send"], "to = ann"), "write `contains`"),
        (with(&["vault.store"], "secret = x"), "policies cannot see `secret`"),
        (with(&["bank.transfer"], "amount > 1000000"), "about no call at all"),
        (when(&["bank.transfer"], "context.args.amont > 5"), "`args.amont`"),
        (when(&["bank.transfer"], "principal in Group::\"boss\""), "there is no group `boss`"),
        (
            when(&["bank.transfer"], "true }; permit (principal, action, resource) when { true"),
            "`bank.transfer`",
        ),
    ];
    for (claim, expected) in rows {
        let error = with_prover(async |prover| {
            prove(prover, &scenery.world(&[]), &set, &claim, |_| {}).await.unwrap_err()
        });
        assert!(error.contains(expected), "{expected}: {error}");
    }
    for text in ["amount", "> 5", "a..b = 1", ""] {
        assert!(text.parse::<stepgate_policy::symbolic::ArgTest>().is_err(), "{text}");
    }
}

#[test]
fn the_groups_of_a_claim_are_any_or_those_of_the_configuration() {
    let scenery = scenery();
    let set = scenery.set(
        r#"permit (principal in Group::"admins", action == Action::"bank.balance", resource);"#,
    );
    let of = |groups: &[&str], principal: Option<&str>, as_configured: bool| {
        let mut claim = claim(ClaimKind::Never, &["bank.balance"]);
        claim.who = Who {
            principal: principal.map(|name| PrincipalId::parse(name).unwrap()),
            groups: groups.iter().map(|it| (*it).to_owned()).collect(),
            as_configured,
        };
        let proof = with_prover(async |prover| {
            prove(prover, &scenery.world(&[]), &set, &claim, |_| {}).await.unwrap()
        });
        proof.is_proven()
    };
    // Someone could be in both groups; as it is configured, no one is.
    assert!(!of(&["finance"], None, false));
    assert!(of(&["finance"], None, true));
    assert!(of(&[], Some("ann"), false));
    assert!(!of(&[], Some("root"), false));
    assert!(!of(&["admins"], None, true));
}
