//! Reads a page over plain HTTP, as probes and scrapers do.

use std::net::SocketAddr;

pub use harness::http::page_within;

use crate::TIMEOUT;

/// Returns the status and body of a page.
pub fn page(addr: SocketAddr, path: &str) -> Option<(u16, String)> {
    page_within(addr, path, TIMEOUT)
}
