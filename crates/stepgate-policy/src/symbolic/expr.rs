//! Cedar expressions in Cedar's JSON form, put together by code. No text is ever spliced, so no value can be
//! read as an expression.

use cedar_policy::{Policy, PolicyId};
use serde_json::{Map, Value, json};
use stepgate_core::decimal::Decimal;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr(pub(crate) Value);

impl Expr {
    pub(crate) fn truth(truth: bool) -> Self {
        Self(json!({ "Value": truth }))
    }

    pub(crate) fn string(text: &str) -> Self {
        Self(json!({ "Value": text }))
    }

    pub(crate) fn long(number: i64) -> Self {
        Self(json!({ "Value": number }))
    }

    pub(crate) fn decimal(number: Decimal) -> Self {
        Self(json!({ "decimal": [{ "Value": number.to_string() }] }))
    }

    pub(crate) fn entity(kind: &str, id: &str) -> Self {
        Self(json!({ "Value": { "__entity": { "type": kind, "id": id } } }))
    }

    pub(crate) fn set(elements: impl IntoIterator<Item = Self>) -> Self {
        let elements: Vec<Value> = elements.into_iter().map(|Self(element)| element).collect();
        Self(json!({ "Set": elements }))
    }

    pub(crate) fn principal() -> Self {
        Self(json!({ "Var": "principal" }))
    }

    pub(crate) fn resource() -> Self {
        Self(json!({ "Var": "resource" }))
    }

    /// `context.NAME`.
    pub(crate) fn context(name: &str) -> Self {
        Self(json!({ "Var": "context" })).attribute(name)
    }

    pub(crate) fn attribute(self, name: &str) -> Self {
        Self(json!({ ".": { "left": self.0, "attr": name } }))
    }

    pub(crate) fn has(self, name: &str) -> Self {
        Self(json!({ "has": { "left": self.0, "attr": name } }))
    }

    fn binary(self, operator: &str, right: Self) -> Self {
        let operands = json!({ "left": self.0, "right": right.0 });
        Self(Value::Object(Map::from_iter([(operator.to_owned(), operands)])))
    }

    pub(crate) fn equals(self, right: Self) -> Self {
        self.binary("==", right)
    }

    pub(crate) fn member_of(self, right: Self) -> Self {
        self.binary("in", right)
    }

    pub(crate) fn is(self, kind: &str) -> Self {
        Self(json!({ "is": { "left": self.0, "entity_type": kind } }))
    }

    pub(crate) fn at_most(self, right: Self) -> Self {
        self.binary("<=", right)
    }

    pub(crate) fn less(self, right: Self) -> Self {
        self.binary("<", right)
    }

    pub(crate) fn contains(self, element: Self) -> Self {
        self.binary("contains", element)
    }

    pub(crate) fn contains_all(self, other: Self) -> Self {
        self.binary("containsAll", other)
    }

    /// A method of `decimal`: `lessThan`, `lessThanOrEqual`.
    pub(crate) fn decimal_method(self, method: &str, right: Self) -> Self {
        Self(Value::Object(Map::from_iter([(method.to_owned(), json!([self.0, right.0]))])))
    }

    /// Whether a text matches a pattern; `None` stands for any text.
    pub(crate) fn like(self, pattern: &[Option<&str>]) -> Self {
        let pattern: Vec<Value> = pattern
            .iter()
            .map(|part| match part {
                Some(text) => json!({ "Literal": text }),
                None => json!("Wildcard"),
            })
            .collect();
        Self(json!({ "like": { "left": self.0, "pattern": pattern } }))
    }

    /// Not `std::ops::Not`: an expression is built, nothing is negated here.
    pub fn negated(self) -> Self {
        Self(json!({ "!": { "arg": self.0 } }))
    }

    /// Where this is true, the other is. Not with `!` and `||`: Cedar's validator would not see that an attribute
    /// which this asks for with `has` is there.
    pub(crate) fn implies(self, right: Self) -> Self {
        let otherwise = Self::truth(true);
        Self(json!({ "if-then-else": { "if": self.0, "then": right.0, "else": otherwise.0 } }))
    }

    pub(crate) fn empty(self) -> Self {
        Self(json!({ "isEmpty": { "arg": self.0 } }))
    }

    /// All of them, evaluated from left to right up to the first that is false.
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        joined("&&", parts).unwrap_or_else(|| Self::truth(true))
    }

    /// Any of them, evaluated from left to right up to the first that is true.
    pub fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        joined("||", parts).unwrap_or_else(|| Self::truth(false))
    }

    /// The policy that matches calls of an action where the expression is true, or why there is none.
    pub(crate) fn into_policy(self, action: &str) -> Result<Policy, String> {
        let all = json!({ "op": "All" });
        let json = json!({
            "effect": "permit",
            "principal": all,
            "action": { "op": "==", "entity": { "type": "Action", "id": action } },
            "resource": all,
            "conditions": [{ "kind": "when", "body": self.0 }],
        });
        Policy::from_json(Some(PolicyId::new("question")), json).map_err(|error| error.to_string())
    }

    /// The expression that a person wrote, or what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let policy = format!("permit (principal, action, resource) when {{\n{text}\n}};");
        if let Some((_, message)) = crate::nesting::excess(&policy) {
            return Err(message);
        }
        let policy = Policy::parse(None, policy).map_err(|errors| {
            errors.iter().map(|error| error.to_string()).collect::<Vec<_>>().join("; ")
        })?;
        let json = policy.to_json().map_err(|error| error.to_string())?;
        match json.pointer("/conditions").and_then(Value::as_array).map(Vec::as_slice) {
            Some([only]) => Ok(Self(only.get("body").cloned().unwrap_or_default())),
            Some(_) | None => Err("write one condition".to_owned()),
        }
    }

    /// The same expression with another one in the place of `resource`.
    pub(crate) fn about(self, resource: &Self) -> Self {
        Self(replaced(self.0, resource))
    }
}

/// Joined in the middle again and again: a long list nests only as deep as its logarithm, because Cedar
/// handles expressions by recursion.
fn joined(operator: &str, parts: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    let mut parts: Vec<Expr> = parts.into_iter().collect();
    while parts.len() > 1 {
        let mut pairs = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => left.binary(operator, right),
                None => left,
            });
        }
        parts = pairs;
    }
    parts.pop()
}

fn replaced(part: Value, resource: &Expr) -> Value {
    match part {
        Value::Object(members) if members.len() == 1 => {
            let Some((operator, operand)) = members.into_iter().next() else { return Value::Null };
            let operand = match (operator.as_str(), operand) {
                ("Var", name) if name == "resource" => return resource.0.clone(),
                // A literal value: nothing in it is a variable.
                ("Value", literal) => literal,
                // Its members have names of their own, which may be those of operators.
                ("Record", Value::Object(members)) => {
                    let replace = |(name, part)| (name, replaced(part, resource));
                    Value::Object(members.into_iter().map(replace).collect())
                }
                (_, operand) => replaced(operand, resource),
            };
            Value::Object(Map::from_iter([(operator, operand)]))
        }
        Value::Object(members) => {
            let replace = |(name, part)| (name, replaced(part, resource));
            Value::Object(members.into_iter().map(replace).collect())
        }
        Value::Array(parts) => {
            Value::Array(parts.into_iter().map(|part| replaced(part, resource)).collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

#[cfg(test)]
mod tests;
