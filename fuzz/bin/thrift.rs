//! The fuzz target `thrift`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("thrift");
