//! `[detect.NAME]`: patterns that add a label to a result.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::action::CORE_SERVER;
use stepgate_core::detect::{Detector, Detectors, Scope};
use stepgate_core::label::Label;
use stepgate_core::tool::{ToolName, is_server_name};

/// Most detectors. Each searches every result that it looks at.
const DETECTORS_MAX: usize = 32;

/// A detector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DetectConfig {
    /// A built-in group of patterns, `secrets` or `personal`, or one of its patterns, such as `jwt` or `iban`.
    #[serde(default)]
    kind: Option<String>,
    /// A regular expression of your own, instead.
    #[serde(default)]
    pattern: Option<String>,
    /// The label that a result gets in which something is found.
    adds: Label,
    /// Only results of these servers; `core` is the sandbox.
    #[serde(default)]
    servers: BTreeSet<String>,
    /// Only results of these tools: `["mail.search"]`.
    #[serde(default)]
    tools: BTreeSet<String>,
}

impl DetectConfig {
    fn detector(&self) -> anyhow::Result<Detector> {
        let is_server = |name: &&String| name.as_str() == CORE_SERVER || is_server_name(name);
        if let Some(name) = self.servers.iter().find(|name| !is_server(name)) {
            bail!("`{name}` is not the name of a server");
        }
        let tools = self.tools.iter().map(|name| ToolName::parse(name));
        let scope =
            Scope { servers: self.servers.clone(), tools: tools.collect::<Result<_, _>>()? };
        match (&self.kind, &self.pattern) {
            (Some(kind), None) => Ok(Detector::built_in(kind, self.adds.clone(), scope)?),
            (None, Some(pattern)) => Ok(Detector::own(pattern, self.adds.clone(), scope)?),
            (Some(_), Some(_)) | (None, None) => bail!("name `kind` or `pattern`, one of the two"),
        }
    }
}

pub(super) fn detectors(detectors: &BTreeMap<String, DetectConfig>) -> anyhow::Result<Detectors> {
    ensure!(detectors.len() <= DETECTORS_MAX, "more than {DETECTORS_MAX} detectors: use fewer");
    let mut made = BTreeMap::new();
    for (name, config) in detectors {
        let detector = config.detector().with_context(|| format!("detect.{name} is not valid"))?;
        made.insert(name.clone(), detector);
    }
    Ok(Detectors::new(made))
}
