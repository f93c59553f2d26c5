//! The fuzz target `protocol_binary`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("protocol_binary");
