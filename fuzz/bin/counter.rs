//! The fuzz target `counter`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("counter");
