//! The fuzz target `protocol_response`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("protocol_response");
