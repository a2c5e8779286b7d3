//! JSON as Stepgate reads and writes it: strict on the way in, RFC 8785 on the way out.

pub mod canonical;
pub mod strict;

pub use serde_json::{Map, Value};
