//! The fuzz target `lane`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("lane");
