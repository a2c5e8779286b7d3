//! RequestHandler: turns the request into a context, with what is known about it. Its type follows from the
//! fields that are present. The rules after this step check the whole request; only later steps write.

use crate::context::Known;
use crate::envelope::ContextType;
use crate::flow::Flow;
use crate::stop::Stop;
use crate::turns;

pub(crate) async fn run(flow: &mut Flow<'_>) -> Result<(), Stop> {
    let known = known(flow).await?;
    let context = &mut flow.context;
    context.context_type = ContextType::of(context.envelope());
    context.time_stamp = flow.agent.gate.world.now().to_string();
    context.correlation_id = flow.correlation_id.clone();
    context.known = known;
    Ok(())
}

/// The session and turns that the request names, if they exist. A text that is not an id names none.
async fn known(flow: &Flow<'_>) -> Result<Known, Stop> {
    let (gate, envelope) = (&flow.agent.gate, flow.context.envelope());
    let session = match envelope.session_id.as_deref().map(str::parse) {
        Some(Ok(id)) => gate.store.session(id).await?,
        Some(Err(_)) | None => None,
    };
    let named = match envelope.turn_id.as_deref().map(str::parse) {
        Some(Ok(id)) => turns::load(gate, id).await?,
        Some(Err(_)) | None => None,
    };
    let offered = flow.agent.tools.offered(&flow.principal_id);
    Ok(Known {
        asker: Some(flow.principal_id.clone()),
        request_digest: Some(flow.request_digest),
        session,
        named,
        own: turns::load(gate, flow.own_turn_id()).await?,
        server_tools: offered.into_iter().map(|tool| tool.name).collect(),
    })
}
