//! libFuzzer's door to [`stepgate_fuzz::step`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stepgate_fuzz::step(bytes));
