//! The lines of watchers, in memcached's form.

use std::io::Write;

use protocol::key::uri_encode;
use store::embedded::Evicted;

use super::Lookup;
use crate::connection_table::{Address, CloseReason};

/// The outcome of a storage command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreEvent<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) status: &'static str,
    /// The name of the text command that stores in the same way.
    pub(crate) command: &'static str,
    /// The time after which the item expires (s), or 0 if it does not expire.
    pub(crate) ttl_s: u32,
    /// The length of the value (bytes), or none if there was no memory for it.
    pub(crate) value_bytes: Option<usize>,
}

/// A connection that was opened or, with a reason, closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionEvent<'a> {
    pub(crate) address: &'a Address,
    pub(crate) descriptor: i32,
    pub(crate) closed: Option<CloseReason>,
}

/// Appends the time and the number of an event.
pub(super) fn begin(out: &mut Vec<u8>, number: u64) {
    let now = units::unix_time();
    // memcached writes the microseconds without leading zeros, so that they are no fraction of the second.
    write(out, format_args!("ts={}.{:06} gid={number} ", now.as_secs(), now.subsec_micros()));
}

pub(super) fn fetched(out: &mut Vec<u8>, key: &[u8], lookup: Lookup, descriptor: i32) {
    let (status, class, bytes) = match lookup {
        Lookup::Missing => ("not_found", 0, 0),
        Lookup::Found(bytes) => ("found", CLASS, bytes),
        Lookup::Flushed => ("flushed", 0, 0),
        Lookup::Expired => ("expired", 0, 0),
    };
    begin_item(out, "item_get", key);
    write(out, format_args!(" status={status} clsid={class} cfd={descriptor} size={bytes}"));
}

pub(super) fn stored(out: &mut Vec<u8>, event: &StoreEvent<'_>, descriptor: i32) {
    let StoreEvent { key, status, command, ttl_s, value_bytes } = *event;
    let class = if value_bytes.is_some() { CLASS } else { 0 };
    let bytes = value_bytes.unwrap_or(0);
    begin_item(out, "item_store", key);
    let how = format_args!(" status={status} cmd={command} ttl={ttl_s}");
    write(out, format_args!("{how} clsid={class} cfd={descriptor} size={bytes}"));
}

pub(super) fn deleted(out: &mut Vec<u8>, key: &[u8], command: &str, value_bytes: Option<usize>) {
    begin_item(out, "deleted", key);
    write(out, format_args!(" cmd={command} clsid={CLASS}"));
    if let Some(bytes) = value_bytes {
        write(out, format_args!(" size={bytes}"));
    }
}

pub(super) fn evicted(out: &mut Vec<u8>, item: &Evicted<'_>) {
    let Evicted { key, value_bytes, ttl_s, idle_s, fetched } = *item;
    let ttl_s = ttl_s.map_or(-1, i64::from);
    let fetch = if fetched { "yes" } else { "no" };
    begin_item(out, "eviction", key);
    let when = format_args!(" fetch={fetch} ttl={ttl_s} la={idle_s}");
    write(out, format_args!("{when} clsid={CLASS} size={value_bytes}"));
}

pub(super) fn connection(out: &mut Vec<u8>, event: &ConnectionEvent<'_>) {
    let ConnectionEvent { address, descriptor, closed } = *event;
    let (address, port, transport) = match address {
        Address::Tcp(address) => (address.ip().to_string(), address.port(), "tcp"),
        Address::Unix(_) | Address::Near(_) => ("unix".to_owned(), 0, "local"),
    };
    let kind = if closed.is_some() { "conn_close" } else { "conn_new" };
    write(out, format_args!("type={kind} rip={address} rport={port} transport={transport} "));
    if let Some(reason) = closed {
        write(out, format_args!("reason={} ", reason.name()));
    }
    write(out, format_args!("cfd={descriptor}"));
}

fn begin_item(out: &mut Vec<u8>, kind: &str, key: &[u8]) {
    write(out, format_args!("type={kind} key="));
    uri_encode(key, out);
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// The slab class that is reported for all items.
const CLASS: u32 = crate::session::SLAB_CLASS;
