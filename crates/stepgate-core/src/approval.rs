//! Approvals: what a person is asked, and what the person said.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::{ApprovalId, PrincipalId, RunId};
use crate::time::Timestamp;

/// Where an approval stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStatus {
    /// Nobody has decided.
    Pending,
    /// A person said yes.
    Approved,
    /// A person said no.
    Denied,
    /// Nobody said anything in time.
    Expired,
}

impl ApprovalStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Approved, Self::Denied, Self::Expired];

    /// The spelling that users know.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
        }
    }

    /// The status that a store spells.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// A row of `approvals`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Approval {
    /// What is asked, canonical: the call as it would be made, who asks, why, until when, and the
    /// NEEDS_APPROVAL decision.
    pub approval_context_json: String,
    /// Its id.
    pub approval_id: ApprovalId,
    /// How it was decided.
    pub resolution: Option<Resolution>,
    /// Where it stands.
    pub status: ApprovalStatus,
    /// The run that waits.
    pub tool_run_id: RunId,
    /// When it was asked.
    pub ts_requested: Timestamp,
}

/// How an approval was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resolution {
    /// Who decided; none where time did.
    pub approver_id: Option<PrincipalId>,
    /// What the person noted.
    pub note: Option<String>,
    /// When.
    pub ts_resolved: Timestamp,
}

impl Approval {
    /// The digest that a record holds.
    pub fn digest(&self) -> Digest {
        Digest::of(self)
    }
}
