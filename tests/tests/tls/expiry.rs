//! When certificates expire, as the metrics and the log tell: those of the listeners, those that a process shows to
//! others, and those that others show to it.

use std::time::Duration;

use harness::poll_for;
use rebate_tests::{Server, TIMEOUT};

use crate::world::{World, metric};

/// The series of the listeners' certificate.
pub(crate) const OF_LISTENERS: &str =
    "rebate_tls_certificate_expiry_timestamp_seconds{of=\"listeners\"}";

fn of_upstream(server: &Server) -> f64 {
    metric(server, "rebate_tls_certificate_expiry_timestamp_seconds{of=\"upstream\"}")
}

/// Returns the expiry of the certificate that `name` has shown to `server`, if it is known and there is no other.
fn of_server(server: &Server, name: &str) -> Option<f64> {
    let admin = server.admin().expect("pages");
    let (_, page) = rebate_tests::http::page(admin, "/metrics").expect("a page");
    let start = "rebate_tls_certificate_expiry_timestamp_seconds{of=\"server\",server=\"";
    let mut found = page.lines().filter_map(|line| line.strip_prefix(start)?.split_once("\"} "));
    let (of, expires) = found.next()?;
    (of == name && found.next().is_none()).then(|| expires.parse().expect("a number"))
}

#[test]
fn certificates_on_both_sides_of_upstream_connections_have_their_expiry() {
    let world = World::new();
    let (store, secured) = world.server(&[]);
    world.sign("frontend", 2090);
    let name = format!("tls://{secured}");
    let set = |key: &str, file: &str| format!("tls.{key}={}", world.text(file));
    let files = [
        set("upstream_ca_file", "ca.pem"),
        set("upstream_cert_file", "frontend.pem"),
        set("upstream_key_file", "frontend.key"),
    ];
    let pages = ["--admin-listen", "127.0.0.1:0"];
    let args: Vec<&str> =
        files.iter().flat_map(|file| ["--set", file.as_str()]).chain(pages).collect();
    let front = Server::rebate_serve(&format!("memcached://{name}"), "on", &args);
    // 2090-12-31 and 2100-12-31, as `date -ud` tells.
    assert_eq!(of_upstream(&front), 3_818_361_600.0);
    let shown = || of_server(&front, &name);
    assert_eq!(poll_for(TIMEOUT, shown), Some(4_133_894_400.0));
    assert_eq!(metric(&store, OF_LISTENERS), 4_133_894_400.0);
    // The server and the frontend get new certificates. The frontend's connection to the server stays.
    world.sign("server", 2101);
    poll_for(TIMEOUT, || (metric(&store, OF_LISTENERS) > 4_133_894_400.0).then_some(()))
        .expect("taken over");
    world.sign("frontend", 2091);
    poll_for(TIMEOUT, || (of_upstream(&front) > 3_818_361_600.0).then_some(()))
        .expect("taken over");
    front.signal(rustix::process::Signal::HUP);
    poll_for(TIMEOUT, || (shown()? == metric(&store, OF_LISTENERS)).then_some(()))
        .expect("asked again");
}

#[test]
fn a_server_whose_certificate_expires_soon_is_in_the_log() {
    let world = World::new();
    world.sign_for("server", Duration::from_secs(3 * 86_400));
    let (_store, secured) = world.server(&[]);
    let set = format!("tls.upstream_ca_file={}", world.text("ca.pem"));
    let url = format!("memcached://tls://{secured}");
    let front = Server::rebate_serve(&url, "on", &["--set", &set]);
    let line = format!("the certificate of tls://{secured} expires soon");
    poll_for(TIMEOUT, || front.output().contains(&line).then_some(())).expect("it is logged");
}
