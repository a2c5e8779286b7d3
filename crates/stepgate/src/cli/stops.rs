//! `stepgate stop`.

use clap::Args;
use stepgate_core::ids::{PrincipalId, SessionId};

use super::Named;

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) what: StopWhat,
    /// Why; it is recorded, for operators and auditors. Agents are not told.
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct StopWhat {
    /// Every call of everyone.
    #[arg(long)]
    pub(crate) all: bool,
    /// The calls of this principal.
    #[arg(long, value_name = "NAME", value_parser = PrincipalId::parse)]
    pub(crate) principal: Option<PrincipalId>,
    /// The calls of this session: its id, or its beginning, or `last` for the newest.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<Named<SessionId>>,
    /// The calls of this tool server; `core` for the built-in actions.
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
}
