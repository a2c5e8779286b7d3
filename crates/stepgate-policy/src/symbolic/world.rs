//! What every call has in common with the requests that policies see: which requests can be made at all.
//!
//! Cedar's schema allows more requests than calls can make. Here stands what is true of every call, as Cedar
//! expressions: a solver then finds no request that is not a call. What an expression cannot say is left
//! open; that can only make a proof harder to find, never wrong.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cedar_policy::{RequestEnv, Schema};
use serde_json::{Map, Value};
use stepgate_core::action::{Action, CORE_SERVER};
use stepgate_core::approvers::Groups;
use stepgate_core::ids::PrincipalId;
use stepgate_core::label::{Flow, Label};
use stepgate_core::origin::{self, Origin};
use stepgate_core::tool::Contract;

use super::Scene;
use super::budgets::{self, KnownBudget};
use super::expr::Expr;
use super::limits_of_schema::rules_of;
use super::rules::Mentioned;
use crate::compile::Nameable;
use crate::erasable;
use crate::literal;
use crate::schema::{self, CORE_GROUP, has_path};
use crate::set::PolicySet;
use crate::shape::{Record, ToolShape};
use crate::vocabulary::{ACTION, PATH, PRINCIPAL, TOOL};

/// The attribute of a principal that stands for a second path, in proofs alone.
const SECOND_PATH: &str = "stepgate:second path";

/// What policies are about: the tools, the names of facts, and who is in which group.
pub struct World<'a> {
    pub(crate) nameable: Nameable<'a>,
    pub(crate) groups: &'a Groups,
    /// What the sandbox is.
    pub(crate) sandbox: Flow,
    pub(crate) schema: Arc<Schema>,
    pub(crate) tools: BTreeMap<&'a str, KnownTool<'a>>,
    pub(crate) budgets: Vec<KnownBudget>,
}

/// A tool that an operator has accepted.
pub(crate) struct KnownTool<'a> {
    server: &'a str,
    /// What any of the sets makes erasable is hidden.
    pub(crate) shape: Cow<'a, ToolShape>,
    pub(crate) args: Record,
    /// What its calls are checked against.
    pub(crate) contract: Arc<dyn Contract>,
    /// The same, with no argument required.
    loose_contract: Arc<dyn Contract>,
}

impl KnownTool<'_> {
    /// Whether a call may have this value for an argument, as far as that does not depend on the others.
    pub(crate) fn accepts(&self, name: &str, value: &Value) -> bool {
        let alone = Map::from_iter([(name.to_owned(), value.clone())]);
        self.loose_contract.check(&alone).is_ok()
    }
}

impl<'a> World<'a> {
    /// A world with these tools, and the budgets of these sets. `contract` makes what checks the arguments of a tool's
    /// calls from its schema.
    pub fn new(
        nameable: Nameable<'a>,
        groups: &'a Groups,
        sandbox: Flow,
        sets: &[&PolicySet],
        contract: impl Fn(&Value) -> Result<Arc<dyn Contract>, String>,
    ) -> Result<Self, String> {
        let hidden = |tool: &'a ToolShape| {
            let entries = sets.iter().filter_map(|set| set.entries.get(tool.name.as_str()));
            erasable::hiding(tool, entries.flat_map(|entry| entry.erasable.clone()).collect())
        };
        let tools_seen: Vec<Cow<'a, ToolShape>> = nameable.tools.iter().map(hidden).collect();
        let shapes: Vec<Record> = tools_seen.iter().map(|tool| tool.args()).collect();
        let budgets = budgets::of_sets(sets);
        let named: Vec<_> = budgets.iter().map(|it| (it.attribute.as_str(), &it.budget)).collect();
        let schema = schema::with_second_path(nameable.tools, &shapes, &named, SECOND_PATH)?;
        let mut tools = BTreeMap::new();
        for ((known, shape), args) in nameable.tools.iter().zip(tools_seen).zip(shapes) {
            if shape.is_accepted {
                let mut loose = shape.input_schema.clone();
                loose.as_object_mut().and_then(|schema| schema.shift_remove("required"));
                let loose_contract = contract(&loose)?;
                let contract = contract(&shape.input_schema)?;
                let server = known.name.server();
                let tool = KnownTool { server, shape, args, contract, loose_contract };
                tools.insert(known.name.as_str(), tool);
            }
        }
        Ok(Self { nameable, groups, sandbox, schema: Arc::new(schema), tools, budgets })
    }

    /// The core actions, and the tools that can be called.
    pub fn actions(&self) -> Vec<&'a str> {
        let core = Action::ALL.into_iter().map(|action| -> &'a str { action.name() });
        core.chain(self.tools.keys().copied()).collect()
    }

    /// The tools that cannot be called as they are: off, or not accepted. Each call of them is denied whatever policies
    /// say, and nothing is proven about them.
    pub fn left_out(&self) -> Vec<&'a str> {
        let tools = self.nameable.tools.iter().filter(|tool| !tool.is_accepted);
        tools.map(|tool| tool.name.as_str()).collect()
    }

    /// The server of an action.
    pub fn server(&self, action: &str) -> &'a str {
        self.tools.get(action).map_or(CORE_SERVER, |tool| tool.server)
    }

    /// The subject of an action; none where there is no such action.
    pub(crate) fn subject(&self, action: &str) -> Option<Known<'_, 'a>> {
        let core = Action::parse(action).map(Known::Core);
        core.or_else(|| self.tools.get(action).map(Known::Tool))
    }

    /// Which groups a principal is in, as the configuration says.
    pub fn is_as_configured(&self) -> Expr {
        let group = |group: &String| {
            let members = self.groups.members(group).map(principal_is);
            in_group(group).equals(Expr::any(members))
        };
        Expr::all(self.nameable.facts.groups.iter().map(group))
    }

    /// The budgets that cover calls of a tool.
    pub(crate) fn budgets_about(&self, tool: &KnownTool<'_>) -> impl Iterator<Item = &KnownBudget> {
        self.budgets.iter().filter(|it| it.budget.is_about(&tool.shape.name))
    }

    /// The groups that principals can be in.
    pub fn group_names(&self) -> impl Iterator<Item = &'a str> {
        self.nameable.facts.groups.iter().map(String::as_str)
    }
}

/// Whether the principal is this one.
pub fn principal_is(principal_id: &PrincipalId) -> Expr {
    Expr::principal().equals(Expr::entity("Principal", principal_id.as_str()))
}

/// Whether the principal is in this group.
pub fn in_group(group: &str) -> Expr {
    Expr::principal().member_of(Expr::entity("Group", group))
}

/// What a question is about.
#[derive(Clone, Copy)]
pub(crate) enum Known<'w, 'a> {
    Core(Action),
    Tool(&'w KnownTool<'a>),
}

impl Known<'_, '_> {
    pub(crate) fn request_env(self, action: &str) -> RequestEnv {
        let resource = match self {
            Self::Core(action) if has_path(action) => &PATH,
            Self::Core(_) | Self::Tool(_) => &TOOL,
        };
        RequestEnv::new(PRINCIPAL.name(), ACTION.entity(action), resource.name())
    }

    /// The resources that are asked about, with the argument that each is spelled like.
    pub(crate) fn resources(self) -> Vec<(Expr, Option<&'static str>)> {
        match self {
            Self::Core(Action::RenameFile) => {
                let second = Expr::principal().attribute(SECOND_PATH);
                vec![(Expr::resource(), Some("source")), (second, Some("destination"))]
            }
            Self::Core(action) if has_path(action) => vec![(Expr::resource(), Some("path"))],
            Self::Core(_) | Self::Tool(_) => vec![(Expr::resource(), None)],
        }
    }
}

impl Scene<'_, '_> {
    /// What is true of every call of the action, as far as expressions that mention these entities can tell.
    pub(crate) fn every_call(&self, mentioned: &Mentioned) -> Expr {
        let Self { world, action, known, ref hidden } = *self;
        let (flow, sees_unseen) = (self.flow(), hidden.is_asked_for);
        let labels =
            |labels: Expr| within(labels, "Label", &names_of(&world.nameable.facts.labels));
        let windows: Vec<&str> = world.nameable.facts.windows.iter().map(String::as_str).collect();
        let mut parts = vec![
            labels(Expr::context("session").attribute("labels")),
            within(Expr::context("schedule"), "Window", &windows),
            within(Expr::context("session").attribute("opened"), "Window", &windows),
            Expr::long(0).at_most(Expr::context("session").attribute("steps")),
        ];
        if mentioned.ids("Origin").next().is_some() {
            let names = literal::Known::new(world.nameable.tools, world.nameable.facts).origins();
            parts.push(of_origins(&Expr::context("targets"), &names));
            parts.push(of_origins(&Expr::context("addresses"), &names));
        }
        let mode = match known {
            Known::Core(action) => {
                parts.extend(of_core(action, known, mentioned));
                CORE_GROUP
            }
            Known::Tool(tool) => {
                parts.extend(rules_of(&tool.shape.input_schema, &tool.args, !sees_unseen));
                let covering: Vec<&KnownBudget> = world.budgets_about(tool).collect();
                parts.extend(
                    covering.iter().flat_map(|it| it.every_call(tool, mentioned, sees_unseen)),
                );
                parts.extend(budgets::namesakes_are_used_alike(&covering));
                tool.shape.mode.as_str()
            }
        };
        let server = world.server(action);
        parts.push(Expr::context("mode").equals(Expr::string(mode)));
        parts.push(Expr::context("server").equals(Expr::string(server)));
        if !matches!(known, Known::Core(action) if has_path(action)) {
            parts.push(Expr::resource().equals(Expr::entity("Tool", action)));
            let others = mentioned.ids("Server").filter(|other| *other != server);
            parts.push(Expr::resource().member_of(Expr::entity("Server", server)));
            parts.extend(
                others.map(|other| {
                    Expr::resource().member_of(Expr::entity("Server", other)).negated()
                }),
            );
        }
        let reads = Expr::context("reads");
        // A file or a memory may have labels of its own.
        let may_read_more = match known {
            Known::Core(action) => has_path(action),
            Known::Tool(tool) => tool.shape.flow.memory.is_some(),
        };
        parts.push(match may_read_more {
            true => labels(reads.clone()),
            false => within(reads.clone(), "Label", &names_of(&flow.reads)),
        });
        parts.extend(flow.reads.iter().map(|label| has_label(&reads, label)));
        let sends = Expr::context("sends");
        parts.push(within(sends.clone(), "Label", &names_of(&flow.sends)));
        parts.extend(flow.sends.iter().map(|label| has_label(&sends, label)));
        Expr::all(parts)
    }
}

/// Which origins values can have together: an origin comes with those that include it, the agent's alone, and where there
/// is no value, all others.
fn of_origins(set: &Expr, names: &BTreeSet<Origin>) -> Expr {
    let entity = |name: &str| Expr::entity("Origin", name);
    let has = |name: &str| set.clone().contains(entity(name));
    let all = || Expr::set(names.iter().map(|origin| entity(origin.as_str())));
    let mut parts = vec![
        set.clone().empty().negated(),
        Expr::any([
            set.clone().equals(Expr::set([entity(Origin::AGENT)])),
            all().contains_all(set.clone()),
        ]),
        Expr::any([has(Origin::NONE).negated(), set.clone().equals(all())]),
    ];
    for origin in names.iter().filter(|origin| origin.as_str() != Origin::NONE) {
        let wider = origin::widened(&BTreeSet::from([origin.clone()]));
        for other in wider.iter().filter(|other| *other != origin) {
            parts.push(Expr::any([has(origin.as_str()).negated(), has(other.as_str())]));
        }
    }
    Expr::all(parts)
}

fn has_label(set: &Expr, label: &Label) -> Expr {
    set.clone().contains(Expr::entity("Label", label.as_str()))
}

fn names_of<'l>(labels: impl IntoIterator<Item = &'l Label>) -> Vec<&'l str> {
    labels.into_iter().map(Label::as_str).collect()
}

/// Whether a set has no other elements than these.
fn within(set: Expr, kind: &str, names: &[&str]) -> Expr {
    match names {
        [] => set.empty(),
        names => Expr::set(names.iter().map(|name| Expr::entity(kind, name))).contains_all(set),
    }
}

fn of_core(action: Action, known: Known<'_, '_>, mentioned: &Mentioned) -> Vec<Expr> {
    let mut parts = vec![Expr::context("unseen").empty()];
    for (resource, argument) in known.resources() {
        let Some(argument) = argument else { continue };
        let text = Expr::context("args").attribute(argument);
        parts.push(is_path(&text, action == Action::ListFiles));
        for path in mentioned.ids("Path") {
            let entity = || Expr::entity("Path", path);
            let is_it = || text.clone().equals(Expr::string(path));
            let beneath = text.clone().like(&[Some(path), Some("/"), None]);
            parts.push(resource.clone().equals(entity()).equals(is_it()));
            let is_in = resource.clone().member_of(entity());
            parts.push(is_in.equals(Expr::any([is_it(), beneath])));
        }
    }
    if action == Action::WriteFile {
        parts.push(Expr::context("args").attribute("content").equals(Expr::string("")).negated());
    }
    parts
}

/// Whether a text is a path of the sandbox, as policies see one.
fn is_path(text: &Expr, may_be_root: bool) -> Expr {
    let wrong: [&[Option<&str>]; 6] = [
        &[None, Some("/")],
        &[None, Some("//"), None],
        &[None, Some("/./"), None],
        &[None, Some("/../"), None],
        &[None, Some("/.")],
        &[None, Some("/..")],
    ];
    let beneath = text.clone().like(&[Some("/sandbox/"), None]);
    let right = wrong.into_iter().map(|pattern| text.clone().like(pattern).negated());
    let beneath = Expr::all(std::iter::once(beneath).chain(right));
    match may_be_root {
        true => Expr::any([text.clone().equals(Expr::string("/sandbox")), beneath]),
        false => beneath,
    }
}
