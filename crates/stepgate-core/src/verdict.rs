//! The answer of a policy, in one word.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spelled::spelled;

spelled! {
    /// The three answers, the strictest last.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
    )]
    #[schemars(rename = "PolicyVerdict")]
    #[serde(rename_all = "snake_case")]
    pub enum PolicyAnswer {
        /// The call is allowed.
        Permit = "permit",
        /// A person decides.
        Approval = "approval",
        /// The call is not allowed.
        #[default]
        Deny = "deny",
    }
}
