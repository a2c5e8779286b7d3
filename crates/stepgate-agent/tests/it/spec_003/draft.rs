//! Contexts that can be changed in any way, the envelope included, before they are made.

use stepgate_agent::context::{AgentSession, Context, ConversationContext, ToolCallManifest};
use stepgate_agent::envelope::{
    ClientTool, ClipBoardImage, ContextType, Envelope, InputArtifact, Party, ToolCall,
    ToolCallResult,
};
use stepgate_agent::model::{Offer, Prompt};
use stepgate_agent::ports::Profile;
use stepgate_agent::response::Response;
use stepgate_agent::turn::{Turn, TurnId};
use stepgate_core::ids::PrincipalId;

pub(super) const SESSION: &str = "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10";

/// An envelope, and everything else of a context.
#[derive(Clone)]
pub(super) struct Draft {
    pub(super) envelope: Envelope,
    pub(super) context: Context,
}

pub(super) fn party(id: &str) -> Option<Party> {
    Some(Party { id: id.into() })
}

/// A turn; `named` is the one that envelopes name.
pub(super) fn turn(key: &str) -> Turn {
    Turn::provisional(TurnId::of(&PrincipalId::parse("agent").unwrap(), key))
}

pub(super) fn call(id: &str, name: &str) -> ToolCall {
    ToolCall { tool_call_id: id.into(), name: name.into(), arguments_json: "{}".into() }
}

pub(super) fn result(id: &str, name: &str) -> ToolCallResult {
    ToolCallResult {
        tool_call_id: id.into(),
        name: name.into(),
        result_json: Some("{}".into()),
        error_message: None,
    }
}

/// Two calls with their results.
pub(super) fn manifest() -> ToolCallManifest {
    ToolCallManifest {
        tool_calls: vec![call("a", "alpha"), call("b", "beta")],
        tool_call_results: vec![result("a", "alpha"), result("b", "beta")],
    }
}

pub(super) fn tool(name: &str) -> ClientTool {
    let parameters = serde_json::json!({ "type": "object" });
    ClientTool { name: name.into(), description: None, parameters }
}

pub(super) fn artifact(name: &str, content: &str) -> InputArtifact {
    InputArtifact { name: name.into(), content: content.into() }
}

pub(super) fn image(mime_type: &str, data: &str) -> ClipBoardImage {
    ClipBoardImage { mime_type: mime_type.into(), data: data.into() }
}

pub(super) fn only_artifact(envelope: &mut Envelope) {
    envelope.instructions = None;
    envelope.input_artifacts = vec![InputArtifact { name: "a".into(), content: "b".into() }];
}

pub(super) fn only_image(envelope: &mut Envelope) {
    envelope.instructions = None;
    let (mime_type, data) = ("image/png".into(), "AA==".into());
    envelope.clip_board_images = vec![ClipBoardImage { mime_type, data }];
}

impl Draft {
    /// What a valid request of this type is, before any step but the first.
    pub(super) fn of(context_type: ContextType) -> Self {
        let envelope = Envelope {
            org: party("stepgate"),
            user: party("agent"),
            instructions: Some("say something".into()),
            ..Envelope::default()
        };
        let mut context = Context::new(Envelope::default());
        context.context_type = Some(context_type);
        context.time_stamp = "2026-11-15T09:00:00.000Z".into();
        context.correlation_id = "key".into();
        let mut draft = Self { envelope, context };
        match context_type {
            ContextType::Initial => {}
            ContextType::FollowOn => {
                draft.name_session();
                draft.name_turn();
            }
            ContextType::ClientToolCallContinuation => {
                draft.name_session();
                draft.name_turn();
                draft.bring_result();
            }
        }
        draft
    }

    /// The context that the draft describes.
    pub(super) fn context(&self) -> Context {
        let mut context = Context::new(self.envelope.clone());
        let from = self.context.clone();
        context.context_type = from.context_type;
        context.time_stamp = from.time_stamp;
        context.correlation_id = from.correlation_id;
        context.known = from.known;
        context.session = from.session;
        context.turn = from.turn;
        context.agent_context = from.agent_context;
        context.conversation_context = from.conversation_context;
        context.tool_call_manifest = from.tool_call_manifest;
        context.prompt = from.prompt;
        context.response_payload = from.response_payload;
        context.client_tool_calls = from.client_tool_calls;
        context.response = from.response;
        context
    }

    pub(super) fn name_session(&mut self) {
        self.envelope.session_id = Some(SESSION.into());
    }

    pub(super) fn name_turn(&mut self) {
        self.envelope.turn_id = Some(turn("named").id.to_string());
    }

    pub(super) fn bring_result(&mut self) {
        self.envelope.tool_results = vec![result("a", "alpha")];
    }

    pub(super) fn add_artifact(&mut self, name: &str, content: &str) {
        self.envelope.input_artifacts.push(artifact(name, content));
    }

    pub(super) fn add_image(&mut self, mime_type: &str, data: &str) {
        self.envelope.clip_board_images.push(image(mime_type, data));
    }

    pub(super) fn put_session(&mut self) {
        self.context.session =
            Some(AgentSession { id: SESSION.parse().unwrap(), mode: Some("general".into()) });
    }

    pub(super) fn put_mode(&mut self, mode: Option<&str>) {
        self.context.session.as_mut().unwrap().mode = mode.map(str::to_owned);
    }

    pub(super) fn put_turn(&mut self, key: &str) {
        self.context.turn = Some(turn(key));
    }

    pub(super) fn put_payload(&mut self) {
        self.context.response_payload = Some("done".into());
    }

    pub(super) fn put_client_calls(&mut self) {
        self.context.client_tool_calls = manifest().tool_calls;
    }

    pub(super) fn spoil_manifest(&mut self) {
        let manifest = self.context.tool_call_manifest.as_mut().unwrap();
        manifest.tool_call_results[1].result_json = None;
    }

    /// Two tools that the model would know by one name.
    pub(super) fn offer_twice(&mut self) {
        let offer = Offer {
            name: "pick".into(),
            description: None,
            parameters: serde_json::json!({ "type": "object" }),
            action: None,
        };
        let content = Prompt { offers: vec![offer.clone(), offer], ..Prompt::default() };
        self.context.prompt = Some(content);
    }

    pub(super) fn unready(&mut self) {
        self.context.prompt = None;
    }

    pub(super) fn response(&mut self) -> &mut Response {
        self.context.response.as_mut().unwrap()
    }

    pub(super) fn with_session(mut self) -> Self {
        self.put_session();
        self
    }

    pub(super) fn with_turn(mut self) -> Self {
        self.put_turn("another");
        self
    }

    pub(super) fn with_agent(mut self) -> Self {
        let (mode, mode_display_name): (String, String) = ("general".into(), "General".into());
        self.context.agent_context = Some(Profile {
            system_prompt: "be brief".into(),
            mode: mode.clone(),
            mode_display_name: mode_display_name.clone(),
        });
        self.context.conversation_context =
            Some(ConversationContext { mode, mode_display_name, earlier: Vec::new() });
        self
    }

    /// Calls and results side by side, in the turn that the envelope names.
    pub(super) fn with_manifest(mut self) -> Self {
        self.context.tool_call_manifest = Some(manifest());
        self.put_turn("named");
        self
    }

    pub(super) fn ready(mut self) -> Self {
        self.context.prompt = Some(Prompt::default());
        self
    }

    pub(super) fn with_payload(mut self) -> Self {
        self.put_payload();
        self
    }

    pub(super) fn with_client_calls(mut self) -> Self {
        self.put_client_calls();
        self
    }

    fn with_response(mut self, kind: &str) -> Self {
        self.context.response = Some(Response {
            kind: kind.into(),
            session_id: Some(SESSION.into()),
            turn_id: Some(turn("another").id.to_string()),
            mode_display_name: Some("General".into()),
            ..Response::default()
        });
        self
    }

    pub(super) fn with_final_response(self) -> Self {
        let mut draft = self.with_response("final");
        draft.response().primary_output_text = Some("done".into());
        draft
    }

    pub(super) fn with_call_response(self) -> Self {
        let mut draft = self.with_response("client_tool_continuation");
        draft.response().tool_calls = Some(manifest().tool_calls);
        draft
    }
}
