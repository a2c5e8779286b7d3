//! What must hold for any bytes. One function per target; each panics where something does not hold.
//!
//! libFuzzer calls them through `fuzz_targets/`; the ordinary tests replay the corpora and add
//! random bytes.

mod canonical;
mod machine;
mod parser;
mod path;
mod step;

pub use canonical::canonical;
pub use machine::machine;
pub use parser::parser;
pub use path::path;
pub use step::step;

#[cfg(test)]
mod tests;
