use serde_json::Value;

use super::*;

fn message(title: &str) -> Message {
    let mut message = Message::test("x", Some("https://gate.example"));
    message.data.title = title.to_owned();
    message
}

#[test]
fn no_text_leaves_the_code_span_of_a_chat() {
    let hostile = "`<!here> *x* </script> [a](b) & ``` @channel";
    let text = slack_text(&message(hostile));
    let line = text.lines().next().unwrap();
    assert_eq!(line, "*Stepgate* `'&lt;!here&gt; *x* &lt;/script&gt; [a](b) &amp; ''' @channel`");
}

#[test]
fn ntfy_is_told_as_json_at_its_root() {
    let (root, topic) = topic("https://ntfy.example/gate".parse().unwrap()).unwrap();
    assert_eq!((root.as_str(), topic.as_str()), ("https://ntfy.example/", "gate"));
    let body: Value = serde_json::from_str(&ntfy_body(&message("\"quoted\""), &topic)).unwrap();
    assert_eq!((&body["topic"], &body["title"]), (&"gate".into(), &"Stepgate: \"quoted\"".into()));
    assert!(super::topic("https://ntfy.example".parse().unwrap()).unwrap_err().contains("topic"));
}
