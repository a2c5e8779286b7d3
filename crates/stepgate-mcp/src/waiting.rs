//! A call that waits for a person: what the client gets depends on its capabilities.
//!
//! | the client declares | it gets |
//! |---|---|
//! | the Tasks extension | a task at once, which it polls |
//! | URL elicitation | the URL of the approval page, for a person to open; if it declines, it waits as below |
//! | neither | progress, and after a timeout a notice that says how to ask again |
//!
//! None of them lets the client decide: the page asks for an operator's login.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolResponse, ElicitRequest, ElicitRequestParams, InputRequest, InputRequiredResult,
    ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleServer};
use stepgate_core::ids::ApprovalId;
use stepgate_core::step::{Answer, Reply};

use super::call::{Call, KEY_META, NoAnswer, Return};
use super::relay::Relay;
use super::{Shared, result, tasks};

/// How often a waiting client gets a progress notice.
const PROGRESS_PAUSE: Duration = Duration::from_secs(5);
/// The name of the input that the client is asked for.
pub(super) const INPUT: &str = "approval";

pub(super) enum Waited {
    Over(Answer),
    /// The client is answered before the run is over.
    Answered(CallToolResponse),
}

/// What a client can do while a person decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// Poll a task.
    Task,
    /// Open a page, and send the same call again.
    PageAndBack,
    /// Open a page while the call waits.
    Page,
    Patience,
}

impl Means {
    fn of(context: &RequestContext<RoleServer>) -> Self {
        let declared = context.client_capabilities().unwrap_or_default();
        let opens_pages = declared.elicitation.is_some_and(|it| it.url.is_some());
        let version = context.protocol_version();
        let is_stateless = version.is_some_and(|it| it >= ProtocolVersion::V_2026_07_28);
        match (declared.extensions.is_some_and(|it| tasks::is_declared(&it)), opens_pages) {
            (true, _) => Self::Task,
            (false, true) if is_stateless => Self::PageAndBack,
            (false, true) => Self::Page,
            (false, false) => Self::Patience,
        }
    }
}

/// Waits in the way that the client supports.
pub(super) async fn wait(
    shared: &Arc<Shared>,
    call: &Call,
    first: Answer,
    context: &RequestContext<RoleServer>,
    relay: &mut Relay<'_>,
) -> Result<Waited, NoAnswer> {
    let means = Means::of(context);
    let page = shared.pages.as_ref().zip(first.approval_id());
    let page = page.map(|(pages, id)| Page { id, url: pages.approval(id) });
    match (means, page) {
        (Means::Task, _) => {
            let task = tasks::created(shared, &first).await?;
            Ok(Waited::Answered(task.into()))
        }
        (Means::PageAndBack, Some(page)) if call.return_of == Return::First => {
            Ok(Waited::Answered(page.and_back(call).into()))
        }
        (Means::PageAndBack, Some(page)) if call.return_of == Return::WithPage => {
            match max_wait(shared, first, None, context, relay).await? {
                still if still.is_notice() => Ok(Waited::Answered(page.and_back(call).into())),
                over => Ok(Waited::Over(over)),
            }
        }
        (Means::PageAndBack | Means::Page | Means::Patience, page) => {
            let shown = page.filter(|_| means == Means::Page);
            let answer = max_wait(shared, first, shown.as_ref(), context, relay).await?;
            Ok(told(shared, call, answer))
        }
    }
}

struct Page {
    id: ApprovalId,
    url: String,
}

impl Page {
    fn request(&self) -> ElicitRequestParams {
        ElicitRequestParams::UrlElicitationParams {
            meta: None,
            message: "An operator must approve this call. Open the page and log in to decide."
                .to_owned(),
            url: self.url.clone(),
            elicitation_id: self.id.to_string(),
        }
    }

    /// Asks the client to send the call again after a person has seen the page.
    fn and_back(&self, call: &Call) -> InputRequiredResult {
        let request = InputRequest::Elicitation(ElicitRequest::new(self.request()));
        let requests = BTreeMap::from([(INPUT.to_owned(), request)]);
        InputRequiredResult::new(Some(requests), Some(call.proposal_id.as_str().to_owned()))
    }
}

/// Waits until the run is over, at most `mcp.wait_ms`. Shows the page meanwhile, if there is one. The client's reply to
/// the page decides nothing: a client that declines waits like one that cannot show pages, because an operator
/// may still decide elsewhere.
async fn max_wait(
    shared: &Arc<Shared>,
    first: Answer,
    page: Option<&Page>,
    context: &RequestContext<RoleServer>,
    relay: &mut Relay<'_>,
) -> Result<Answer, NoAnswer> {
    let run_id = first.run_id;
    let for_what = match first.approval_id() {
        Some(_) => "waiting for an operator to decide",
        None => "still running",
    };
    let mut watch = shared.service.hub.watch(run_id);
    let mut over = pin!(shared.service.wait(first, shared.settings.config.wait));
    let mut shown = pin!(async {
        if let Some(page) = page {
            let _ = context.peer.create_elicitation(page.request()).await;
        }
        std::future::pending::<()>().await;
    });
    let mut ticks = tokio::time::interval(PROGRESS_PAUSE);
    loop {
        tokio::select! {
            biased;
            answer = &mut over => return Ok(answer?),
            () = &mut shown => {}
            () = context.ct.cancelled() => return Err(NoAnswer::Cancelled),
            said = watch.progressed() => relay.tool(said).await,
            _ = ticks.tick() => relay.waiting(for_what).await,
        }
    }
}

/// The answer, or a notice that says how to ask again.
fn told(shared: &Shared, call: &Call, answer: Answer) -> Waited {
    let why = match answer.reply {
        Reply::Recorded(_) => return Waited::Over(answer),
        Reply::ApprovalRequired(id) => {
            format!("An operator must approve this call first (approval {id})")
        }
        Reply::InProgress(Some(need)) => format!("This call is not over: {}", need.notice()),
        Reply::InProgress(None) => "This call is still running".to_owned(),
    };
    if !call.is_named {
        shared.unanswered.add(call.sameness, call.proposal_id.clone(), None);
    }
    let (run_id, key) = (answer.run_id, call.proposal_id.as_str());
    let how = match call.is_named {
        true => format!(
            "with the same {KEY_META}, to get its outcome. It is joined to this one (run {run_id}) and \
             never done twice."
        ),
        false => format!(
            "with the same arguments, to get its outcome. Until {} s after its end it is joined to this \
             one (run {run_id}). To be sure at any time, send it with _meta {KEY_META}: {key}, which is \
             never done twice.",
            shared.settings.config.join.as_secs()
        ),
    };
    let text =
        format!("{why}. Nothing more is needed from you: make the same call again later, {how}");
    Waited::Answered(result::notice(shared, &answer, text).into())
}
