use serde_json::json;
use stepgate_core::digest::Digest;
use stepgate_core::ids::{RunId, SessionId};
use uuid::Uuid;

use super::super::super::question::arguments;
use super::*;

/// Text that must never become markup.
const HOSTILE: &str =
    "</code></title><script>alert('1')</script><img src=x onerror=\"a()\">\u{202e}";

fn visitor(role: VisitorRole) -> Visitor {
    Visitor {
        principal_id: PrincipalId::parse("olga").unwrap(),
        role,
        csrf: "c5f0".into(),
        login: Digest::of_bytes(b""),
        stopped: vec![Text::of(HOSTILE)],
    }
}

fn moment() -> Moment {
    Moment::of(Timestamp::from_millisecond(1_700_000_000_123))
}

/// A page with the same text in every place that can show untrusted text.
fn page_of(text: &str, floor: VisitorActions) -> String {
    let shown = || Shown::of(text);
    let digest = Digest::of_bytes(b"");
    let page = ApprovalPage {
        frame: Frame::new(text, Some(&visitor(VisitorRole::Operator))),
        notice: Some(Notice { words: "notice", decided: None }),
        approval_id: ApprovalId::new(Uuid::now_v7()),
        standing: Standing::of(ApprovalStatus::Approved),
        floor,
        question: Question {
            tool: Text::of(text),
            principal: Text::of(text),
            reason: shown(),
            arguments: arguments(&json!({ text: text, "n": { text: [text] } }), &json!({})),
            reasoning: Some(shown()),
            risk: "changes nothing",
            labels: None,
            policies: vec![Text::of(text)],
            policy_digest: Some(digest),
            call_digest: digest,
            run_id: RunId::new(Uuid::now_v7()),
            session_id: SessionId::new(Uuid::now_v7()),
            step_index: 1,
            asked: moment(),
            expires: moment(),
            left: "over".into(),
        },
        change: Some(Difference::between("", text)),
        tool: Some(DescribedTool {
            path: "home.play".into(),
            description: Some(shown()),
            standing: "It is new.",
        }),
        people: vec![People { quorum: 2, approvers: vec![Text::of(text)] }],
        votes: vec![Text::of(text)],
        can_grant: true,
        is_final: true,
        decision: Some(Decision { by: Some(Text::of(text)), at: moment(), note: Some(shown()) }),
        fate: Some(Fate {
            words: "It failed.",
            is_over: true,
            at: Some(moment()),
            because: Some((Text::of(text), Some(shown()))),
            result: Some(shown()),
        }),
    };
    page.render().unwrap()
}

/// The tags of a page, without the text between them.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()).collect()
}

#[test]
fn no_text_of_others_becomes_markup_wherever_it_stands() {
    let floors: [fn() -> VisitorActions; 5] = [
        || VisitorActions::Decides { csrf: "c5f0".into() },
        || VisitorActions::Watches,
        || VisitorActions::AskedThemselves,
        || VisitorActions::OthersDecide,
        || VisitorActions::Over,
    ];
    for floor in floors {
        let hostile = page_of(HOSTILE, floor());
        for word in ["<script>", "<img", "\u{202e}"] {
            let title = hostile.split_once("</title>").unwrap().1;
            assert!(!title.contains(word), "{word}");
        }
        // The same tags as with a harmless text, except the marks for invisible characters.
        let is_mark = |tag: &&str| matches!(*tag, "b class=\"hidden\"" | "/b");
        let marked: Vec<_> = tags(&hostile).into_iter().filter(|tag| !is_mark(tag)).collect();
        let harmless = page_of("harmless", floor());
        let plain: Vec<_> = tags(&harmless).into_iter().filter(|tag| !is_mark(tag)).collect();
        let without_ids =
            |tag: &&str| !["/approvals/", "/runs/", "/sessions/"].iter().any(|it| tag.contains(it));
        let marked: Vec<_> = marked.into_iter().filter(without_ids).collect();
        let plain: Vec<_> = plain.into_iter().filter(without_ids).collect();
        assert_eq!(marked, plain);
    }
}

#[test]
fn an_argument_that_policy_lowered_shows_what_was_asked() {
    let sent = json!({ "room": "kitchen", "volume": 30, "text": "x".repeat(1000) });
    let asked = json!({ "room": "kitchen", "volume": 80, "text": "x".repeat(1000) });
    let arguments = arguments(&sent, &asked);
    let rows: Vec<_> = arguments
        .iter()
        .map(|it| (it.name.render().unwrap(), it.asked.as_ref().map(|it| it.render().unwrap())))
        .collect();
    let lowered = Some("<span class=\"text\">80</span>".to_owned());
    let expected =
        [("room".to_owned(), None), ("volume".to_owned(), lowered), ("text".to_owned(), None)];
    assert_eq!(rows, expected);
}

#[test]
fn what_a_visitor_can_do_depends_on_the_state_the_role_and_who_asked() {
    let (olga, alice) = (PrincipalId::parse("olga").unwrap(), PrincipalId::parse("alice").unwrap());
    for status in ApprovalStatus::ALL {
        for role in [VisitorRole::Operator, VisitorRole::Auditor] {
            for (asker, may_decide) in [(&olga, true), (&alice, true), (&alice, false)] {
                let floor = VisitorActions::of(status, &visitor(role), asker, may_decide);
                let floor = match floor {
                    VisitorActions::Decides { csrf } if csrf == "c5f0" => "decides",
                    VisitorActions::Decides { .. } => "decides with another's form",
                    VisitorActions::Watches => "watches",
                    VisitorActions::AskedThemselves => "asked",
                    VisitorActions::OthersDecide => "others decide",
                    VisitorActions::Over => "over",
                };
                let expected = match (status, role) {
                    (ApprovalStatus::Pending, VisitorRole::Auditor) => "watches",
                    (ApprovalStatus::Pending, _) if *asker == olga => "asked",
                    (ApprovalStatus::Pending, _) if !may_decide => "others decide",
                    (ApprovalStatus::Pending, _) => "decides",
                    _ => "over",
                };
                assert_eq!(floor, expected, "{status:?} {role:?} {asker}");
            }
        }
    }
}
