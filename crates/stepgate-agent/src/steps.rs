//! One file per step, in the order of the specification.

pub(crate) mod s01_request_handler;
pub(crate) mod s02_session_restorer;
pub(crate) mod s03_agent_context_resolver;
pub(crate) mod s04_client_tool_continuation_resolver;
pub(crate) mod s05_agent_session_creator;
pub(crate) mod s06_agent_context_loader;
pub(crate) mod s07_prompt_content_provider_initializer;
pub(crate) mod s08_reasoner;
pub(crate) mod s09_llm_client;
pub(crate) mod s10_response_builder;
