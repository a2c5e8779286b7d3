//! The trace that a caller's request belongs to (W3C Trace Context): read strictly, passed on to tool servers. It decides
//! nothing.

use std::fmt;

/// The name of the header and of the member of MCP's `_meta`.
pub const TRACEPARENT: &str = "traceparent";
/// The same for what the systems on the way have added.
pub const TRACESTATE: &str = "tracestate";
/// Longest `tracestate` that is passed on, in bytes: as much as the recommendation asks for.
pub const TRACESTATE_BYTES_MAX: usize = 512;

const SAMPLED: u8 = 1;

/// Where a span is: its trace and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace_id: u128,
    /// The span in it.
    pub span_id: u64,
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

/// A trace as it is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The span that calls.
    pub parent: TraceParent,
    /// What the systems on the way have added, as it came.
    pub state: Option<String>,
}

impl TraceParent {
    /// Reads `traceparent`. Anything that the recommendation calls invalid is no trace at all.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace_id) = (hex(parts.next()?, 2)?, hex(parts.next()?, 32)?);
        let (span_id, flags) = (hex(parts.next()?, 16)?, hex(parts.next()?, 2)?);
        // Only a later version may have more parts; the last one is never used.
        let is_known = match version {
            0 => parts.next().is_none(),
            0xff => false,
            _ => true,
        };
        let span_id = u64::try_from(span_id).ok()?;
        let is_sampled = u8::try_from(flags).ok()? & SAMPLED != 0;
        (is_known && trace_id != 0 && span_id != 0).then_some(Self {
            trace_id,
            span_id,
            is_sampled,
        })
    }
}

/// A number of exactly so many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_hex = text.len() == digits && text.bytes().all(is_digit);
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, is_sampled } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(*is_sampled))
    }
}

/// A `tracestate` that can be passed on: short, and printable.
pub fn state(text: &str) -> Option<&str> {
    let is_fit = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    let is_short = (1..=TRACESTATE_BYTES_MAX).contains(&text.len());
    (is_short && text.bytes().all(is_fit)).then_some(text)
}

#[cfg(test)]
mod tests;
