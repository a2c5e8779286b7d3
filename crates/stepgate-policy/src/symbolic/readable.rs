//! Which of many examples is asked for: one that people can read, and another one than before.

use stepgate_core::action::Action;
use stepgate_core::decimal::Decimal;

use super::Scene;
use super::example::Example;
use super::expr::Expr;
use super::limits_of_schema::literal;
use super::world::Known;
use crate::shape::{Record, Shape};

impl Scene<'_, '_> {
    /// That a call is easy to read: small numbers, texts that are not empty, files that the sandbox allows by
    /// default, nothing unseen, no labels but the declared ones. Only examples are asked for with it, never proofs.
    pub fn readable(&self) -> Expr {
        const STEPS_MAX: i64 = 1_000;
        let steps = Expr::context("session").attribute("steps");
        let mut parts = vec![steps.at_most(Expr::long(STEPS_MAX))];
        match self.known {
            Known::Core(action) => {
                for (_, argument) in self.known.resources() {
                    let Some(argument) = argument else { continue };
                    let text = Expr::context("args").attribute(argument);
                    // Directories have any name.
                    if !matches!(action, Action::ListFiles | Action::CreateDirectory) {
                        let no_name = text.clone().like(&[None, Some("/.txt")]).negated();
                        let file = text.like(&[Some("/sandbox/"), None, Some(".txt")]);
                        parts.push(Expr::all([file, no_name]));
                    }
                }
            }
            Known::Tool(tool) => {
                readable_args(&tool.args, &Expr::context("args"), &mut parts);
                let reads = self.flow().reads.iter().map(|it| Expr::entity("Label", it.as_str()));
                let reads: Vec<Expr> = reads.collect();
                parts.push(match reads.is_empty() {
                    true => Expr::context("reads").empty(),
                    false => Expr::set(reads).contains_all(Expr::context("reads")),
                });
            }
        }
        Expr::all(parts)
    }

    /// That a call is another one than the example; none where its arguments have nothing to compare.
    pub fn another(&self, example: &Example) -> Option<Expr> {
        let at = || Expr::context("args");
        let mut same = Vec::new();
        for (name, value) in &example.args {
            let (shape, required) = match self.known {
                Known::Core(_) => (&Shape::String, true),
                Known::Tool(tool) => match tool.args.attributes.get(name) {
                    Some(attribute) => match &attribute.seen {
                        Ok(shape) => (shape, attribute.required),
                        Err(_) => continue,
                    },
                    None => continue,
                },
            };
            let Some(value) = literal(shape, value) else { continue };
            same.extend((!required).then(|| at().has(name)));
            same.push(at().attribute(name).equals(value));
        }
        (!same.is_empty()).then(|| Expr::all(same).negated())
    }
}

fn readable_args(record: &Record, at: &Expr, parts: &mut Vec<Expr>) {
    const NUMBER_MAX: i64 = 1_000_000_000;
    for (name, attribute) in &record.attributes {
        let Ok(shape) = &attribute.seen else { continue };
        let value = at.clone().attribute(name);
        let mut inner = Vec::new();
        match shape {
            Shape::String => inner.push(value.equals(Expr::string("")).negated()),
            Shape::Long => {
                inner.push(Expr::long(-NUMBER_MAX).at_most(value.clone()));
                inner.push(value.at_most(Expr::long(NUMBER_MAX)));
            }
            Shape::Decimal => {
                let bound = |text: &str| Decimal::parse(text).ok().map(Expr::decimal);
                let bounds = bound("-1000000000").zip(bound("1000000000"));
                inner.extend(bounds.into_iter().flat_map(|(least, most)| {
                    let order = |left: Expr, right| left.decimal_method("lessThanOrEqual", right);
                    [order(least, value.clone()), order(value.clone(), most)]
                }));
            }
            Shape::Record(record) => readable_args(record, &value, &mut inner),
            Shape::Bool | Shape::Set(_) => {}
        }
        match attribute.required {
            true => parts.extend(inner),
            false if inner.is_empty() => {}
            false => parts.push(at.clone().has(name).implies(Expr::all(inner))),
        }
    }
}
