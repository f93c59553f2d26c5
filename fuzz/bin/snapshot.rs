//! The fuzz target `snapshot`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("snapshot");
