//! JSON: parsed strictly, written in RFC 8785 form.

pub mod canonical;
pub mod strict;

pub use serde_json::{Map, Value};
