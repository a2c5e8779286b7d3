//! The core against published suites, against its own vectors, against its JSON Schemas and against the
//! pages of its errors.

#![allow(
    clippy::disallowed_methods,
    reason = "tests read vectors and pages; the core itself reads nothing"
)]

#[cfg(test)]
mod errors;
#[cfg(test)]
mod json_test_suite;
#[cfg(test)]
mod rfc8785;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod transition_vectors;
