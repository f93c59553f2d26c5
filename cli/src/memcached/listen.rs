//! Turns memcached's `-p` and `-l` into socket addresses: lists separated by `,` or `;`, `*`, `HOST:PORT`, IPv6 in
//! brackets or bare, and the prefixes `tag[..]:` and `proto[..]:`. Names are resolved here, as memcached does at its
//! start.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use server::config::TLS_PREFIX;

/// An address to listen on, and whether its clients use TLS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    pub(super) is_tls: bool,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_tls { TLS_PREFIX } else { "" };
        write!(f, "{prefix}{}", self.address)
    }
}

/// Returns the addresses of `-l`, or every interface if there is none. With `tls`, all of them but those with `notls:`
/// use TLS.
///
/// # Errors
/// The list is not valid. The error gives the reason.
pub(super) fn addresses(list: Option<&str>, port: u16, tls: bool) -> Result<Vec<Listener>, String> {
    let mut found = Vec::new();
    for text in list.unwrap_or("*").split([',', ';']).filter(|text| !text.is_empty()) {
        let (is_tls, text) = match text.strip_prefix("notls") {
            Some(_) if !tls => {
                return Err("'notls' option is valid only when SSL is enabled".to_owned());
            }
            Some(rest) => (false, rest.strip_prefix(':').unwrap_or(rest)),
            None => (tls, text),
        };
        let (host, port) = split(after_prefixes(text)?, port)?;
        let all = resolve(host, port)?.into_iter();
        found.extend(all.map(|address| Listener { address, is_tls }));
    }
    Ok(found)
}

/// Checks memcached's port number. The number -1 stands for a free port.
pub(super) fn port(number: i32) -> Result<u16, String> {
    let free = if number == -1 { 0 } else { number };
    u16::try_from(free).map_err(|_| format!("ERROR: Invalid port number {number}."))
}

fn after_prefixes(mut text: &str) -> Result<&str, String> {
    for prefix in ["proto[", "tag["] {
        let Some(rest) = text.strip_prefix(prefix) else { continue };
        let invalid = || format!("Invalid listener \"{text}\": give {prefix}NAME]:ADDRESS");
        let (name, rest) = rest.split_once("]:").ok_or_else(invalid)?;
        if prefix == "proto[" && !["ascii", "negotiating"].contains(&name) {
            return Err(format!("Protocol \"{name}\" is not served, only ascii"));
        }
        text = rest;
    }
    Ok(text)
}

fn split(text: &str, port_default: u16) -> Result<(&str, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let unclosed = || format!("Invalid IPV6 address: \"{text}\"");
            let (host, after) = rest.split_once(']').ok_or_else(unclosed)?;
            (host, after.strip_prefix(':'))
        }
        // A text with several colons and without brackets is an IPv6 address without a port.
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let Some(port) = port else { return Ok((host, port_default)) };
    let invalid = || format!("Invalid port number: \"{port}\"");
    Ok((host, self::port(port.parse().map_err(|_| invalid())?)?))
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let all: Vec<SocketAddr> = if host == "*" {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        any.map(|ip| SocketAddr::new(ip, port)).into()
    } else {
        let found = (host, port).to_socket_addrs();
        found.map_err(|error| format!("cannot resolve \"{host}\": {error}"))?.collect()
    };
    // A name may have addresses of a family that this machine lacks. One good address is enough.
    let here: Vec<SocketAddr> =
        all.iter().copied().filter(|at| TcpListener::bind((at.ip(), 0)).is_ok()).collect();
    Ok(if here.is_empty() { all } else { here })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shown(list: &str) -> Vec<String> {
        addresses(Some(list), 11211, false).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lists_name_hosts_and_ports_in_memcacheds_forms() {
        assert_eq!(shown("127.0.0.1"), ["127.0.0.1:11211"]);
        assert_eq!(shown("127.0.0.1:1;127.0.0.2"), ["127.0.0.1:1", "127.0.0.2:11211"]);
        assert_eq!(shown("127.0.0.1:-1,"), ["127.0.0.1:0"]);
        assert_eq!(shown("[::1]:2,::1"), ["[::1]:2", "[::1]:11211"]);
        assert_eq!(shown("tag[a]:127.0.0.1"), ["127.0.0.1:11211"]);
        assert_eq!(shown("proto[ascii]:127.0.0.1:3"), ["127.0.0.1:3"]);
        let any = Listener { address: "0.0.0.0:5".parse().unwrap(), is_tls: false };
        assert!(addresses(None, 5, false).unwrap().contains(&any));
        let mixed = addresses(Some("127.0.0.1,notls:127.0.0.1:6"), 5, true).unwrap();
        let mixed: Vec<_> = mixed.iter().map(ToString::to_string).collect();
        assert_eq!(mixed, ["tls://127.0.0.1:5", "127.0.0.1:6"]);
    }

    #[test]
    fn what_cannot_be_listened_on_is_named() {
        for (list, problem) in [
            ("127.0.0.1:abc", "Invalid port number: \"abc\""),
            ("127.0.0.1:70000", "ERROR: Invalid port number 70000."),
            ("[::1", "Invalid IPV6 address: \"[::1\""),
            ("notls:127.0.0.1", "'notls' option is valid only when SSL is enabled"),
            ("proto[binary]:127.0.0.1", "Protocol \"binary\" is not served, only ascii"),
        ] {
            assert_eq!(addresses(Some(list), 1, false).unwrap_err(), problem);
        }
        assert!(addresses(Some("999.1.1.1"), 1, false).unwrap_err().starts_with("cannot resolve"));
    }
}
