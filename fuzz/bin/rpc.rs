//! The fuzz target `rpc`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("rpc");
