//! The fuzz target `frame`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("frame");
