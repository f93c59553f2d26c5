//! The traces and services of \[AccelFlow\], compiled in from specs/.

use crate::catalog::Catalog;
use crate::text::read;

/// The compiled-in files, each with its name and its text.
pub const ACCELFLOW: [(&str, &str); 2] = [
    ("accelflow.trace", include_str!("../../specs/traces/accelflow.trace")),
    ("social-network.trace", include_str!("../../specs/services/social-network.trace")),
];

/// Returns a catalog with the twelve templates of table II and the eight services of table IV.
pub fn accelflow() -> Catalog {
    read(&ACCELFLOW).expect("a test reads it")
}
