//! Checks the host name in requests to the admin pages. A web page can make its host name resolve to this
//! server and read the answers (DNS rebinding). Names that are not configured are therefore refused; IP
//! addresses are accepted.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::header::HOST;
use hyper::{Request, StatusCode, Version};

use crate::config::{ServerConfig, split_tls};

/// Checks that the request's host name is allowed. The error is the response to send.
pub(super) fn check<B>(
    request: &Request<B>,
    config: &ServerConfig,
) -> Result<(), (StatusCode, String)> {
    let named = request.headers().get_all(HOST).iter().map(|host| host.to_str().ok());
    let asked = request.uri().authority().map(|authority| Some(authority.as_str()));
    let mut named = named.chain(asked).peekable();
    // Browsers always send a host. Old probes use HTTP/1.0, which does not require it.
    if named.peek().is_none() && request.version() > Version::HTTP_10 {
        return Err((StatusCode::BAD_REQUEST, "HTTP/1.1 needs the header Host".to_owned()));
    }
    match named.find(|host| !host.is_some_and(|host| is_known(host, config))) {
        None => Ok(()),
        Some(_) => Err((StatusCode::FORBIDDEN, REFUSED.to_owned())),
    }
}

fn is_known(host: &str, config: &ServerConfig) -> bool {
    let host = without_port(host);
    let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if literal.is_some_and(|text| text.parse::<Ipv6Addr>().is_ok()) {
        return true;
    }
    let matches = |name: &str| name == "*" || name.eq_ignore_ascii_case(host);
    host.parse::<Ipv4Addr>().is_ok()
        || matches("localhost")
        || matches(without_port(split_tls(&config.admin_listen).1))
        || config.admin_hosts.iter().any(|name| matches(name))
}

fn without_port(text: &str) -> &str {
    match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => text,
    }
}

const REFUSED: &str = "these pages do not answer under this name: ask by IP address or as localhost, or add the name \
                       to server.admin_hosts";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn status(version: Version, uri: &str, hosts: &[&str]) -> u16 {
        let config = ServerConfig {
            admin_listen: "rebate.example:9150".to_owned(),
            admin_hosts: vec!["cache-1".to_owned()],
            ..ServerConfig::default()
        };
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        check(&request.body(()).unwrap(), &config)
            .map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn only_own_names_and_addresses_are_answered() {
        for (host, wanted) in [
            ("127.0.0.1:9150", 200),
            ("10.1.2.3", 200),
            ("[::1]:9150", 200),
            ("localhost:9150", 200),
            ("LOCALHOST", 200),
            ("rebate.example:9150", 200),
            ("Cache-1:80", 200),
            ("evil.example:9150", 403),
            ("localhost.evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("cache-1.evil.example", 403),
            ("*", 403),
            ("", 403),
        ] {
            assert_eq!(status(Version::HTTP_11, "/metrics", &[host]), wanted, "{host}");
        }
    }

    #[test]
    fn every_name_of_a_request_must_be_known() {
        let uri = "http://evil.example/metrics";
        assert_eq!(status(Version::HTTP_11, uri, &["localhost"]), 403);
        assert_eq!(status(Version::HTTP_11, "/", &["localhost", "evil.example"]), 403);
        assert_eq!(status(Version::HTTP_11, "/", &[]), 400);
        assert_eq!(status(Version::HTTP_10, "/", &[]), 200);
        assert_eq!(status(Version::HTTP_10, "/", &["evil.example"]), 403);
    }

    #[test]
    fn a_star_answers_under_any_name() {
        let config = ServerConfig { admin_hosts: vec!["*".to_owned()], ..ServerConfig::default() };
        let request = Request::builder().header(HOST, "any.example").body(()).unwrap();
        assert_eq!(check(&request, &config), Ok(()));
    }
}
