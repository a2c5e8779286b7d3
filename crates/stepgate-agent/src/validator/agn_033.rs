//! The response's own contract. Forbidden means absent.

use super::rule::{self, Findings};
use crate::context::{Context, is_present};
use crate::response::{Response, ResponseKind};

pub(super) fn check(context: &Context, response: &Response, found: &mut Findings) {
    let kind = ResponseKind::parse(&response.kind);
    found.must(kind.is_some(), rule::RESPONSE_KIND);
    found.must(is_present(response.session_id.as_deref()), rule::RESPONSE_SESSION);
    found.must(is_present(response.turn_id.as_deref()), rule::RESPONSE_TURN);
    found.must(is_present(response.mode_display_name.as_deref()), rule::RESPONSE_MODE);
    match kind {
        Some(ResponseKind::Final) => {
            found.must(is_present(response.primary_output_text.as_deref()), rule::FINAL_TEXT);
            found.must(response.tool_calls.is_none(), rule::FINAL_CALLS);
        }
        Some(ResponseKind::ClientToolContinuation) => continuation(context, response, found),
        None => {}
    }
}

fn continuation(context: &Context, response: &Response, found: &mut Findings) {
    let calls = response.tool_calls.as_deref().unwrap_or_default();
    found.must(!calls.is_empty(), rule::CALLS_PRESENT);
    found.must(calls.is_empty() || calls == context.client_tool_calls, rule::CALLS_ORDER);
    found.must(response.primary_output_text.is_none(), rule::CALLS_TEXT);
    found.must(response.tool_results.is_none(), rule::CALLS_RESULTS);
    found.must(response.files.is_none(), rule::CALLS_FILES);
    found.must(response.user_warnings.is_none(), rule::CALLS_WARNINGS);
    found.must(response.usage.is_none(), rule::CALLS_USAGE);
}
