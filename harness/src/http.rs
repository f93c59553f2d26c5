//! Reads a page over plain HTTP, as probes and scrapers do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::TIMEOUT;

/// Returns the status and body of a page, if they come within `limit`.
pub fn page_within(addr: SocketAddr, path: &str, limit: Duration) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&addr, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// Reads the samples of a `/metrics` page whose names begin with `name`. Returns for each sample the rest of its key,
/// with the labels, and its value.
///
/// # Errors
/// The page cannot be read.
pub fn metrics(host_port: &str, name: &str) -> Result<Vec<(String, f64)>, String> {
    let addr = host_port.parse().map_err(|error| format!("{host_port}: {error}"))?;
    let page = page_within(addr, "/metrics", TIMEOUT);
    let (_, page) =
        page.ok_or_else(|| format!("{host_port} answers no request for its metrics"))?;
    let sample = |line: &str| {
        let (key, value) = line.rsplit_once(' ')?;
        let rest = key.strip_prefix(name)?;
        Some((rest.to_owned(), value.parse().ok()?))
    };
    Ok(page.lines().filter_map(sample).collect())
}
