//! The gate's tools for a turn: each call is a full step of this service.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stepgate_agent::model::Offer;
use stepgate_agent::ports::Tools;
use stepgate_core::gate::Fault;
use stepgate_core::ids::{PrincipalId, RunId, SessionId};
use stepgate_core::ports::StoreError;
use stepgate_core::run::{Payload, Word};
use stepgate_core::step::{self, Answer};

use crate::catalog;
use crate::service::Service;

/// Longest wait for a run before the store is asked again, in case its end was not announced.
const WAIT: Duration = Duration::from_secs(5);

pub(super) struct ServiceTools {
    pub(super) service: Arc<Service>,
}

#[async_trait]
impl Tools for ServiceTools {
    fn offered(&self, principal_id: &PrincipalId) -> Vec<Offer> {
        catalog::for_model(&self.service, principal_id)
    }

    async fn run(
        &self,
        principal_id: &PrincipalId,
        session_id: SessionId,
        proposal: Payload,
    ) -> Result<Answer, Fault> {
        let principal_id = principal_id.clone();
        self.service.submit(principal_id, Some(session_id), proposal, Duration::ZERO).await
    }

    async fn wait_until_finished(&self, run_id: RunId) -> Result<Answer, Fault> {
        let leaving = self.service.leaving();
        let mut answer = step::answer_of(&self.service.gate, run_id).await?;
        loop {
            match answer.word() {
                Word::Outcome(_) => return Ok(answer),
                Word::Notice(_) if *leaving.borrow() => {
                    let why = "the process stops".to_owned();
                    return Err(Fault::Store(StoreError::Unavailable(why)));
                }
                Word::Notice(_) => answer = self.service.wait(answer, WAIT).await?,
            }
        }
    }
}
