//! The fuzz target `completion`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("completion");
