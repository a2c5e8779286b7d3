//! What of the tools, the tool servers, the policies and the disk needs a person.

use stepgate_core::attention::Kind;
use stepgate_core::lock;
use stepgate_core::parts::Finding;
use stepgate_core::tool::ToolName;
use stepgate_exec::servers::{ListedTool, Off, Reason};

use super::Control;

/// How much of a definition's digest is shown: as much as `tools accept --definition` needs.
const DIGEST_CHARS: usize = 12;

impl Control {
    /// Everything that is off although the configuration wants it, policies that could not be loaded, in force or
    /// beside those, and a disk that is nearly full.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let listing = self.servers.listing();
        let mut findings: Vec<Finding> = self.off().iter().map(|off| of(off, &listing)).collect();
        if let Some(why) = &*lock::locked(&self.policy_trouble) {
            let directory = self.policies.display().to_string();
            findings.push(Finding::new(Kind::PolicyNotLoaded, &directory, why, None));
        }
        if let Some(why) = self.disk.trouble() {
            let directory = self.disk.directory.display().to_string();
            findings.push(Finding::new(Kind::DiskLow, &directory, &why, None));
        }
        if let Some(shadow) = &self.shadow
            && let Err(why) = shadow.candidate()
        {
            let directory = shadow.directory.display().to_string();
            findings.push(Finding::new(Kind::ShadowNotLoaded, &directory, &why, None));
        }
        findings
    }
}

fn of(off: &Off, listing: &[ListedTool]) -> Finding {
    let is_it = |it: &&ListedTool| it.server == off.server && Some(&it.tool) == off.tool.as_ref();
    // A name that no proposal could spell is any text that the server likes: the server stands for it.
    let name = off.tool.as_ref().map(|tool| format!("{}.{tool}", off.server));
    let name = name.filter(|name| ToolName::parse(name).is_ok()).unwrap_or(off.server.clone());
    let digest = listing.iter().find(is_it).map(|it| it.definition_digest.to_string());
    let digest: String = digest.unwrap_or_default().chars().take(DIGEST_CHARS).collect();
    let (kind, reason) = match &off.reason {
        Reason::Down(why) => (Kind::ServerOff, why.clone()),
        Reason::Unusable(why) => (Kind::ToolUnusable, why.clone()),
        Reason::New => {
            (Kind::ToolNew, format!("no operator has accepted it; its definition is {digest}"))
        }
        Reason::Changed => {
            (Kind::ToolChanged, format!("its definition is {digest}, not the accepted one"))
        }
        Reason::NameTaken { name, by } => {
            (Kind::ToolUnusable, format!("over MCP `{by}` has its name there, `{name}`"))
        }
    };
    Finding::new(kind, &name, &reason, None)
}
