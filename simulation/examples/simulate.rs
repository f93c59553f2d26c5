//! Runs simulations.

fn main() {}
