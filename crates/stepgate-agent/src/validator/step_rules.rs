//! Section 4: rules before and after each step.

use std::collections::HashSet;

use super::rule::{self, Rule};
use super::{Step, agn_033, request_rules, validate_core, validate_tool_call_manifest};
use crate::context::Context;
use crate::envelope::{ContextType, is_present};
use crate::invoke::InvokeResult;

/// Rules before a step (section 4).
pub fn validate_pre_step(context: &Context, step: Step) -> InvokeResult {
    let mut found = InvokeResult::success();
    match step {
        Step::RequestHandler => {}
        Step::SessionRestorer => {
            let envelope = context.envelope();
            found.must(is_present(envelope.session_id.as_deref()), rule::RESTORER_PRE_SESSION_ID);
            found.must(is_present(envelope.turn_id.as_deref()), rule::RESTORER_PRE_TURN_ID);
            absent(context, rule::RESTORER_PRE_SESSION, rule::RESTORER_PRE_TURN, &mut found);
        }
        Step::AgentContextResolver => {
            absent(context, rule::RESOLVER_PRE_SESSION, rule::RESOLVER_PRE_TURN, &mut found);
        }
        Step::ClientToolContinuationResolver => {
            let (session, turn) = (rule::CONTINUATION_PRE_SESSION, rule::CONTINUATION_PRE_TURN);
            populated(context, session, turn, &mut found);
            let results = &context.envelope().tool_results;
            found.must(!results.is_empty(), rule::CONTINUATION_PRE_RESULTS);
        }
        Step::AgentSessionCreator => {
            known(context, rule::CREATOR_PRE_AGENT, rule::CREATOR_PRE_CONVERSATION, &mut found);
            absent(context, rule::CREATOR_PRE_SESSION, rule::CREATOR_PRE_TURN, &mut found);
        }
        Step::AgentContextLoader => {
            populated(context, rule::LOADER_PRE_SESSION, rule::LOADER_PRE_TURN, &mut found);
        }
        Step::PromptContentProviderInitializer => {
            populated(context, rule::PROMPT_PRE_SESSION, rule::PROMPT_PRE_TURN, &mut found);
            known(context, rule::PROMPT_PRE_AGENT, rule::PROMPT_PRE_CONVERSATION, &mut found);
            let has_manifest = context.tool_call_manifest.is_some();
            found.must(!is_continuation(context) || has_manifest, rule::PROMPT_PRE_MANIFEST);
        }
        Step::Reasoner => {
            found.include(validate_core(context));
            found.must(context.prompt.is_some(), rule::REASONER_PRE_READY);
        }
        Step::LlmClient => {
            found.must(context.response_payload.is_none(), rule::LLM_PRE_PAYLOAD);
            if is_continuation(context) {
                manifest(context, rule::LLM_PRE_MANIFEST, &mut found);
            }
        }
        Step::ResponseBuilder => {
            found.must(context.response_kind().is_some(), rule::BUILDER_PRE_TYPE)
        }
    }
    found
}

/// Rules after a step (section 4).
pub fn validate_post_step(context: &Context, step: Step) -> InvokeResult {
    let mut found = InvokeResult::success();
    match step {
        Step::RequestHandler => found.include(request_rules::check(context)),
        Step::SessionRestorer => {
            populated(context, rule::RESTORER_POST_SESSION, rule::RESTORER_POST_TURN, &mut found);
            found.must(!is_turn_of_envelope(context), rule::RESTORER_POST_TURN_ID);
            if let Some(session) = &context.session {
                found.must(is_present(session.mode.as_deref()), rule::RESTORER_POST_MODE);
            }
        }
        Step::AgentContextResolver => {
            known(context, rule::RESOLVER_POST_AGENT, rule::RESOLVER_POST_CONVERSATION, &mut found);
        }
        Step::ClientToolContinuationResolver => {
            manifest(context, rule::CONTINUATION_POST_MANIFEST, &mut found);
            found.must(is_turn_of_envelope(context), rule::CONTINUATION_POST_TURN_ID);
        }
        Step::AgentSessionCreator => {
            populated(context, rule::CREATOR_POST_SESSION, rule::CREATOR_POST_TURN, &mut found);
        }
        Step::AgentContextLoader => {
            known(context, rule::LOADER_POST_AGENT, rule::LOADER_POST_CONVERSATION, &mut found);
        }
        Step::PromptContentProviderInitializer => {
            found.must(context.prompt.is_some(), rule::PROMPT_POST_READY);
            found.must(has_names_of_their_own(context), rule::PROMPT_POST_NAMES);
        }
        Step::Reasoner => {}
        Step::LlmClient => {
            let has_payload = context.response_payload.is_some();
            let has_calls = !context.client_tool_calls.is_empty();
            found.must(has_payload != has_calls, rule::LLM_POST_OUTCOME);
        }
        Step::ResponseBuilder => {
            // "Context invariants unchanged (PRE == POST)".
            found.must(context.response_kind().is_some(), rule::BUILDER_PRE_TYPE);
            match &context.response {
                Some(response) => agn_033::check(context, response, &mut found),
                None => found.must(false, rule::BUILDER_POST_RESPONSE),
            }
        }
    }
    found
}

/// The manifest is there, and its results answer its calls.
fn manifest(context: &Context, missing: Rule, found: &mut InvokeResult) {
    match &context.tool_call_manifest {
        Some(manifest) => found.include(validate_tool_call_manifest(manifest)),
        None => found.must(false, missing),
    }
}

fn absent(context: &Context, session: Rule, turn: Rule, found: &mut InvokeResult) {
    found.must(context.session.is_none(), session);
    found.must(context.turn.is_none(), turn);
}

fn populated(context: &Context, session: Rule, turn: Rule, found: &mut InvokeResult) {
    found.must(context.session.is_some(), session);
    found.must(context.turn.is_some(), turn);
}

fn known(context: &Context, agent: Rule, conversation: Rule, found: &mut InvokeResult) {
    found.must(context.agent_context.is_some(), agent);
    found.must(context.conversation_context.is_some(), conversation);
}

fn is_continuation(context: &Context) -> bool {
    context.context_type == Some(ContextType::ClientToolCallContinuation)
}

/// Whether the names of the offers are unique.
fn has_names_of_their_own(context: &Context) -> bool {
    let mut names = HashSet::new();
    let mut offers = context.prompt.iter().flat_map(|prompt| &prompt.offers);
    offers.all(|offer| names.insert(&offer.name))
}

/// Whether the turn is the one that the request names.
fn is_turn_of_envelope(context: &Context) -> bool {
    let named = context.envelope().turn_id.as_deref();
    context.turn.as_ref().is_some_and(|turn| named == Some(turn.id.to_string().as_str()))
}
