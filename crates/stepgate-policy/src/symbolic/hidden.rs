//! Arguments that policies may not see, as expressions.
//!
//! Where no policy asks for `context.unseen`, only calls with nothing unseen need to be looked at: if a policy reads
//! an unseen argument, the call is denied; if none does, it is decided as with any value that they see. Only an
//! argument that is in every call and never seen is different: a policy that reads it denies every call.

use super::expr::Expr;
use crate::reads::Reads;
use crate::shape::{Record, Shape, ToolShape};

/// The arguments of a tool that policies may not see.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    names: Vec<HiddenName>,
    /// Whether there may be others, which the schema allows without naming them.
    is_open: bool,
    /// Whether a policy asks for `context.unseen`.
    pub(crate) is_asked_for: bool,
}

#[derive(Debug)]
struct HiddenName {
    path: Vec<String>,
    /// Whether every call has it, and policies see none of its values.
    is_always: bool,
    /// Whether policies see some of its values.
    is_seen: bool,
    /// Whether policies may read it without `has`.
    is_required: bool,
}

impl HiddenName {
    /// That `context.unseen` names it.
    fn is_named(&self) -> Expr {
        Expr::context("unseen").contains(Expr::string(&self.path.join(".")))
    }
}

impl Hidden {
    pub(crate) fn of(tool: &ToolShape, args: &Record, is_asked_for: bool) -> Self {
        let mut hidden = Self { is_asked_for, ..Self::default() };
        hidden.read(args, &mut Vec::new());
        for required in tool.required() {
            let names = hidden.names.iter_mut();
            let found = names.filter(|name| !name.is_seen && name.path == [required]);
            found.for_each(|name| name.is_always = true);
        }
        hidden
    }

    fn read(&mut self, record: &Record, path: &mut Vec<String>) {
        self.is_open |= record.is_open;
        for (name, attribute) in &record.attributes {
            path.push(name.clone());
            let is_seen = attribute.seen.is_ok();
            if !is_seen || !attribute.blind.is_empty() || attribute.default.is_some() {
                let (path, is_required) = (path.clone(), attribute.required);
                self.names.push(HiddenName { path, is_always: false, is_seen, is_required });
            }
            if let Ok(Shape::Record(inner)) = &attribute.seen {
                self.read(inner, path);
            }
            path.pop();
        }
    }

    /// What is true of `context.unseen` in every call.
    pub(crate) fn every_call(&self) -> Expr {
        if !self.is_asked_for {
            return Expr::context("unseen").empty();
        }
        let mut parts = Vec::new();
        if !self.is_open {
            parts.push(self.has_no_other());
        }
        for name in &self.names {
            match (name.is_always, name.path.as_slice()) {
                (true, _) => parts.push(name.is_named()),
                // An optional argument is seen or unseen, never both.
                (false, [argument]) if name.is_seen && !name.is_required => {
                    let is_seen = Expr::context("args").has(argument);
                    parts.push(Expr::all([name.is_named(), is_seen]).negated());
                }
                (false, _) => {}
            }
        }
        Expr::all(parts)
    }

    fn has_no_other(&self) -> Expr {
        let names = self.names.iter().map(|name| Expr::string(&name.path.join(".")));
        match self.names.is_empty() {
            true => Expr::context("unseen").empty(),
            false => Expr::set(names).contains_all(Expr::context("unseen")),
        }
    }

    /// That something is unseen which a policy reads.
    pub(crate) fn read_by(&self, reads: &Reads) -> Vec<Expr> {
        let read = self.names.iter().filter(|name| reads.touches(&name.path));
        if !self.is_asked_for {
            return read.filter(|name| name.is_always).map(|_| Expr::truth(true)).collect();
        }
        let mut parts: Vec<Expr> = read.map(HiddenName::is_named).collect();
        let reads_all = reads.paths().any(|path| path.is_empty());
        if self.is_open && reads_all {
            parts.push(self.has_no_other().negated());
        }
        parts
    }
}
