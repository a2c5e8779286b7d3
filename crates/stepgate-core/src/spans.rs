//! The spans that a step leaves behind. The core only marks where a part begins and ends: it has no clock. The
//! program measures the spans for `/metrics`, and exports them where the configuration says so.
//!
//! A span's target says what it measures. Its fields have the names of OpenTelemetry's conventions; the content
//! of a call is in none of them.

/// A request over HTTP. Like a call over MCP, it may continue a caller's trace: then it has the fields `traceparent` and
/// `tracestate`.
pub const HTTP: &str = "stepgate::http";
/// A call over MCP.
pub const MCP: &str = "stepgate::mcp";
/// A step, from its beginning, a decision or a recovery to its answer.
pub const STEP: &str = "stepgate::step";
/// A phase; its name is that of [`Phase`](crate::failure::Phase).
pub const PHASE: &str = "stepgate::phase";
/// A call of a tool: in the sandbox, or of a tool server. The field `gen_ai.tool.name` has its name.
pub const TOOL: &str = "stepgate::tool";
/// A commit, as its caller waits for it.
pub const COMMIT: &str = "stepgate::commit";
/// A transaction of the store. The field `db.operation.batch.size` says how many writes share it.
pub const BATCH: &str = "stepgate::batch";
/// A question to the model.
pub const MODEL: &str = "stepgate::model";
/// A run that this node took from another one, which is gone.
pub const TAKEOVER: &str = "stepgate::takeover";
