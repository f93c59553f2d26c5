//! The one binary, rebate.
fn main() {}
