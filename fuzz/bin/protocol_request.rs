//! The fuzz target `protocol_request`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("protocol_request");
