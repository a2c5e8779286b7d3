//! The limits of a turn, by name.

/// The limits that a configuration may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentLimits {
    /// Most answers of the model to one request (spec 003's facts: at most 8).
    pub rounds_max: usize,
    /// Most turns of one conversation in a prompt.
    pub turns_max: usize,
    /// Longest prompt, in bytes of text.
    pub prompt_bytes_max: usize,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self { rounds_max: 8, turns_max: 100, prompt_bytes_max: 4 * 1024 * 1024 }
    }
}

/// Most calls in one answer of a model.
pub const CALLS_MAX: usize = 32;
/// Longest id that a model may give a call.
pub const TOOL_CALL_ID_BYTES_MAX: usize = 256;
/// Longest text of one answer.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Deepest nesting of a call's arguments. The gate has its own limit as well.
pub const ARGUMENTS_DEPTH_MAX: usize = 120;
/// Most tools that a caller may declare.
pub const CLIENT_TOOLS_MAX: usize = 64;
/// Longest name of a tool that models accept.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// Most texts that the user may attach to one request.
pub const ARTIFACTS_MAX: usize = 64;
/// Longest name of such a text.
pub const ARTIFACT_NAME_BYTES_MAX: usize = 256;
/// Most images in one request.
pub const IMAGES_MAX: usize = 16;
/// The image types that models accept.
pub const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Largest image, decoded.
pub const IMAGE_BYTES_MAX: usize = 20 * 1024 * 1024;
/// Deepest nesting of the result of a caller's tool.
pub const RESULT_DEPTH_MAX: usize = 120;
/// Longest idempotency key.
pub const CORRELATION_ID_BYTES_MAX: usize = 256;
/// Longest part of a model's text that becomes the reasoning of a proposal.
pub const REASONING_BYTES_MAX: usize = 2048;
