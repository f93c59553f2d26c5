//! The fuzz target `sealed`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("sealed");
