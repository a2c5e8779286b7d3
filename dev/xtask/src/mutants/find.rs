//! Finds what can be changed in a source file, and writes the file with every change in it, each
//! behind a switch.

#![allow(clippy::wildcard_enum_match_arm, reason = "the syntax of the language grows")]

use std::fmt::Write as _;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// One change.
pub(super) struct Change {
    /// Line in the original file.
    pub(super) line: usize,
    pub(super) what: String,
}

/// A file whose changes are found. The numbers of its changes begin at `first`.
pub(super) struct Found {
    source: String,
    sites: Vec<Site>,
    first: usize,
    pub(super) changes: Vec<Change>,
}

/// A place in the source, and what may stand there instead. Each alternative has the number of its
/// change.
struct Site {
    range: Range<usize>,
    kind: Kind,
}

enum Kind {
    /// At the start of a function's body: return this value.
    Return(Vec<(usize, String)>),
    /// Between two expressions: another operator.
    Operator { left: Range<usize>, right: Range<usize>, others: Vec<(usize, &'static str)> },
    /// Before an expression: leave the operator out.
    Unary { inner: Range<usize>, id: usize },
    /// A match arm with a catch-all below it: leave it out.
    Arm { id: usize },
    /// A guard that always holds, and one that never does.
    Guard { always: usize, never: usize },
}

pub(super) fn find(source: String, first: usize) -> anyhow::Result<Found> {
    let file = syn::parse_file(&source)?;
    let mut finder = Finder { source: &source, first, sites: Vec::new(), changes: Vec::new() };
    finder.visit_file(&file);
    let Finder { mut sites, changes, .. } = finder;
    sites.sort_by_key(|site| (site.range.start, usize::MAX - site.range.end));
    Ok(Found { source, sites, first, changes })
}

impl Found {
    /// The file with the changes that `keep` names.
    pub(super) fn write(&self, keep: &dyn Fn(usize) -> bool) -> String {
        self.render(0..self.source.len(), &self.sites, keep)
    }

    pub(super) fn numbers(&self) -> Range<usize> {
        self.first..self.first + self.changes.len()
    }

    fn render(&self, range: Range<usize>, sites: &[Site], keep: &dyn Fn(usize) -> bool) -> String {
        let mut out = String::new();
        let mut at = range.start;
        for (index, site) in sites.iter().enumerate() {
            let site_range = &site.range;
            if site_range.start < at || site_range.end > range.end {
                continue;
            }
            out.push_str(self.text(at..site_range.start));
            // Sites are in the order of their starts, outer ones first.
            let later = sites.get(index + 1..).unwrap_or_default();
            let inner = |part: &Range<usize>| {
                let from = later.partition_point(|other| other.range.start < part.start);
                let to = later.partition_point(|other| other.range.start < part.end);
                self.render(part.clone(), later.get(from..to).unwrap_or_default(), keep)
            };
            self.write_site(site, &inner, keep, &mut out);
            at = site_range.end;
        }
        out.push_str(self.text(at..range.end));
        out
    }

    fn write_site(
        &self,
        site: &Site,
        inner: &dyn Fn(&Range<usize>) -> String,
        keep: &dyn Fn(usize) -> bool,
        out: &mut String,
    ) {
        let on = |id: usize| format!("crate::__mutants::on({id})");
        match &site.kind {
            Kind::Return(values) => {
                for (id, value) in values.iter().filter(|(id, _)| keep(*id)) {
                    let _ = write!(
                        out,
                        " if {} {{ {} }}",
                        on(*id),
                        marked(*id, &format!("return {value};"))
                    );
                }
            }
            Kind::Operator { left, right, others } => {
                let operator = self.text(left.end..right.start);
                let (left, right) = (inner(left), inner(right));
                let mut text = format!("{left}{operator}{right}");
                for (id, other) in others.iter().filter(|(id, _)| keep(*id)) {
                    let changed = marked(*id, &format!("{left} {other} {right}"));
                    text = format!("(if {} {{ {changed} }} else {{ {text} }})", on(*id));
                }
                out.push_str(&text);
            }
            Kind::Unary { inner: expression, id } => {
                let operator = self.text(site.range.start..expression.start);
                let expression = inner(expression);
                let text = format!("{operator}{expression}");
                match keep(*id) {
                    true => {
                        let changed = marked(*id, &expression);
                        let _ = write!(out, "(if {} {{ {changed} }} else {{ {text} }})", on(*id));
                    }
                    false => out.push_str(&text),
                }
            }
            Kind::Arm { id } if keep(*id) => {
                let _ = write!(out, " if {}", marked(*id, &format!("!{}", on(*id))));
            }
            Kind::Arm { .. } => {}
            Kind::Guard { always, never } => {
                let mut text = inner(&site.range);
                if keep(*never) {
                    text = format!("(!{} && ({text}))", marked(*never, &on(*never)));
                }
                if keep(*always) {
                    text = format!("({} || ({text}))", marked(*always, &on(*always)));
                }
                out.push_str(&text);
            }
        }
    }

    fn text(&self, range: Range<usize>) -> &str {
        self.source.get(range).unwrap_or_default()
    }
}

/// The text of a change between marks, so that a compiler error can be traced to its change.
fn marked(id: usize, text: &str) -> String {
    format!("/*<{id}*/{text}/*{id}>*/")
}

/// The changes whose marks are around a position, innermost last; where there is none, the changes
/// that are switched on the same line.
pub(super) fn blamed(text: &str, at: usize) -> Vec<usize> {
    let mut open: Vec<usize> = Vec::new();
    let before = text.get(..at).unwrap_or(text);
    for (position, _) in before.match_indices("/*") {
        let rest = text.get(position + 2..).unwrap_or_default();
        let digits = |text: &str| -> Option<usize> {
            let end = text.find(|c: char| !c.is_ascii_digit())?;
            text.get(..end)?.parse().ok()
        };
        match rest.strip_prefix('<').and_then(digits) {
            Some(id) => open.push(id),
            None => open.truncate(match digits(rest) {
                Some(id) => open.iter().rposition(|other| *other == id).unwrap_or(open.len()),
                None => open.len(),
            }),
        }
    }
    if let Some(innermost) = open.last() {
        return vec![*innermost];
    }
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |end| at + end);
    let line = text.get(start..end).unwrap_or_default();
    line.split("__mutants::on(")
        .skip(1)
        .filter_map(|rest| rest.split(')').next()?.parse().ok())
        .collect()
}

struct Finder<'a> {
    source: &'a str,
    first: usize,
    sites: Vec<Site>,
    changes: Vec<Change>,
}

impl Finder<'_> {
    fn add(&mut self, at: usize, what: String) -> usize {
        let line = self.source.get(..at).unwrap_or_default().matches('\n').count() + 1;
        self.changes.push(Change { line, what });
        self.first + self.changes.len() - 1
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() {
            return;
        }
        let start = block.brace_token.span.open().byte_range().end;
        let values = match &signature.output {
            syn::ReturnType::Default => vec![String::new()],
            syn::ReturnType::Type(_, kind) => values(kind),
        };
        let name = &signature.ident;
        let values = values
            .into_iter()
            .map(|value| (self.add(start, format!("{name} returns {}", said(&value))), value))
            .collect();
        self.sites.push(Site { range: start..start, kind: Kind::Return(values) });
        visit::visit_block(self, block);
    }

    fn operator(&mut self, whole: &syn::ExprBinary) {
        let others = others(&whole.op);
        let has_let = [&whole.left, &whole.right].iter().any(|side| has_let(side));
        if !others.is_empty() && !has_let {
            let range = whole.span().byte_range();
            let (left, right) = (whole.left.span().byte_range(), whole.right.span().byte_range());
            let now = self.source.get(left.end..right.start).unwrap_or_default().trim().to_owned();
            let at = left.end;
            let others = others
                .iter()
                .map(|other| (self.add(at, format!("`{now}` becomes `{other}`")), *other))
                .collect();
            self.sites.push(Site { range, kind: Kind::Operator { left, right, others } });
        }
        visit::visit_expr_binary(self, whole);
    }
}

fn said(value: &str) -> &str {
    if value.is_empty() { "at once" } else { value }
}

/// What to return instead of a value of that type.
fn values(kind: &syn::Type) -> Vec<String> {
    let syn::Type::Path(path) = kind else {
        return match kind {
            syn::Type::Tuple(tuple) if tuple.elems.is_empty() => vec![String::new()],
            syn::Type::Reference(inner) if is_named(&inner.elem, "str") => vec!["\"xyzzy\"".into()],
            syn::Type::ImplTrait(_) => Vec::new(),
            _ => vec!["Default::default()".into()],
        };
    };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let inside = || match &last.arguments {
        syn::PathArguments::AngleBracketed(list) => list.args.iter().find_map(|one| match one {
            syn::GenericArgument::Type(kind) => Some(values(kind)),
            _ => None,
        }),
        _ => None,
    };
    let wrapped = |name: &str| {
        let inside = inside().unwrap_or_else(|| vec!["Default::default()".into()]);
        inside.iter().map(|value| format!("{name}({})", nothing(value))).collect::<Vec<_>>()
    };
    match last.ident.to_string().as_str() {
        "bool" => vec!["true".into(), "false".into()],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128"
        | "isize" => vec!["0".into(), "1".into()],
        "String" => vec!["String::new()".into(), "\"xyzzy\".into()".into()],
        "Vec" => vec!["Vec::new()".into()],
        "Option" => [vec!["None".to_owned()], wrapped("Some")].concat(),
        "Result" => wrapped("Ok"),
        "Box" | "Arc" | "Rc" => wrapped(&format!("{}::new", last.ident)),
        "Self" | "ExitCode" => Vec::new(),
        _ => vec!["Default::default()".into()],
    }
}

fn nothing(value: &str) -> &str {
    if value.is_empty() { "()" } else { value }
}

fn is_named(kind: &syn::Type, name: &str) -> bool {
    matches!(kind, syn::Type::Path(path) if path.path.is_ident(name))
}

fn others(operator: &syn::BinOp) -> &'static [&'static str] {
    use syn::BinOp;
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::Mul(_) => &["+"],
        BinOp::Div(_) => &["*"],
        BinOp::Rem(_) => &["+"],
        BinOp::BitAnd(_) => &["|"],
        BinOp::BitOr(_) => &["&"],
        BinOp::BitXor(_) => &["|"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        _ => &[],
    }
}

fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let list = || attribute.meta.require_list().map(|list| list.tokens.to_string());
        path.is_ident("test") || path.is_ident("cfg") && list().is_ok_and(|text| text == "test")
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let is_debug = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if !is_test(&item.attrs) && is_debug.is_none_or(|last| last.ident != "Debug") {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_expr_binary(&mut self, whole: &'ast syn::ExprBinary) {
        self.operator(whole);
    }

    fn visit_expr_unary(&mut self, whole: &'ast syn::ExprUnary) {
        if matches!(whole.op, syn::UnOp::Not(_)) {
            let range = whole.span().byte_range();
            let id = self.add(range.start, "`!` is left out".to_owned());
            let inner = whole.expr.span().byte_range();
            self.sites.push(Site { range, kind: Kind::Unary { inner, id } });
        }
        visit::visit_expr_unary(self, whole);
    }

    fn visit_expr_match(&mut self, whole: &'ast syn::ExprMatch) {
        let has_rest = whole.arms.last().is_some_and(is_catch_all);
        for (position, arm) in whole.arms.iter().enumerate() {
            let pattern = arm.pat.span().byte_range();
            match &arm.guard {
                Some((_, guard)) if !has_let(guard) => {
                    let range = guard.span().byte_range();
                    let at = range.start;
                    let always = self.add(at, "a guard always holds".to_owned());
                    let never = self.add(at, "a guard never holds".to_owned());
                    self.sites.push(Site { range, kind: Kind::Guard { always, never } });
                }
                None if has_rest && position + 1 < whole.arms.len() => {
                    let at = pattern.end;
                    let said = self.source.get(pattern).unwrap_or_default();
                    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
                    let id = self.add(at, format!("the arm `{said}` is left out"));
                    self.sites.push(Site { range: at..at, kind: Kind::Arm { id } });
                }
                _ => {}
            }
        }
        visit::visit_expr_match(self, whole);
    }
}

fn is_catch_all(arm: &syn::Arm) -> bool {
    arm.guard.is_none()
        && match &arm.pat {
            syn::Pat::Wild(_) => true,
            // `None` is a pattern of the same kind as a name.
            syn::Pat::Ident(name) => {
                let begins_small = |text: String| text.starts_with(|c: char| c.is_lowercase());
                name.subpat.is_none() && begins_small(name.ident.to_string())
            }
            _ => false,
        }
}

#[cfg(test)]
mod tests;
