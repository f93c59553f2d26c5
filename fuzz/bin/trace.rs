//! The fuzz target `trace`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("trace");
