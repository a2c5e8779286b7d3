//! Section 3: rules that hold for every context.

use super::rule::{self, Findings};
use crate::context::Context;
use crate::envelope::{ContextType, Envelope, is_present};
use crate::invoke::InvokeResult;

pub(super) fn check(context: &Context) -> InvokeResult {
    let envelope = context.envelope();
    let context_type = ContextType::parse(&context.context_type);
    let mut found = Findings::default();
    found.must(context_type.is_some(), rule::TYPE);
    found.must(is_present(Some(&context.time_stamp)), rule::TIME_STAMP);
    found.must(is_present(Some(&context.correlation_id)), rule::CORRELATION_ID);
    found.must(is_somebody(envelope.org.as_ref()), rule::ORG);
    found.must(is_somebody(envelope.user.as_ref()), rule::USER);
    match context_type {
        Some(ContextType::Initial) => initial(envelope, &mut found),
        Some(ContextType::FollowOn) => follow_on(envelope, &mut found),
        Some(ContextType::ClientToolCallContinuation) => continuation(envelope, &mut found),
        None => {}
    }
    found.done()
}

fn is_somebody(party: Option<&crate::envelope::Party>) -> bool {
    party.is_some_and(|party| is_present(Some(&party.id)))
}

fn initial(envelope: &Envelope, found: &mut Findings) {
    found.must(has_input(envelope), rule::INPUT);
    found.must(!is_present(envelope.session_id.as_deref()), rule::INITIAL_SESSION);
    found.must(!is_present(envelope.turn_id.as_deref()), rule::INITIAL_TURN);
    found.must(envelope.tool_results.is_empty(), rule::INITIAL_RESULTS);
}

fn follow_on(envelope: &Envelope, found: &mut Findings) {
    found.must(has_input(envelope), rule::INPUT);
    found.must(is_present(envelope.session_id.as_deref()), rule::FOLLOW_ON_SESSION);
    found.must(is_present(envelope.turn_id.as_deref()), rule::FOLLOW_ON_TURN);
    found.must(envelope.tool_results.is_empty(), rule::FOLLOW_ON_RESULTS);
}

fn continuation(envelope: &Envelope, found: &mut Findings) {
    found.must(is_present(envelope.session_id.as_deref()), rule::CONTINUATION_SESSION);
    found.must(is_present(envelope.turn_id.as_deref()), rule::CONTINUATION_TURN);
    found.must(!envelope.tool_results.is_empty(), rule::CONTINUATION_RESULTS);
}

/// "At least one of the following must be provided".
fn has_input(envelope: &Envelope) -> bool {
    is_present(envelope.instructions.as_deref())
        || !envelope.input_artifacts.is_empty()
        || !envelope.clip_board_images.is_empty()
}
