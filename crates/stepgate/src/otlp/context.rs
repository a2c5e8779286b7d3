//! Which trace a span belongs to.

use std::sync::Arc;

use stepgate_core::trace_context::{TraceContext, TraceParent};
use tracing::{Span, dispatcher};
use tracing_subscriber::registry::{LookupSpan, Registry, SpanRef};
use uuid::Uuid;

/// A span's place in its trace, kept beside the span.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) here: TraceParent,
    /// The caller's `tracestate`.
    pub(super) state: Option<Arc<str>>,
}

impl Place {
    pub(super) fn root(is_sampled: impl FnOnce(u128) -> bool) -> Self {
        let trace_id = Uuid::new_v4().as_u128();
        let is_sampled = is_sampled(trace_id);
        Self { here: TraceParent { trace_id, span_id: fresh_span_id(), is_sampled }, state: None }
    }

    pub(super) fn child(&self) -> Self {
        Self {
            here: TraceParent { span_id: fresh_span_id(), ..self.here },
            state: self.state.clone(),
        }
    }
}

fn fresh_span_id() -> u64 {
    let (_, low) = Uuid::new_v4().as_u64_pair();
    low
}

/// The place of a span, or of the nearest one around it that has one.
pub(super) fn place_of<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) -> Option<Place> {
    span.scope().find_map(|span| span.extensions().get::<Place>().cloned())
}

/// The trace that whatever happens now belongs to.
pub(crate) fn current() -> Option<TraceContext> {
    let id = Span::current().id()?;
    dispatcher::get_default(|dispatch| {
        let span = dispatch.downcast_ref::<Registry>()?.span(&id)?;
        let Place { here, state } = place_of(&span)?;
        Some(TraceContext { parent: here, state: state.map(|state| state.to_string()) })
    })
}
