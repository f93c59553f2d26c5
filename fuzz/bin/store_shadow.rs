//! The fuzz target `store_shadow`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("store_shadow");
