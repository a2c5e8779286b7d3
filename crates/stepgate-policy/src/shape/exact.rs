//! Values that Cedar holds exactly.

use cedar_policy::RestrictedExpression;
use serde_json::{Number, Value};

use super::Shape;
use crate::cause::{Cause, EXACT_MAX};

/// The value, if it has this type and can be held exactly; otherwise the cause.
pub(crate) fn scalar(shape: &Shape, value: &Value) -> Result<RestrictedExpression, Cause> {
    match (shape, value) {
        (Shape::String, Value::String(text)) => Ok(RestrictedExpression::new_string(text.clone())),
        (Shape::Bool, Value::Bool(truth)) => Ok(RestrictedExpression::new_bool(*truth)),
        (Shape::Long, Value::Number(number)) => long(number).map(RestrictedExpression::new_long),
        (_, Value::Null) => Err(Cause::Null),
        (Shape::String | Shape::Bool | Shape::Long | Shape::Set(_) | Shape::Record(_), _) => {
            Err(Cause::OtherType)
        }
    }
}

/// A whole number in any spelling (`20`, `20.0`, `2e1`) that a double holds exactly: a journal cannot
/// distinguish other numbers.
fn long(number: &Number) -> Result<i64, Cause> {
    let value = number.as_f64().ok_or(Cause::TooLarge)?;
    if value.fract() != 0.0 {
        return Err(Cause::Fraction);
    }
    if value.abs() > EXACT_MAX {
        return Err(Cause::TooLarge);
    }
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within the exact range")]
    Ok(number.as_i64().unwrap_or(value as i64))
}
