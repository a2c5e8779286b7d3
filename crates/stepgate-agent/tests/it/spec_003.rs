//! The rules of spec 003, each a row that holds and a row that is broken.

mod draft;

use std::collections::BTreeSet;

use stepgate_agent::context::{Context, ToolCallManifest};
use stepgate_agent::envelope::{ClientTool, ContextType, Envelope};
use stepgate_agent::invoke::{InvokeError, InvokeResult};
use stepgate_agent::response::ResponseKind;
use stepgate_agent::validator::{
    Rule, Step, validate_core, validate_post_step, validate_pre_step, validate_tool_call_manifest,
};

use draft::{Draft, artifact, call, image, manifest, party, result, tool, turn};

/// What is asked of the validator.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Core,
    Pre(Step),
    Post(Step),
}

impl Entry {
    fn ask(self, context: &Context) -> InvokeResult {
        match self {
            Self::Core => validate_core(context),
            Self::Pre(step) => validate_pre_step(context, step),
            Self::Post(step) => validate_post_step(context, step),
        }
    }
}

/// A rule, where it is asked, a draft that it holds for, and the smallest change that breaks it.
type Row = (&'static str, Entry, fn() -> Draft, fn(&mut Draft));

fn core_rows() -> Vec<Row> {
    use ContextType::{ClientToolCallContinuation, FollowOn, Initial};
    let core = Entry::Core;
    let initial = || Draft::of(Initial);
    let follow_on = || Draft::of(FollowOn);
    let continuation = || Draft::of(ClientToolCallContinuation);
    vec![
        ("AGN-036/3/type", core, initial, |it| it.context.context_type = None),
        ("AGN-036/3/time_stamp", core, initial, |it| it.context.time_stamp = String::new()),
        ("AGN-036/3/time_stamp", core, follow_on, |it| it.context.time_stamp = " ".into()),
        ("AGN-036/3/correlation_id", core, initial, |it| it.context.correlation_id = String::new()),
        ("AGN-036/3/correlation_id", core, continuation, |it| {
            it.context.correlation_id = "\t".into()
        }),
        ("AGN-036/3/org", core, initial, |it| it.envelope.org = None),
        ("AGN-036/3/org", core, initial, |it| it.envelope.org = party("")),
        ("AGN-036/3/user", core, initial, |it| it.envelope.user = None),
        ("AGN-036/3/user", core, initial, |it| it.envelope.user = party(" ")),
        ("AGN-036/3.1/input", core, initial, |it| it.envelope.instructions = None),
        ("AGN-036/3.1/input", core, follow_on, |it| it.envelope.instructions = Some(" ".into())),
        ("AGN-036/3.1/initial/session_id", core, initial, |it| it.name_session()),
        ("AGN-036/3.1/initial/turn_id", core, initial, |it| it.name_turn()),
        ("AGN-036/3.1/initial/tool_results", core, initial, |it| it.bring_result()),
        ("AGN-036/3.1/follow_on/session_id", core, follow_on, |it| it.envelope.session_id = None),
        ("AGN-036/3.1/follow_on/turn_id", core, follow_on, |it| {
            it.envelope.turn_id = Some("".into())
        }),
        ("AGN-036/3.1/follow_on/tool_results", core, follow_on, |it| it.bring_result()),
        ("AGN-036/3.1/continuation/session_id", core, continuation, |it| {
            it.envelope.session_id = None
        }),
        ("AGN-036/3.1/continuation/turn_id", core, continuation, |it| it.envelope.turn_id = None),
        ("AGN-036/3.1/continuation/tool_results", core, continuation, |it| {
            it.envelope.tool_results.clear()
        }),
    ]
}

fn session_rows() -> Vec<Row> {
    use Entry::{Post, Pre};
    use Step::{
        AgentContextResolver, AgentSessionCreator, ClientToolContinuationResolver, SessionRestorer,
    };
    let named = || Draft::of(ContextType::FollowOn);
    let restored = || Draft::of(ContextType::FollowOn).with_session().with_turn();
    let blank = || Draft::of(ContextType::Initial);
    let known = || Draft::of(ContextType::Initial).with_agent();
    let created = || Draft::of(ContextType::Initial).with_session().with_turn();
    let opened = || Draft::of(ContextType::ClientToolCallContinuation).with_session().with_turn();
    let resolved = || Draft::of(ContextType::ClientToolCallContinuation).with_manifest();
    vec![
        ("AGN-036/4.2/pre/session_id", Pre(SessionRestorer), named, |it| {
            it.envelope.session_id = None
        }),
        ("AGN-036/4.2/pre/turn_id", Pre(SessionRestorer), named, |it| it.envelope.turn_id = None),
        ("AGN-036/4.2/pre/session", Pre(SessionRestorer), named, |it| it.put_session()),
        ("AGN-036/4.2/pre/turn", Pre(SessionRestorer), named, |it| it.put_turn("another")),
        ("AGN-036/4.2/post/session", Post(SessionRestorer), restored, |it| {
            it.context.session = None
        }),
        ("AGN-036/4.2/post/turn", Post(SessionRestorer), restored, |it| it.context.turn = None),
        ("AGN-036/4.2/post/turn_id", Post(SessionRestorer), restored, |it| it.put_turn("named")),
        ("AGN-036/4.2/post/mode", Post(SessionRestorer), restored, |it| it.put_mode(None)),
        ("AGN-036/4.2/post/mode", Post(SessionRestorer), restored, |it| it.put_mode(Some(""))),
        ("AGN-036/4.3/pre/session", Pre(AgentContextResolver), blank, |it| it.put_session()),
        ("AGN-036/4.3/pre/turn", Pre(AgentContextResolver), blank, |it| it.put_turn("another")),
        ("AGN-036/4.3/post/agent_context", Post(AgentContextResolver), known, |it| {
            it.context.agent_context = None
        }),
        ("AGN-036/4.3/post/conversation_context", Post(AgentContextResolver), known, |it| {
            it.context.conversation_context = None
        }),
        ("AGN-036/4.4/pre/session", Pre(ClientToolContinuationResolver), opened, |it| {
            it.context.session = None
        }),
        ("AGN-036/4.4/pre/turn", Pre(ClientToolContinuationResolver), opened, |it| {
            it.context.turn = None
        }),
        ("AGN-036/4.4/pre/tool_results", Pre(ClientToolContinuationResolver), opened, |it| {
            it.envelope.tool_results.clear()
        }),
        ("AGN-036/4.4/post/manifest", Post(ClientToolContinuationResolver), resolved, |it| {
            it.context.tool_call_manifest = None
        }),
        ("AGN-036/5/result_json", Post(ClientToolContinuationResolver), resolved, |it| {
            it.spoil_manifest()
        }),
        ("AGN-036/4.4/post/turn_id", Post(ClientToolContinuationResolver), resolved, |it| {
            it.put_turn("another")
        }),
        ("AGN-036/4.4/post/turn_id", Post(ClientToolContinuationResolver), resolved, |it| {
            it.context.turn = None
        }),
        ("AGN-036/4.5/pre/agent_context", Pre(AgentSessionCreator), known, |it| {
            it.context.agent_context = None
        }),
        ("AGN-036/4.5/pre/conversation_context", Pre(AgentSessionCreator), known, |it| {
            it.context.conversation_context = None
        }),
        ("AGN-036/4.5/pre/session", Pre(AgentSessionCreator), known, |it| it.put_session()),
        ("AGN-036/4.5/pre/turn", Pre(AgentSessionCreator), known, |it| it.put_turn("another")),
        ("AGN-036/4.5/post/session", Post(AgentSessionCreator), created, |it| {
            it.context.session = None
        }),
        ("AGN-036/4.5/post/turn", Post(AgentSessionCreator), created, |it| it.context.turn = None),
    ]
}

fn model_rows() -> Vec<Row> {
    use Entry::{Post, Pre};
    use Step::{AgentContextLoader, LlmClient, PromptContentProviderInitializer, Reasoner};
    let created = || Draft::of(ContextType::FollowOn).with_session().with_turn();
    let known = || created_and_known(ContextType::FollowOn);
    let resolved = || created_and_known(ContextType::ClientToolCallContinuation).with_manifest();
    let ready = || Draft::of(ContextType::Initial).ready();
    let answered = || Draft::of(ContextType::Initial).with_payload();
    let calling = || Draft::of(ContextType::Initial).with_client_calls();
    let results = || Draft::of(ContextType::ClientToolCallContinuation).with_manifest();
    vec![
        ("AGN-036/4.6/pre/session", Pre(AgentContextLoader), created, |it| {
            it.context.session = None
        }),
        ("AGN-036/4.6/pre/turn", Pre(AgentContextLoader), created, |it| it.context.turn = None),
        ("AGN-036/4.6/post/agent_context", Post(AgentContextLoader), known, |it| {
            it.context.agent_context = None
        }),
        ("AGN-036/4.6/post/conversation_context", Post(AgentContextLoader), known, |it| {
            it.context.conversation_context = None
        }),
        ("AGN-036/4.7/pre/session", Pre(PromptContentProviderInitializer), known, |it| {
            it.context.session = None
        }),
        ("AGN-036/4.7/pre/turn", Pre(PromptContentProviderInitializer), known, |it| {
            it.context.turn = None
        }),
        ("AGN-036/4.7/pre/agent_context", Pre(PromptContentProviderInitializer), known, |it| {
            it.context.agent_context = None
        }),
        (
            "AGN-036/4.7/pre/conversation_context",
            Pre(PromptContentProviderInitializer),
            known,
            |it| it.context.conversation_context = None,
        ),
        ("AGN-036/4.7/pre/manifest", Pre(PromptContentProviderInitializer), resolved, |it| {
            it.context.tool_call_manifest = None
        }),
        ("AGN-036/4.7/post/ready", Post(PromptContentProviderInitializer), ready, |it| {
            it.unready()
        }),
        ("AGN-036/4.7/post/names", Post(PromptContentProviderInitializer), ready, |it| {
            it.offer_twice()
        }),
        ("AGN-036/4.8/pre/ready", Pre(Reasoner), ready, |it| it.unready()),
        ("AGN-036/3/user", Pre(Reasoner), ready, |it| it.envelope.user = None),
        ("AGN-036/4.9/pre/response_payload", Pre(LlmClient), ready, |it| it.put_payload()),
        ("AGN-036/4.9/pre/manifest", Pre(LlmClient), results, |it| {
            it.context.tool_call_manifest = None
        }),
        ("AGN-036/5/result_json", Pre(LlmClient), results, |it| it.spoil_manifest()),
        ("AGN-036/4.9/post/outcome", Post(LlmClient), answered, |it| {
            it.context.response_payload = None
        }),
        ("AGN-036/4.9/post/outcome", Post(LlmClient), answered, |it| it.put_client_calls()),
        ("AGN-036/4.9/post/outcome", Post(LlmClient), calling, |it| {
            it.context.client_tool_calls.clear()
        }),
        ("AGN-036/4.9/post/outcome", Post(LlmClient), calling, |it| it.put_payload()),
    ]
}

fn created_and_known(context_type: ContextType) -> Draft {
    Draft::of(context_type).with_session().with_turn().with_agent()
}

fn response_rows() -> Vec<Row> {
    use Entry::{Post, Pre};
    let post = Post(Step::ResponseBuilder);
    let pre = Pre(Step::ResponseBuilder);
    let last = || created_and_known(ContextType::Initial).with_payload().with_final_response();
    let calls = || created_and_known(ContextType::Initial).with_client_calls().with_call_response();
    vec![
        ("AGN-036/4.10/pre/response_type", pre, last, |it| it.context.response_payload = None),
        ("AGN-036/4.10/pre/response_type", pre, calls, |it| it.context.client_tool_calls.clear()),
        ("AGN-036/4.10/pre/response_type", post, last, |it| it.context.response_payload = None),
        ("AGN-036/4.10/post/response", post, last, |it| it.context.response = None),
        ("AGN-033/kind", post, last, |it| it.response().kind = "Final".into()),
        ("AGN-033/kind", post, last, |it| it.response().kind = "client_tool_continuation".into()),
        ("AGN-033/kind", post, calls, |it| it.response().kind = "final".into()),
        ("AGN-033/session_id", post, last, |it| it.response().session_id = None),
        ("AGN-033/session_id", post, calls, |it| {
            it.response().session_id = Some(turn("another").id.to_string())
        }),
        ("AGN-033/session_id", post, last, |it| it.context.session = None),
        ("AGN-033/turn_id", post, last, |it| it.response().turn_id = Some(String::new())),
        ("AGN-033/turn_id", post, calls, |it| {
            it.response().turn_id = Some(turn("named").id.to_string())
        }),
        ("AGN-033/turn_id", post, last, |it| it.context.turn = None),
        ("AGN-033/mode_display_name", post, calls, |it| it.response().mode_display_name = None),
        ("AGN-033/mode_display_name", post, last, |it| {
            it.response().mode_display_name = Some("Another".into())
        }),
        ("AGN-033/final/primary_output_text", post, last, |it| {
            it.response().primary_output_text = Some("something else".into())
        }),
        ("AGN-033/final/primary_output_text", post, last, |it| {
            it.response().primary_output_text = None
        }),
        ("AGN-033/final/primary_output_text", post, last, |it| {
            it.response().primary_output_text = Some(String::new())
        }),
        ("AGN-033/final/tool_calls", post, last, |it| it.response().tool_calls = Some(Vec::new())),
        ("AGN-033/continuation/tool_calls", post, calls, |it| it.response().tool_calls = None),
        ("AGN-033/continuation/tool_calls", post, calls, |it| {
            it.response().tool_calls = Some(Vec::new())
        }),
        ("AGN-033/continuation/order", post, calls, |it| {
            it.response().tool_calls.as_mut().unwrap().reverse()
        }),
        ("AGN-033/continuation/primary_output_text", post, calls, |it| {
            it.response().primary_output_text = Some("x".into())
        }),
        ("AGN-033/continuation/tool_results", post, calls, |it| {
            it.response().tool_results = Some(Vec::new())
        }),
        ("AGN-033/continuation/files", post, calls, |it| it.response().files = Some(Vec::new())),
        ("AGN-033/continuation/user_warnings", post, calls, |it| {
            it.response().user_warnings = Some(Vec::new())
        }),
        ("AGN-033/continuation/usage", post, calls, |it| {
            it.response().usage = Some(Default::default())
        }),
    ]
}

fn rule(id: &str) -> &'static Rule {
    Rule::ALL.iter().find(|rule| rule.id == id).unwrap_or_else(|| panic!("there is no rule {id}"))
}

/// The error of a broken rule, apart from what the manifest adds.
fn broken(id: &str) -> InvokeError {
    let rule = rule(id);
    InvokeError::new(rule.id, rule.message).with("field", rule.field)
}

fn check(rows: &[Row]) {
    for (number, (id, entry, holding, change)) in rows.iter().enumerate() {
        let mut draft = holding();
        let holds = entry.ask(&draft.context());
        assert_eq!(holds, InvokeResult::success(), "row {number}, {id}, {entry:?}: it must hold");
        change(&mut draft);
        let context = draft.context();
        let before = context.clone();
        let mut found = entry.ask(&context);
        assert_eq!(context, before, "{id}: the validator changes nothing");
        if id.starts_with("AGN-036/5/") {
            for error in &mut found.errors {
                error.details.retain(|name, _| name == "field");
            }
        }
        assert_eq!(found, broken(id).into(), "row {number}, {id}, {entry:?}");
    }
}

#[test]
fn core_rules_hold_and_break_one_by_one() {
    check(&core_rows());
}

#[test]
fn rules_about_session_and_turn_hold_and_break_one_by_one() {
    check(&session_rows());
}

#[test]
fn rules_about_prompt_and_model_hold_and_break_one_by_one() {
    check(&model_rows());
}

#[test]
fn rules_about_the_response_hold_and_break_one_by_one() {
    check(&response_rows());
}

/// A broken manifest: the rule, the tool's id and name, the reason, and how it is broken.
type ManifestRow = (&'static str, [&'static str; 3], fn(&mut ToolCallManifest));

const MANIFEST_ROWS: &[ManifestRow] = &[
    ("count", ["b", "beta", "no result answers it"], |it| {
        it.tool_call_results.truncate(1);
    }),
    ("count", ["a", "alpha", "no result answers it"], |it| {
        it.tool_call_results.remove(0);
    }),
    ("count", ["c", "gamma", "no call that waits has this id"], |it| {
        it.tool_call_results.push(result("c", "gamma"));
    }),
    ("count", ["c", "gamma", "no call that waits has this id"], |it| {
        it.tool_call_results.insert(0, result("c", "gamma"));
    }),
    ("count", ["a", "alpha", "this call is answered twice"], |it| {
        it.tool_call_results.push(result("a", "alpha"));
    }),
    ("count", ["a", "alpha", "no call that waits has this id"], |it| it.tool_calls.clear()),
    ("order", ["b", "beta", "it answers another call than the one in its place"], |it| {
        it.tool_call_results.reverse();
    }),
    ("tool_call_id", ["z", "beta", "no call that waits has this id"], |it| {
        it.tool_call_results[1].tool_call_id = "z".into();
    }),
    ("tool_call_id", ["a", "beta", "this call is answered twice"], |it| {
        it.tool_call_results[1].tool_call_id = "a".into();
    }),
    ("name", ["b", "Beta", "the call is of `beta`"], |it| {
        it.tool_call_results[1].name = "Beta".into();
    }),
    ("result_json", ["a", "alpha", "it has no result"], |it| {
        it.tool_call_results[0].result_json = None;
    }),
    ("result_json", ["b", "beta", "it has no result"], |it| {
        it.tool_call_results[1].result_json = Some(" ".into());
    }),
    ("result_json", ["b", "beta", "the tool is away"], |it| {
        it.tool_call_results[1].result_json = None;
        it.tool_call_results[1].error_message = Some("the tool is away".into());
    }),
    ("result_json", ["b", "beta", "its resultJson is not strict JSON: SYNTAX"], |it| {
        it.tool_call_results[1].result_json = Some("the tool says hello".into());
    }),
    ("result_json", ["b", "beta", "its resultJson is not strict JSON: DUPLICATE_KEY"], |it| {
        it.tool_call_results[1].result_json = Some("{\"a\":1,\"a\":2}".into());
    }),
    // It stops at the first.
    ("result_json", ["a", "alpha", "it has no result"], |it| {
        it.tool_call_results[0].result_json = None;
        it.tool_call_results[1].name = "Beta".into();
    }),
];

#[test]
fn a_manifest_is_valid_if_and_only_if_results_answer_calls_one_for_one() {
    for (number, (rule, [id, name, reason], change)) in MANIFEST_ROWS.iter().enumerate() {
        let mut asked = manifest();
        assert_eq!(validate_tool_call_manifest(&asked), InvokeResult::success());
        change(&mut asked);
        let expected = broken(&format!("AGN-036/5/{rule}"))
            .with("toolCallId", id)
            .with("name", name)
            .with("reason", reason);
        assert_eq!(validate_tool_call_manifest(&asked), expected.into(), "row {number}");
    }
    let empty = ToolCallManifest::default();
    assert_eq!(
        validate_tool_call_manifest(&empty),
        InvokeResult::success(),
        "an empty one is valid"
    );
}

#[test]
fn every_rule_has_its_row() {
    let rows = [core_rows(), session_rows(), model_rows(), response_rows()].concat();
    let manifest = MANIFEST_ROWS.iter().map(|(rule, ..)| format!("AGN-036/5/{rule}"));
    let tried: BTreeSet<String> =
        rows.iter().map(|(id, ..)| (*id).to_owned()).chain(manifest).collect();
    let rules: BTreeSet<String> = Rule::ALL.iter().map(|rule| rule.id.to_owned()).collect();
    assert_eq!(tried, rules);
    assert_eq!(rules.len(), Rule::ALL.len(), "no id is used twice");
}

#[test]
fn every_broken_core_rule_is_reported_at_once() {
    let errors = validate_core(&Context::new(Envelope::default())).errors;
    let codes: Vec<&str> = errors.iter().map(|error| error.code.as_str()).collect();
    let all = ["type", "time_stamp", "correlation_id", "org", "user"];
    assert_eq!(codes, all.map(|name| format!("AGN-036/3/{name}")));
    let mut draft = Draft::of(ContextType::Initial);
    draft.envelope.instructions = None;
    draft.name_session();
    draft.name_turn();
    draft.bring_result();
    let errors = validate_core(&draft.context()).errors;
    let codes: Vec<&str> = errors.iter().map(|error| error.code.as_str()).collect();
    let all = ["input", "initial/session_id", "initial/turn_id", "initial/tool_results"];
    assert_eq!(codes, all.map(|name| format!("AGN-036/3.1/{name}")));
}

#[test]
fn any_one_kind_of_input_is_enough() {
    for context_type in [ContextType::Initial, ContextType::FollowOn] {
        let changes: [fn(&mut Envelope); 2] = [draft::only_artifact, draft::only_image];
        for change in changes {
            let mut draft = Draft::of(context_type);
            change(&mut draft.envelope);
            assert_eq!(validate_core(&draft.context()), InvokeResult::success());
        }
    }
    let mut draft = Draft::of(ContextType::ClientToolCallContinuation);
    draft.envelope.instructions = None;
    assert_eq!(validate_core(&draft.context()), InvokeResult::success(), "results are enough");
}

#[test]
fn the_request_handler_needs_nothing_before_and_the_core_rules_after() {
    let blank = Context::new(Envelope::default());
    assert_eq!(validate_pre_step(&blank, Step::RequestHandler), InvokeResult::success());
    assert_eq!(validate_post_step(&blank, Step::RequestHandler), validate_core(&blank));
    assert!(!validate_core(&blank).is_success());
}

/// What is wrong with a part of a request: the field, a word of the message, and how it is broken.
type FormRow = (&'static str, &'static str, fn(&mut Draft));

const FORM_ROWS: &[FormRow] = &[
    ("CorrelationId", "at most 256 bytes", |it| it.context.correlation_id = "k".repeat(257)),
    ("Envelope.Tools", "at most 64 tools", |it| {
        it.envelope.tools = (0..65).map(|n| tool(&format!("t{n}"))).collect();
    }),
    ("Envelope.Tools", "1 to 64 letters", |it| it.envelope.tools = vec![tool("a b")]),
    ("Envelope.Tools", "1 to 64 letters", |it| it.envelope.tools = vec![tool(&"x".repeat(65))]),
    ("Envelope.Tools", "declared once", |it| it.envelope.tools = vec![tool("a"), tool("a")]),
    ("Envelope.Tools", "a JSON Schema", |it| {
        it.envelope.tools = vec![ClientTool { parameters: true.into(), ..tool("a") }];
    }),
    ("Envelope.Tools", "is the server's", |it| it.envelope.tools = vec![tool("READ_FILE")]),
    ("Envelope.InputArtifacts", "at most 64", |it| {
        it.envelope.input_artifacts = vec![artifact("a", "b"); 65];
    }),
    ("Envelope.InputArtifacts", "name is 1 to 256", |it| it.add_artifact(" ", "b")),
    ("Envelope.InputArtifacts", "name is 1 to 256", |it| it.add_artifact(&"n".repeat(257), "b")),
    ("Envelope.InputArtifacts", "name is 1 to 256", |it| it.add_artifact("a]\nb", "b")),
    ("Envelope.InputArtifacts", "must have content", |it| it.add_artifact("a", " \n")),
    ("Envelope.ClipBoardImages", "at most 16", |it| {
        it.envelope.clip_board_images = vec![image("image/png", "AA=="); 17];
    }),
    ("Envelope.ClipBoardImages", "one of image/png", |it| it.add_image("image/svg+xml", "AA==")),
    ("Envelope.ClipBoardImages", "one of image/png", |it| it.add_image("text/html", "AA==")),
    ("Envelope.ClipBoardImages", "has 1 to", |it| it.add_image("image/png", "")),
    ("Envelope.ClipBoardImages", "has 1 to", |it| {
        it.add_image("image/png", &"A".repeat(20 * 1024 * 1024 / 3 * 4 + 8));
    }),
    ("Envelope.ClipBoardImages", "is base64", |it| it.add_image("image/png", "A")),
    ("Envelope.ClipBoardImages", "is base64", |it| it.add_image("image/png", "AAAA=")),
    ("Envelope.ClipBoardImages", "is base64", |it| it.add_image("image/png", "A===")),
    ("Envelope.ClipBoardImages", "is base64", |it| it.add_image("image/png", "====")),
    ("Envelope.ClipBoardImages", "is base64", |it| it.add_image("image/png", "AA=A")),
    ("Envelope.ClipBoardImages", "is base64", |it| it.add_image("image/png", "AA AA===")),
    ("Envelope.ClipBoardImages", "is base64", |it| it.add_image("image/png", "https://a/b?")),
    ("Envelope.ClipBoardImages", "is base64", |it| it.add_image("image/png", "AA-_")),
];

#[test]
fn the_parts_of_a_request_are_judged_one_by_one_and_named_together() {
    let mut good = Draft::of(ContextType::Initial);
    good.context.known.server_tools = vec!["READ_FILE".into()];
    good.context.correlation_id = "k".repeat(256);
    good.envelope.tools = (0..64).map(|n| tool(&format!("t{n}"))).collect();
    good.add_artifact(&"n".repeat(256), "b");
    for (mime, data) in [("png", "AA=="), ("jpeg", "AAA="), ("gif", "AAAA"), ("webp", "+/+/AA==")] {
        good.add_image(&format!("image/{mime}"), data);
    }
    let post = Entry::Post(Step::RequestHandler);
    assert_eq!(post.ask(&good.context()), InvokeResult::success());
    let mut all = good.clone();
    for (number, (field, words, change)) in FORM_ROWS.iter().enumerate() {
        let mut draft = Draft::of(ContextType::Initial);
        draft.context.known.server_tools = vec!["READ_FILE".into()];
        change(&mut draft);
        let found = post.ask(&draft.context());
        let [error] = &found.errors[..] else { panic!("row {number}, {words}: {found:?}") };
        assert_eq!(
            (error.code.as_str(), error.details["field"].as_str()),
            ("REQUEST_INVALID", *field)
        );
        assert!(error.message.contains(words), "row {number}, {words}: {}", error.message);
    }
    all.add_artifact("", "");
    all.add_image("image/bmp", "?");
    assert_eq!(post.ask(&all.context()).errors.len(), 4, "everything is named at once");
}

#[test]
fn the_reasoner_is_judged_before_and_not_after() {
    let blank = Context::new(Envelope::default());
    assert_eq!(validate_post_step(&blank, Step::Reasoner), InvokeResult::success());
}

#[test]
fn only_a_continuation_needs_a_manifest() {
    for context_type in [ContextType::Initial, ContextType::FollowOn] {
        let draft = created_and_known(context_type);
        let prompt = Step::PromptContentProviderInitializer;
        assert_eq!(validate_pre_step(&draft.context(), prompt), InvokeResult::success());
        assert_eq!(validate_pre_step(&draft.context(), Step::LlmClient), InvokeResult::success());
    }
}

/// "Type follows from presence": every mixture of session, turn and results.
#[test]
fn the_type_follows_from_what_is_there() {
    use ContextType::{ClientToolCallContinuation, FollowOn, Initial};
    let rows = [
        (false, false, false, Some(Initial)),
        (true, true, false, Some(FollowOn)),
        (true, true, true, Some(ClientToolCallContinuation)),
        (true, false, false, None),
        (true, false, true, None),
        (false, true, false, None),
        (false, true, true, None),
        (false, false, true, None),
    ];
    for (session, turn, results, expected) in rows {
        let envelope = Envelope {
            session_id: session.then(|| "s".to_owned()),
            turn_id: turn.then(|| "t".to_owned()),
            tool_results: if results { vec![result("a", "alpha")] } else { Vec::new() },
            ..Envelope::default()
        };
        assert_eq!(ContextType::of(&envelope), expected, "{session} {turn} {results}");
    }
    let blank = Envelope { session_id: Some(" ".into()), ..Envelope::default() };
    assert_eq!(ContextType::of(&blank), Some(Initial), "blank is empty");
}

#[test]
fn the_response_type_follows_from_the_context() {
    let mut context = Context::new(Envelope::default());
    assert_eq!(context.response_kind(), None);
    context.client_tool_calls = vec![call("a", "alpha")];
    assert_eq!(context.response_kind(), Some(ResponseKind::ClientToolContinuation));
    context.response_payload = Some("done".into());
    assert_eq!(context.response_kind(), Some(ResponseKind::Final));
}

#[test]
fn success_means_no_errors_and_warnings_never_fail() {
    let warning = InvokeError::new("W", "look at this");
    let mut warned = InvokeResult { warnings: vec![warning], ..InvokeResult::success() };
    assert!(warned.is_success());
    warned.include(InvokeError::new("E", "this is wrong").into());
    assert!(!warned.is_success());
}

#[test]
fn absent_members_of_a_response_are_absent_and_not_null() {
    let draft = Draft::of(ContextType::Initial).with_client_calls().with_call_response();
    let text = serde_json::to_value(draft.context().response.unwrap()).unwrap();
    let expected = serde_json::json!({
        "kind": "client_tool_continuation",
        "sessionId": draft::SESSION,
        "turnId": turn("another").id,
        "modeDisplayName": "General",
        "toolCalls": [
            { "toolCallId": "a", "name": "alpha", "argumentsJson": "{}" },
            { "toolCallId": "b", "name": "beta", "argumentsJson": "{}" },
        ],
    });
    assert_eq!(text, expected);
}
