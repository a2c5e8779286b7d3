use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

#[test]
fn a_trace_is_read_and_written_as_it_came() {
    for (flags, is_sampled) in [("01", true), ("00", false)] {
        let text = format!("00-{TRACE}-{SPAN}-{flags}");
        let parent = TraceParent::parse(&text).unwrap();
        assert_eq!((parent.is_sampled, parent.to_string()), (is_sampled, text));
    }
    // Flags and parts that a later version adds are not repeated.
    let later = TraceParent::parse(&format!("cc-{TRACE}-{SPAN}-03-more")).unwrap();
    assert_eq!(later.to_string(), format!("00-{TRACE}-{SPAN}-01"));
}

#[test]
fn what_the_recommendation_calls_invalid_is_no_trace() {
    let zeros = "0".repeat(32);
    for text in [
        String::new(),
        TRACE.to_owned(),
        format!("00-{TRACE}-{SPAN}"),
        format!("ff-{TRACE}-{SPAN}-01"),
        format!("00-{TRACE}-{SPAN}-01-more"),
        format!("00-{TRACE}-{SPAN}-1"),
        format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
        format!("00-{zeros}-{SPAN}-01"),
        format!("00-{TRACE}-0000000000000000-01"),
        format!("00-{TRACE}-+7ad6b716920333-01"),
        format!(" 00-{TRACE}-{SPAN}-01"),
    ] {
        assert_eq!(TraceParent::parse(&text), None, "{text}");
    }
}

#[test]
fn a_state_that_is_long_or_not_printable_is_not_passed_on() {
    let most = "x".repeat(TRACESTATE_BYTES_MAX);
    assert_eq!(state(&most), Some(most.as_str()));
    for text in ["", "a=b\n", "a=\u{fc}", &format!("{most}x")] {
        assert_eq!(state(text), None, "{text}");
    }
}
