use std::process::Command;

use serde_json::Value;

use super::{ask, place, rows, waiting};
use crate::binary::{Place, finish};
use crate::http_client::Gateway;
use crate::screen::Screen;

/// Two ids that begin alike, and how: of three that were made at once, two neighbours do.
fn alike(ids: &[String]) -> (String, [String; 2]) {
    let pair = ids.windows(2).find(|pair| pair[0][..8] == pair[1][..8]).unwrap();
    let common = pair[0].chars().zip(pair[1].chars()).take_while(|(a, b)| a == b).count();
    (pair[0][..common].to_owned(), [pair[0].clone(), pair[1].clone()])
}

/// The shortest beginning that only this id has.
fn unique(id: &str, ids: &[String]) -> String {
    let is_unique =
        |length: &usize| ids.iter().filter(|other| other.starts_with(&id[..*length])).count() == 1;
    id[..(8..=36).find(is_unique).unwrap()].to_owned()
}

fn asked(place: &Place) -> (Vec<String>, Vec<String>) {
    ["a", "b", "c"].map(|name| ask(place, name)).into_iter().unzip()
}

/// Without a terminal, wherever the test was started.
fn away(place: &Place, args: &[&str]) -> crate::binary::Output {
    let mut command = Command::new("setsid");
    let inner = place.command(args);
    command.arg("--wait").arg(inner.get_program()).args(inner.get_args()).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    finish(&mut command, b"y\n")
}

#[test]
fn a_beginning_decides_on_the_one_approval_that_has_it_and_on_none_where_several_do() {
    for served in [false, true] {
        let place = place();
        let gateway = served.then(|| Gateway::start_with(&place, &["--quiet"]));
        let (approvals, _) = asked(&place);
        let (common, pair) = alike(&approvals);
        let refused = away(&place, &["approve", &common]);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("nothing was done"), "{}", refused.stderr);
        assert!(pair.iter().all(|id| refused.stderr.contains(id)), "{}", refused.stderr);
        for (text, why) in [("0198b2c", "8 characters"), ("ffffffff", "no approval begins with")] {
            let refused = away(&place, &["approve", text]);
            assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
        }
        assert_eq!(waiting(&place).len(), 3);
        let (yes, no) = (unique(&approvals[1], &approvals), unique(&approvals[0], &approvals));
        let approved = away(&place, &["approve", &yes.to_uppercase()]);
        assert_eq!(approved.code, 0, "{approved:?}");
        assert!(approved.stdout.contains(&format!("approved  {}", approvals[1])), "{approved:?}");
        assert_eq!(away(&place, &["deny", &no]).code, 0);
        assert_eq!(waiting(&place), approvals[2..]);
        // One that is decided still takes part: the rest of a beginning never comes to mean another one.
        let refused = away(&place, &["approve", &common]);
        assert!(refused.code == 1 && refused.stderr.contains("nothing was done"), "{refused:?}");
        drop(gateway);
    }
}

#[test]
fn last_is_decided_only_after_it_was_shown_also_with_a_token() {
    let place = place();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let (approvals, runs) = asked(&place);
    for words in [["approve", "last"], ["deny", "last"]] {
        let refused = away(&place, &words);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("name the id"), "{}", refused.stderr);
    }
    assert_eq!(waiting(&place).len(), 3);
    for command in [place.command(["approve", "last"]), place.bare_command(["approve", "last"])] {
        let newest = waiting(&place)[0].clone();
        let mut person = Screen::of(&command, 24, 80);
        let shown = person.until("approve it? [y/N] ");
        assert!(shown.contains(&newest), "{shown}");
        // A newer one comes while the person reads: it is not the one that was shown.
        let (newer, _) = ask(&place, "newer");
        person.press("y\n");
        let left = person.end();
        assert!(left.code == 0 && left.shown.contains(&newest), "{left:?}");
        let waits = waiting(&place);
        assert!(waits.contains(&newer) && !waits.contains(&newest), "{waits:?}");
        assert_eq!(finish(&mut place.command(["deny", &newer]), b"").code, 0);
    }
    assert_eq!(waiting(&place), approvals[..1]);
    assert_eq!(place.stepgate(["runs", "show", &runs[2]], "").code, 0);
    drop(gateway);
}

#[test]
fn runs_and_sessions_are_named_by_a_beginning_or_as_last_with_and_without_a_gateway() {
    for served in [false, true] {
        let place = place();
        let gateway = served.then(|| Gateway::start_with(&place, &["--quiet"]));
        let (_, runs) = asked(&place);
        let shown = |args: &[&str]| {
            let output = place.stepgate(args, "");
            rows(&output)[0]["run"].clone()
        };
        let one = unique(&runs[0], &runs);
        assert_eq!(shown(&["runs", "show", &one, "--json"])["tool_run_id"], runs[0]);
        assert_eq!(shown(&["runs", "export", &one])["tool_run_id"], runs[0]);
        let last = shown(&["runs", "show", "last", "--json"]);
        assert_eq!(last["tool_run_id"], runs[2]);
        let older = rows(&place.stepgate(["runs", "--json", "--before", &one], ""));
        assert!(older.is_empty(), "{older:?}");
        let (common, _) = alike(&runs);
        let refused = place.stepgate(["runs", "show", &common], "");
        assert!(refused.code == 1 && refused.stderr.contains(&runs[1]), "{refused:?}");

        let session = last["session_id"].as_str().unwrap();
        for named in [&session[..35], "last"] {
            let joined = ["run", "LIST_FILES", "path=/sandbox/", "--session", named];
            let joined = place.stepgate(joined, "");
            assert_eq!(joined.code, 0, "{joined:?}");
            let listed = rows(&place.stepgate(["runs", "--json", "--session", named], ""));
            let is_in = |run: &Value| run["session_id"] == session;
            assert!(listed.len() > 3 && listed.iter().all(is_in), "{listed:?}");
        }
        let none = place.stepgate(["run", "LIST_FILES", "--session", "ffffffff"], "");
        assert!(none.code == 1 && none.stderr.contains("no session begins"), "{none:?}");
        if let Some(gateway) = &gateway {
            let mut remote = place.bare_command(["runs", "show", &one]);
            remote.env("STEPGATE_URL", gateway.url()).env("STEPGATE_TOKEN", &gateway.operator);
            assert_eq!(rows(&finish(&mut remote, b""))[0]["run"]["tool_run_id"], runs[0]);
        }
    }
}

#[test]
fn a_token_is_revoked_by_the_beginning_of_its_id() {
    let place = place();
    let gateway = Gateway::start_with(&place, &["--quiet"]);
    let made = place.stepgate(["token", "create", "--name", "x", "--role", "agent", "--json"], "");
    let id = rows(&made)[0]["token_id"].as_str().unwrap().to_owned();
    let all = rows(&place.stepgate(["token", "list", "--json"], ""));
    let ids: Vec<_> = all.iter().map(|it| it["token_id"].as_str().unwrap().to_owned()).collect();
    let person = place.bare_command(["token", "revoke", "last"]);
    let mut person = Screen::of(&person, 24, 80);
    person.until(&format!("revoke the token {id} of `x`, as agent? [y/N] "));
    person.press("n\n");
    assert_eq!(person.end().code, 1);
    let revoked = place.stepgate(["token", "revoke", &unique(&id, &ids)], "");
    assert!(revoked.code == 0 && revoked.stdout.contains(&id), "{revoked:?}");
    drop(gateway);
}
