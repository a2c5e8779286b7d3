//! The core against published suites, against its own vectors, and against its JSON Schemas.

#[cfg(test)]
mod json_test_suite;
#[cfg(test)]
mod rfc8785;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod transition_vectors;
