//! Section 3: rules that hold for every context.

use super::rule;
use crate::context::Context;
use crate::envelope::{ContextType, Party, is_present};
use crate::invoke::InvokeResult;

/// Rules that hold for every context (section 3).
pub fn validate_core(context: &Context) -> InvokeResult {
    let envelope = context.envelope();
    let mut found = InvokeResult::success();
    found.must(context.context_type.is_some(), rule::TYPE);
    found.must(is_present(Some(&context.time_stamp)), rule::TIME_STAMP);
    found.must(is_present(Some(&context.correlation_id)), rule::CORRELATION_ID);
    found.must(is_known(envelope.org.as_ref()), rule::ORG);
    found.must(is_known(envelope.user.as_ref()), rule::USER);
    let has_session = is_present(envelope.session_id.as_deref());
    let has_turn = is_present(envelope.turn_id.as_deref());
    let has_results = !envelope.tool_results.is_empty();
    match context.context_type {
        Some(ContextType::Initial) => {
            found.must(envelope.has_input(), rule::INPUT);
            found.must(!has_session, rule::INITIAL_SESSION);
            found.must(!has_turn, rule::INITIAL_TURN);
            found.must(!has_results, rule::INITIAL_RESULTS);
        }
        Some(ContextType::FollowOn) => {
            found.must(envelope.has_input(), rule::INPUT);
            found.must(has_session, rule::FOLLOW_ON_SESSION);
            found.must(has_turn, rule::FOLLOW_ON_TURN);
            found.must(!has_results, rule::FOLLOW_ON_RESULTS);
        }
        Some(ContextType::ClientToolCallContinuation) => {
            found.must(has_session, rule::CONTINUATION_SESSION);
            found.must(has_turn, rule::CONTINUATION_TURN);
            found.must(has_results, rule::CONTINUATION_RESULTS);
        }
        None => {}
    }
    found
}

fn is_known(party: Option<&Party>) -> bool {
    party.is_some_and(|party| is_present(Some(&party.id)))
}
