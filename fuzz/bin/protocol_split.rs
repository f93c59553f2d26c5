//! The fuzz target `protocol_split`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("protocol_split");
