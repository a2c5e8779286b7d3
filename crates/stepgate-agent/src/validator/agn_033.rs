//! The response's own contract. Forbidden means absent.

use super::rule;
use crate::context::Context;
use crate::envelope::is_present;
use crate::invoke::InvokeResult;
use crate::response::{Response, ResponseKind};

pub(super) fn check(context: &Context, response: &Response, found: &mut InvokeResult) {
    let kind = ResponseKind::parse(&response.kind);
    // If there is nothing to respond with, another rule reports it.
    let expected = context.response_kind().or(kind);
    found.must(kind.is_some() && kind == expected, rule::RESPONSE_KIND);
    let session = context.session.as_ref().map(|session| session.id.to_string());
    found.must(session.is_some() && response.session_id == session, rule::RESPONSE_SESSION);
    let turn = context.turn.as_ref().map(|turn| turn.id.to_string());
    found.must(turn.is_some() && response.turn_id == turn, rule::RESPONSE_TURN);
    let mode = context.conversation_context.as_ref().map(|it| it.mode_display_name.as_str());
    let is_mode = is_present(mode) && response.mode_display_name.as_deref() == mode;
    found.must(is_mode, rule::RESPONSE_MODE);
    match kind.filter(|_| kind == expected) {
        Some(ResponseKind::Final) => {
            let said = context.response_payload.as_deref();
            let text = response.primary_output_text.as_deref();
            found.must(is_present(text) && (said.is_none() || text == said), rule::FINAL_TEXT);
            found.must(response.tool_calls.is_none(), rule::FINAL_CALLS);
        }
        Some(ResponseKind::ClientToolContinuation) => continuation(context, response, found),
        None => {}
    }
}

fn continuation(context: &Context, response: &Response, found: &mut InvokeResult) {
    let calls = response.tool_calls.as_deref().unwrap_or_default();
    found.must(!calls.is_empty(), rule::CALLS_PRESENT);
    found.must(calls.is_empty() || calls == context.client_tool_calls, rule::CALLS_ORDER);
    found.must(response.primary_output_text.is_none(), rule::CALLS_TEXT);
    found.must(response.tool_results.is_none(), rule::CALLS_RESULTS);
    found.must(response.files.is_none(), rule::CALLS_FILES);
    found.must(response.user_warnings.is_none(), rule::CALLS_WARNINGS);
    found.must(response.usage.is_none(), rule::CALLS_USAGE);
}
