//! The fuzz target `near`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("near");
