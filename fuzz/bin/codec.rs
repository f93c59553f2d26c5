//! The fuzz target `codec`, driven by libFuzzer.

#![no_main]

fuzz::libfuzzer_target!("codec");
